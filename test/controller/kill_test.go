package controller

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// long reports whether the tests run at full length.
func long() bool { return os.Getenv("KUBENERGY_LONG") != "" }

// TestKill repeatedly kills the controller and the agents while usage is delivered. They are killed at random
// times, before a batch is written, while it is processed and before it is acknowledged. Finally, the recorded
// usage must equal the actual usage.
func TestKill(t *testing.T) {
	kills := 10
	if long() {
		kills = 200
	}
	engines(t, func(t *testing.T, e *engine) {
		k := newKilled(t, e)
		agent := k.newMetered(t)
		began, fed := time.Now(), len(k.herd.all)
		killed := k.herd.start((kills + fed - 1) / fed)
		agent.lives(kills / 5)
		k.controllers(t, kills)
		if err := killed(); err != nil {
			t.Fatal(err)
		}
		used := agent.finish(t, k.c)
		steps := k.herd.finish(t, 2*time.Minute)
		t.Logf("killed the controller %d times: %v; batches in transit were recorded %d times "+
			"and lost %d times; killed agents %d times and "+
			"the released agent %d times; %v; took %v", k.kills, k.by, k.had, k.hadNot, k.herd.kills(), agent.kills, k.wire,
			time.Since(began).Round(time.Second))
		k.wire.check(t)
		k.c.verify(t, k.herd.began, steps, map[string]energy.Microjoules{agent.node: used})
		if err := k.c.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		e.whole(t, k.c, len(steps)+1)
	})
}

// killed is a controller that is killed repeatedly.
type killed struct {
	e    *engine
	c    *controllerProcess
	herd *herd
	wire *wire

	kills       int
	by          map[point]int
	had, hadNot int // batches that were sent but not acknowledged when the controller was killed
}

func newKilled(t *testing.T, e *engine) *killed {
	t.Helper()
	w := shared
	const hosts = 4
	h := w.newHerd(t, hosts)
	c := w.controller(t, e.env(), "--agentless=false", "--host-tokens-file="+h.tokens)
	k := &killed{e: e, c: c, herd: h, wire: newWire(t, c), by: map[point]int{}}
	h.connect(k.wire)
	return k
}

// controllers kills and restarts the controller the given number of times.
func (k *killed) controllers(t *testing.T, kills int) {
	t.Helper()
	points := []point{anywhere, beforeAck, whileWriting, beforeWrite, anywhere, whileWriting, halfAck}
	const (
		timeout = 10 * time.Second
		longest = 300 * time.Millisecond
	)
	for k.kills < kills {
		at := points[k.kills%len(points)]
		if at == anywhere {
			time.Sleep(rand.N(longest))
			k.c.Kill()
			k.note(anywhere)
		} else if tr := k.wire.set("", at, k.c.Kill); !k.wire.wait("", tr, timeout) {
			k.c.Kill()
			k.note(anywhere)
		} else {
			k.note(at)
			if at == whileWriting {
				if k.e.acked(t, k.c, tr.stream) >= tr.last {
					k.had++
				} else {
					k.hadNot++
				}
			}
		}
		if k.kills < kills && rand.IntN(8) == 0 { // kill the controller during startup
			k.c.launch(t)
			time.Sleep(rand.N(2 * longest))
			k.c.Kill()
			k.note("during startup")
		}
		k.c.begin(t)
	}
}

func (k *killed) note(at point) {
	k.kills++
	k.by[at]++
}

// metered is the released agent on a host with a simulated counter. Only the total energy of its node is known.
type metered struct {
	node    string
	kills   int
	address string
	counter *killtest.Powercap
	killer  *killtest.Killer
	done    chan error
}

// newMetered starts the agent. The counter does not advance until the agent has read it.
func (k *killed) newMetered(t *testing.T) *metered {
	t.Helper()
	counter, err := killtest.NewPowercap(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = counter.Close() })
	m := &metered{
		node: meteredNode, address: kit.Address(t), counter: counter,
		done: make(chan error, 1),
	}
	token, path := filepath.Join(t.TempDir(), "token"), kit.Build(t, "./cmd/kubenergy-agent")
	if err := os.WriteFile(token, []byte(tokenOf(m.node)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"--node-name", m.node, "--listen", m.address, "--interval", "100ms", "--batch-interval", "100ms", "--state-dir",
		t.TempDir(),
		"--powercap-root", counter.Root, "--meters", "rapl", "--push-url", k.wire.url, "--push-ca-file", k.wire.caFile,
		"--push-token-file", token,
	}
	m.killer = &killtest.Killer{Longest: time.Second, Command: func() *exec.Cmd { return exec.Command(path, args...) }}
	t.Cleanup(m.killer.Close)
	if err := m.killer.Start(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, "the released agent ticks", func() bool { return killtest.Ticks(m.address) > 2 })
	const watts = 0.1 // the counter overflows after 100 J
	counter.Start(watts)
	kit.Eventually(t, time.Minute, "the released agent delivers batches", func() bool { return k.wire.heard(m.node) })
	return m
}

// lives kills and restarts the agent the given number of times at random times.
func (m *metered) lives(kills int) {
	m.kills = kills
	go func() {
		err := m.killer.Kill()
		if err == nil {
			err = m.killer.Lives(kills - 1)
		}
		m.done <- errors.Join(err, m.killer.Start())
	}()
}

// finish stops the counter, waits until its energy has been recorded and returns it.
func (m *metered) finish(t *testing.T, c *controllerProcess) energy.Microjoules {
	t.Helper()
	if err := <-m.done; err != nil {
		t.Fatal(err)
	}
	recorded := func() energy.Microjoules {
		if answer, err := http.Post("http://"+m.address+"/forward-metrics", "", nil); err == nil {
			answer.Body.Close()
		}
		return c.energyOf(t, m.node)
	}
	// An agent does not use a counter that stops before the agent has read it for the second time.
	kit.Eventually(t, time.Minute, "the last agent ticks", func() bool { return killtest.Ticks(m.address) > 0 })
	ticked := energy.Microjoules(m.counter.Used())
	kit.Eventually(t, 2*time.Minute, "the last agent has recorded energy after its first tick", func() bool {
		return recorded() > ticked
	})
	if err := m.counter.Close(); err != nil {
		t.Fatal(err)
	}
	used := energy.Microjoules(m.counter.Used())
	kit.Eventually(t, 2*time.Minute, "the released agent has delivered all batches", func() bool {
		return recorded() >= used
	})
	if out, err := m.killer.End(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return used
}
