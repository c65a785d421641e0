package sim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// A job that is bound to a site waits for capacity there, and the machine woken for it belongs to that site.
func TestBoundJobsRunWhereTheyMay(t *testing.T) {
	clean, dirty := site(t, "clean", 1, 50, 50, 50, 50), site(t, "dirty", 1, 500, 500, 500, 500)
	bound := job("bound", 30*time.Minute, time.Hour, 10, 0)
	bound.Sites = []string{"dirty"}
	for _, profile := range []string{"", "boots"} {
		s := &sim.Scenario{
			Start: start, Sites: []*sched.Site{clean, dirty},
			Nodes: []sched.Node{
				node("c1", clean, 10, booting), node("c2", clean, 10, booting), node("d", dirty, 10, booting),
			},
			Jobs: []sched.Job{job("first", 0, time.Hour, 10, 0), bound},
		}
		if profile == "" {
			s = s.StayingAwake()
		}
		for _, name := range []string{"energy", "carbon", "round-robin", "flow-carbon", "carbon+now/shortest"} {
			r := run(t, s, name)
			if out := &r.Outcomes[1]; out.Placed.Node != "d" || out.Start.After(start.Add(33*time.Minute)) {
				t.Errorf("%s%s: bound job ran on %q from %v, want d", name, profile, out.Placed.Node, out.Start)
			}
		}
	}
}

// If a strategy assigns jobs to sites regardless of their capacity, a machine of the assigned site is woken.
func TestTheMachineThatWakesIsOfTheClusterThatWasChosen(t *testing.T) {
	first, second := site(t, "first", 1, 500, 500, 500, 500), site(t, "second", 1, 50, 50, 50, 50)
	second.Weight = 2
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{first, second},
		Nodes: []sched.Node{node("a", first, 10, booting), node("b", second, 10, booting)},
		Jobs:  []sched.Job{job("late", 2*time.Hour, time.Hour, 10, 0)},
	}
	for name, want := range map[string]string{"home": "a", "karmada-static": "b"} {
		if out := &run(t, s, name).Outcomes[0]; out.Placed.Node != want || out.Start.After(start.Add(123*time.Minute)) {
			t.Errorf("%s: job ran on %q from %v", name, out.Placed.Node, out.Start)
		}
	}
}

func TestUnknownSiteOfAJob(t *testing.T) {
	home := site(t, "home", 1, 500)
	bound := job("bound", 0, time.Hour, 1, 0)
	bound.Sites = []string{"hame"}
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("n", home, 10, booting)},
		Jobs: []sched.Job{bound},
	}
	const want = `job bound: sites: unknown site "hame" (did you mean home?): have home`
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Validate() = %v, want %s", err, want)
	}
}
