package sim_test

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// eyes is a strategy that records the nodes offered to it and decides like "exec".
type eyes struct {
	*strategy.Greedy
	seen [][]sched.Node
}

func (e *eyes) Plan(s *sched.Snapshot) sched.Plan {
	var nodes []sched.Node
	for _, n := range s.Nodes {
		nodes = append(nodes, *n)
	}
	e.seen = append(e.seen, nodes)
	return e.Greedy.Plan(s)
}

func watch(t *testing.T, s *sim.Scenario) *eyes {
	t.Helper()
	greedy, err := strategy.New("exec")
	if err != nil {
		t.Fatal(err)
	}
	e := &eyes{Greedy: greedy}
	if _, err := sim.Run(context.Background(), s, "exec", e); err != nil {
		t.Fatal(err)
	}
	return e
}

// A meter with readings every 15 s, computed by hand: a job of 40 W runs from 5 s to 65 s on a node with an idle
// power of 60 W.
func TestMeters(t *testing.T) {
	home := site(t, "home", 1, 300, 300, 300, 300, 300, 300, 300)
	at := func(seconds int) time.Duration { return time.Duration(seconds) * time.Second }
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Live: sim.Live{Period: at(15), MaxAge: at(45)},
		Nodes: []sched.Node{node("n", home, 10, &energy.Profile{Idle: 60, Max: 160, Sleep: 60})},
		Jobs: []sched.Job{
			job("load", at(5), at(60), 4, 0), job("soon", at(6), at(1), 1, 0), job("then", at(20), at(1), 1, 0),
			job("later", at(44), at(1), 1, 0),
			job("after", at(80), at(1), 1, 0), job("idle", at(100), at(1), 1, 0),
		},
	}
	want := []struct{ live, provisional float64 }{
		{math.NaN(), 0},             // load, at 5 s: no period has ended
		{math.NaN(), 0},             // soon, at 6 s
		{60 + (40*10+10*1)/15.0, 0}, // then, at 20 s: load ran for 10 of 15 s, soon for one
		{100 + 10.0/15, 0},          // later, at 44 s: the period from 15 to 30 s, during which then ran
		{60 + 40*5/15.0, 0},         // after, at 80 s: load ended 5 s into the period starting at 60 s
		{60 + 10.0/15, 0},           // idle, at 100 s: the period from 75 to 90 s, during which after ran
	}
	seen := watch(t, s).seen
	if len(seen) != len(want) {
		t.Fatalf("got %d decisions", len(seen))
	}
	for i, w := range want {
		n := seen[i][0]
		if n.HasLive == math.IsNaN(w.live) || n.HasLive && math.Abs(float64(n.Live)-w.live) > 1e-9 {
			t.Errorf("%s: Live = %v W, HasLive = %v, want %v", s.Jobs[i].ID, n.Live, n.HasLive, w.live)
		}
	}
	if n := seen[1][0]; n.Provisional != 40 {
		t.Errorf("soon: Provisional = %v W, want 40", n.Provisional)
	}
	if n := seen[2][0]; n.Provisional != 0 {
		t.Errorf("then: Provisional = %v W, want 0 because the reading includes the jobs", n.Provisional)
	}

	s.Live = sim.Live{}
	if n := watch(t, s).seen[3][0]; !n.HasLive || n.Live != 100 || n.Provisional != 0 {
		t.Errorf("reading of an ideal meter = %v W, want 100", n.Live)
	}
	s.Live = sim.Live{Off: true}
	if n := watch(t, s).seen[3][0]; n.HasLive {
		t.Errorf("reading without a meter = %v W, want none", n.Live)
	}
	s.Live = sim.Live{Period: at(30), MaxAge: at(10)}
	if seen := watch(t, s).seen; seen[3][0].HasLive || !seen[5][0].HasLive {
		t.Errorf("unexpected readings with an age of 14 s and 10 s: %+v, %+v", seen[3][0], seen[5][0])
	}
}

