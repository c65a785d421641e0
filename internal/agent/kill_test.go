package agent_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestKill kills the released agent at random times, on a node and on a hypervisor, while the energy counter
// advances and the controller fails every other request. It verifies that all energy is recorded exactly once, to
// the microjoule.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents for several seconds")
	}
	kills := 20
	if os.Getenv("KUBENERGY_LONG") != "" {
		kills = 200
	}
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	for mode, args := range map[string][]string{"node": nil, "hypervisor": {"--vms", "--guests-dir", t.TempDir()}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			var healed atomic.Bool
			sink := &sinktest.Sink{Fault: func(int) sinktest.Fault {
				if healed.Load() || rand.N(2) == 0 {
					return sinktest.Fault{}
				}
				return sinktest.Fault{Status: http.StatusInternalServerError, Booked: rand.N(2) == 0}
			}}
			server := httptest.NewServer(sink)
			defer server.Close()
			counter, err := killtest.NewPowercap(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer counter.Close()
			address, state := kit.Address(t), t.TempDir()
			args := append([]string{
				"--node-name", node, "--listen", address, "--interval", "100ms", "--batch-interval", "100ms",
				"--state-dir", state,
				"--powercap-root", counter.Root, "--meters", "rapl", "--push-url", server.URL,
			}, args...)
			killer := &killtest.Killer{Longest: 600 * time.Millisecond, Command: func() *exec.Cmd {
				return exec.Command(path, args...)
			}}
			t.Cleanup(killer.Close)

			// Stop the counter until the agent has read it for the first time, and again at the end until all
			// energy is recorded.
			if err := killer.Start(); err != nil {
				t.Fatal(err)
			}
			kit.Eventually(t, 30*time.Second, "the agent ticks", func() bool { return killtest.Ticks(address) > 2 })
			counter.Start(0.5)
			if err := killer.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := killer.Lives(kills - 1); err != nil {
				t.Fatal(err)
			}
			healed.Store(true)
			if err := killer.Start(); err != nil {
				t.Fatal(err)
			}
			// An agent does not use a counter that stops before the agent has read it for the second time. The first
			// tick alone leaves the energy between reading CPU times and the counter to the next one.
			kit.Eventually(t, 30*time.Second, "the last agent ticks", func() bool { return killtest.Ticks(address) > 0 })
			ticked := energy.Microjoules(counter.Used())
			kit.Eventually(t, 30*time.Second, "the last agent has recorded energy after its first tick", func() bool {
				return sink.Totals().Measured > ticked
			})
			if err := counter.Close(); err != nil {
				t.Fatal(err)
			}
			used := energy.Microjoules(counter.Used())
			t.Cleanup(func() {
				if total := sink.Totals(); t.Failed() {
					output, err := killer.End()
					t.Logf("used %d µJ, recorded %d in %d batches; the agent returned %v and printed\n%s", used, total.Measured,
						total.Batches, err, output)
				}
			})
			kit.Eventually(t, 2*time.Minute, "all energy is recorded", func() bool {
				return sink.Totals().Measured >= used
			})
			if output, err := killer.End(); err != nil {
				t.Fatalf("%v\n%s", err, output)
			}

			total := sink.Totals()
			t.Logf("%d kills: used %d µJ, recorded %d, unknown %d; %v unmeasured, %d duplicate batches", kills,
				used, total.Measured, total.Unknown,
				total.Unmeasured, total.Duplicates)
			if total.Measured != used {
				t.Errorf("recorded %d µJ, want %d", total.Measured, used)
			}
			if breaches := sink.Breaches(); breaches != nil || total.Gaps != 0 {
				t.Errorf("%d gaps, breaches: %v", total.Gaps, breaches)
			}
		})
	}
}
