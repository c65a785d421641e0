package sim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// The configuration of run-time models, forecasts and the queue in a scenario file.
func TestKnowledgeOfAScenarioFile(t *testing.T) {
	dir := t.TempDir()
	load := func(site, extra string) (*sim.Scenario, error) {
		var hours strings.Builder
		for day := range 20 {
			for hour := range 24 {
				fmt.Fprintf(&hours, "2022-06-%02dT%02d:00:00Z,%d\n", day+1, hour, 200+10*hour+day)
			}
		}
		for name, text := range map[string]string{
			"grid.csv": "time,ci_lifecycle_g_per_kwh\n" + hours.String(),
			"jobs.csv": "id,submit_time,duration,cpu,memory\na,0,600,1,1Gi\n",
			"scenario.yaml": "apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv}\nnodes: " +
				"ecsched50\nstart: 2022-06-10\n" +
				"sites: [{grid: {file: grid.csv}" + site + "}]\n" + extra,
		} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
		if err != nil {
			return nil, err
		}
		return f.Load()
	}

	s, err := load("", "")
	if err != nil {
		t.Fatal(err)
	}
	if s.Learner != nil || s.Foresight != nil || s.Queue != (sim.QueueRules{}) || s.Jobs[0].Interruptible {
		t.Errorf("unexpected defaults: %+v", s)
	}
	s, err = load(", forecast: {model: yesterday, lag: 0s}",
		"interruptible: true\nrestartCost: 5m\nlearner: survival\nqueue: {window: 100, perStep: 1, step: 1s}\n")
	if err != nil {
		t.Fatal(err)
	}
	if !s.Jobs[0].Interruptible || s.Jobs[0].RestartCost != 5*time.Minute {
		t.Errorf("unexpected job %+v", s.Jobs[0])
	}
	if want := (sim.QueueRules{Window: 100, PerStep: 1, Step: time.Second}); s.Queue != want {
		t.Errorf("queue %+v, want %+v", s.Queue, want)
	}
	if _, ok := s.Learner().(*predict.Survival); !ok {
		t.Errorf("learner %T", s.Learner())
	}
	if s.Power != nil || s.Use != nil {
		t.Errorf("got power %v and use %v, want neither by default", s.Power != nil, s.Use)
	}
	if s, err := load("", "power: learnt\n"); err != nil || s.Power == nil {
		t.Errorf("unexpected result for learnt power: %v, %v", s, err)
	} else if _, ok := s.Power().(*predict.Power); !ok {
		t.Errorf("power of %T", s.Power())
	}
	if s, err := load("", "power: profiles\n"); err != nil || s.Power != nil {
		t.Errorf("unexpected result for power of profiles: %v, %v", s, err)
	}
	busy := filepath.Join(dir, "busy.csv")
	if err := os.WriteFile(busy, []byte("id,submit_time,duration,cpu,cpu_use\na,0,600,1,0.2\nb,0,600,1,\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	f, err := sim.ReadFile(filepath.Join(dir, "scenario.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Override(sim.Overrides{Workload: busy, Power: "learnt"}); err != nil {
		t.Fatal(err)
	}
	if s, err := f.Load(); err != nil || s.Power == nil || !slices.Equal(s.Use, []float64{0.2, 1}) {
		t.Errorf("unexpected result for a trace with CPU use: %v, %v", s, err)
	}
	now := s.Start.Add(30 * time.Hour)
	known, truth := s.Foresight[0].At(now).Series, s.Sites[0].Carbon.Series
	if got, want := known.At(now), truth.At(now); got != want {
		t.Errorf("current value = %v, want %v", got, want)
	}
	if got, want := known.At(now.Add(5*time.Hour)), truth.At(now.Add(-19*time.Hour)); got != want {
		t.Errorf("forecast for five hours ahead = %v, want yesterday's value %v", got, want)
	}

	for _, c := range [...]struct{ site, extra, want string }{
		{"", "restartCost: 5m\n", "not interruptible"},
		{"", "interruptible: true\nrestartCost: soon\n", "restartCost"},
		{"", "learner: oracle\n", "known, groups, mean, siblings, survival"},
		{"", "power: nominal\n", "want profiles or learnt"},
		{"", "queue: {window: -1}\n", "queue.window is -1: want a number of jobs, or 0 for all"},
		{"", "queue: {perStep: 1}\n", "no queue.step"},
		{"", "queue: {step: -1s}\n", `queue.step: "-1s" is negative: want 5m, 1s or 0s`},
		{"", "queue: {step: 999999h}\n", `queue.step: "999999h" is more than a hundred years: want 5m, 1s or 0s`},
		{"", "queue: {step: 5}\n", `queue.step: "5" has no unit: want 5m, 1s or 0s`},
		{"", "queue: {step: -1.5}\n", `queue.step: "-1.5" has no unit: want 5m, 1s or 0s`},
		{"", "queue: {perStep: -1}\n", "queue.perStep is -1: want a number of placements, or 0 for all"},
		{"", "queue: {size: 1}\n", "size"},
		{", forecast: {model: tea-leaves}", "", "tea-leaves"},
		{", forecast: {model: weather}", "", "requires a weather file"},
		{", forecast: {model: history, weather: w.csv}", "", "other models do not accept one"},
		{", forecast: {lag: 1h}", "", "require a model"},
		{", forecast: {model: yesterday, lag: 1s}", "", "full hours"},
		{", forecast: {model: yesterday, lag: 1}", "", `lag: "1" has no unit`},
	} {
		if _, err := load(c.site, c.extra); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: expected an error that contains %[4]q, got %[3]v", c.site, c.extra, err, c.want)
		}
	}
}