// Without provisional power, all jobs of a burst would be placed on the node that was least loaded before the
// burst. Without meters, exec behaves like energy.
func TestABurstBetweenTwoReadings(t *testing.T) {
	home := site(t, "home", 1, 300, 300)
	p := &energy.Profile{Idle: 60, Max: 160, Sleep: 60}
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Live: sim.Live{Period: 15 * time.Second, MaxAge: 45 * time.Second},
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		s.Nodes = append(s.Nodes, node(name, home, 10, p))
	}
	for i := range 8 {
		s.Jobs = append(s.Jobs, job(string('1'+rune(i)), 20*time.Second+time.Duration(i)*time.Millisecond, time.Minute,
			1, 0))
	}
	on := map[string]int{}
	for _, o := range run(t, s, "exec").Outcomes {
		on[o.Placed.Node]++
	}
	for _, n := range s.Nodes {
		if on[n.Name] != 2 {
			t.Errorf("jobs per node = %v, want two each", on)
			break
		}
	}
	s.Live.Off = true
	blind, plain := run(t, s, "exec"), run(t, s, "energy")
	for i := range blind.Outcomes {
		if blind.Outcomes[i].Placed.Node != plain.Outcomes[i].Placed.Node {
			t.Errorf("job %d ran on %s without meters, want %s as with energy", i, blind.Outcomes[i].Placed.Node,
				plain.Outcomes[i].Placed.Node)
		}
	}
}

// The strict variant prefers nodes without jobs, and uses others only if there are none.
func TestHybridIdleTakesIdleNodesFirst(t *testing.T) {
	dir := t.TempDir()
	load := func(extra string) (*sim.Scenario, error) {
		for name, text := range map[string]string{
			"grid.csv":  "time,ci_lifecycle_g_per_kwh\n2022-06-01T00:00:00Z,500\n2022-06-01T01:00:00Z,300\n2022-06-01T02:00:00Z,300\n",
			"jobs.csv":  "id,submit_time,duration,cpu,memory\na,0,600,1,1Gi\nb,20,600,1,1Gi\nc,40,600,1,1Gi\nd,60,600,1,1Gi\n",
			"nodes.csv": "name,cpu,memory,idle_watts,max_watts\nbig,32,64Gi,60,300\nmid,16,64Gi,60,300\nold,8,64Gi,60,300\n",
			"scenario.yaml": "apiVersion: kubenergy.io/v1alpha1\nkind: Scenario\nworkload: {file: jobs.csv}\nnodes: " +
				"nodes.csv\n" +
				"sites: [{grid: {file: grid.csv}}]\nstrategies: [hybrid-idle, exec]\n" + extra,
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
	for extra, want := range map[string]string{
		"":                                   "big mid old big",
		"live: {disabled: true}\n":           "big big big big",
		"live: {period: 10m, maxAge: 20m}\n": "big big big big", // no reading is available yet
		"live: {period: 0s}\nbenchmarks: {old: {rate: 100, watts: 90, idleWatts: 60}}\n": "old big mid old",
	} {
		s, err := load(extra)
		if err != nil {
			t.Fatal(err)
		}
		var on []string
		for _, o := range run(t, s, "hybrid-idle").Outcomes {
			on = append(on, o.Placed.Node)
		}
		if got := strings.Join(on, " "); got != want {
			t.Errorf("%q: jobs ran on %s, want %s", extra, got, want)
		}
	}
	for extra, want := range map[string]string{
		"live: {period: fast}\n":                                 `live.period: "fast" is not a duration`,
		"live: {maxAge: -1s}\n":                                  `live.maxAge: "-1s" is negative: want 5m, 1s or 0s`,
		"live: {every: 15s}\n":                                   "every",
		"benchmarks: {new: {rate: 1, watts: 2, idleWatts: 1}}\n": `"new" is neither a node nor a power profile`,
		"benchmarks: {old: {rate: 0, watts: 2, idleWatts: 1}}\n": "rate is 0",
	} {
		if _, err := load(extra); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: expected an error that contains %[3]q, got %[2]v", extra, err, want)
		}
	}
}
