package slurm_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/slurm"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestNodesSleep verifies that unused nodes are suspended once the saving exceeds the cost of a boot, and resumed
// before the BeginTime of a waiting job. Nodes without the Feature and the minimum number of awake nodes are not
// suspended.
func TestNodesSleep(t *testing.T) {
	for _, version := range []string{"v0.0.38", "v0.0.45"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, version)
			said := filepath.Join(t.TempDir(), "said")
			program := kit.Write(t, filepath.Join(t.TempDir(), "program"), "#!/bin/sh\nsleep 90 &\necho $* >> "+said+"\n")
			if err := os.Chmod(program, 0o700); err != nil {
				t.Fatal(err)
			}
			w.nodes = []fakeNode{{"a", "fast,may_sleep", "IDLE", 0}, {"b", "may_sleep", "IDLE", 4}, {"c", "fast", "IDLE", 0}}
			var plans []sleep.Plan
			w.power = slurm.PowerOptions{
				Program: program, Policy: sleep.Policy{MinAwake: 1, Lead: time.Minute},
				Profile: func(*slurm.Node) *energy.Profile {
					return &energy.Profile{Idle: 100, Max: 200, WakeUp: 60_000, BootSeconds: 120}
				},
				Record: func(s *sleep.Snapshot, p *sleep.Plan) {
					if diff := cmp.Diff(*p, sleep.Decide(s)); diff != "" {
						t.Error(diff)
					}
					plans = append(plans, *p)
				},
			}
			w.restart()
			notify := func(want string) {
				t.Helper()
				began := time.Now()
				w.look()
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the pass took %v, because it waits for child processes of the program", took)
				}
				text, _ := os.ReadFile(said)
				_ = os.Remove(said)
				if got := strings.TrimSpace(string(text)); got != want {
					t.Errorf("arguments of the program = %q, want %q: %+v", got, want, plans[len(plans)-1])
				}
			}
			notify("")
			w.now = w.now.Add(9 * time.Minute) // a boot costs as much as ten minutes of sleep save
			notify("")
			w.now = w.now.Add(2 * time.Minute)
			notify("suspend a")
			w.nodes[0].state = "POWERED_DOWN"
			w.nodes[1].taken = 0
			notify("")
			for id := range int64(3) { // each job needs a complete node
				w.add(id, mayWait, func(j *job) { j.cpus = 64 })
			}
			notify("")
			w.now = noon.Add(valley - 2*time.Minute)
			notify("resume a")
		})
	}
}

// TestNodesOfGPUsWake verifies that a node is resumed before a job that needs its GPUs.
func TestNodesOfGPUsWake(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.tres = "cpu=64,mem=1000M,gres/gpu=4"
	w.nodes = []fakeNode{{"a", "may_sleep", "POWERED_DOWN", 0}, {"b", "fast", "IDLE", 64}}
	var did []sleep.Verb
	w.power = slurm.PowerOptions{
		Program: "true", Policy: sleep.Policy{MinAwake: 1, Lead: time.Minute},
		Profile: func(*slurm.Node) *energy.Profile {
			return &energy.Profile{Idle: 100, Max: 200, WakeUp: 60_000, BootSeconds: 120}
		},
		Record: func(_ *sleep.Snapshot, p *sleep.Plan) { did = append(did, p.Verdicts[0].Do) },
	}
	w.restart()
	w.add(1, mayWait, func(j *job) { j.tres = "cpu=4,mem=500M,gres/gpu=2" })
	w.look()
	w.at(valley - 2*time.Minute)
	if want := []sleep.Verb{sleep.Stay, sleep.Wake}; !slices.Equal(did, want) {
		t.Errorf("verdicts = %v, want %v", did, want)
	}
}

// TestNodesWakeAtALimitedRate verifies that the number of nodes resumed per minute is limited by the policy, even
// if Slurm does not report yet that earlier nodes are booting.
func TestNodesWakeAtALimitedRate(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.nodes = []fakeNode{
		{"a", "may_sleep", "POWERED_DOWN", 0}, {"b", "may_sleep", "POWERED_DOWN", 0}, {"c", "may_sleep", "POWERED_DOWN", 0},
		{"d", "", "IDLE", 64},
	}
	var wakes []int
	w.power = slurm.PowerOptions{
		Program: "true", Policy: sleep.Policy{Lead: time.Minute, WakesPerMinute: 2},
		Profile: func(*slurm.Node) *energy.Profile {
			return &energy.Profile{Idle: 100, Max: 200, WakeUp: 60_000, BootSeconds: 120}
		},
		Record: func(_ *sleep.Snapshot, p *sleep.Plan) {
			n := 0
			for _, v := range p.Verdicts {
				if v.Do == sleep.Wake {
					n++
				}
			}
			wakes = append(wakes, n)
		},
	}
	w.restart()
	for id := range int64(3) { // each job needs a complete node
		w.add(id, mayWait, func(j *job) { j.cpus = 64 })
	}
	w.look()
	w.at(valley - 2*time.Minute)
	w.at(valley - 90*time.Second)
	w.at(valley - time.Minute)
	if want := []int{0, 2, 0, 2}; !slices.Equal(wakes, want) {
		t.Errorf("number of resumed nodes = %v, want %v", wakes, want)
	}
}
