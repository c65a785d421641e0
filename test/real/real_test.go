//go:build linux

package real

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

const (
	window    = 30 * time.Second
	tolerance = 0.03
)

// TestRealPods runs two pods with limits of 0.5 and 0.2 CPUs that use all of it, and compares the values reported
// by the agent with those of the kernel.
func TestRealPods(t *testing.T) {
	require(t)
	w := build(t)
	w.startControlPlane(t)
	w.group = node.MakeGroup(t, "kubenergy-real-")
	w.startNode(t)
	pods := watch(t, filepath.Join(node.Groups, "cpuacct", w.group, "kubepods")) // excludes the node itself
	a := w.startAgent(t)
	half, fifth := w.submit(t, "half", 500, true), w.submit(t, "fifth", 200, false)
	w.awaitRunning(t, half)
	w.awaitRunning(t, fifth)
	a.awaitNames(t, half, fifth)

	m := a.meter(t, half, fifth)
	m.checkLimits(t)
	m.checkRatio(t)
	m.checkBatches(t)

	w.end(t, half)
	w.end(t, fifth)
	a.checkEnded(t, pods, half, fifth)
}

// metering contains the measurements of two pods in the same interval.
type metering struct {
	pods    [2]*burner
	cpu     [2]time.Duration      // according to the kernel
	joules  [2]map[string]float64 // by mode, according to /metrics
	from    time.Duration
	to      time.Duration
	batches []batch.Batch
}

// meter returns the measurements between two deliveries of the agent.
func (a *agent) meter(t *testing.T, pods ...*burner) *metering {
	t.Helper()
	m := &metering{pods: [2]*burner(pods)}
	first, before := a.deliver(t, pods)
	time.Sleep(window)
	second, after := a.deliver(t, pods)
	m.batches = second[len(first):]
	if len(m.batches) == 0 {
		t.Fatalf("no batch in %v", window)
	}
	m.from, m.to = m.batches[0].StartSinceBoot, m.batches[len(m.batches)-1].EndSinceBoot
	if length := m.to - m.from; length < window*9/10 || length > window*12/10 {
		t.Errorf("batches cover %v, want approximately %v", window, length)
	}
	for i, p := range m.pods {
		m.cpu[i] = p.kernel.between(t, m.from, m.to)
		m.joules[i] = map[string]float64{}
		for mode, joules := range after[i] {
			m.joules[i][mode] = joules - before[i][mode]
		}
	}
	return m
}

// deliver returns all batches and the energy according to /metrics. Both are equal to the microjoule unless a tick
// occurs in between.
func (a *agent) deliver(t *testing.T, pods []*burner) (batches []batch.Batch, joules []map[string]float64) {
	t.Helper()
	kit.Await(t, 20*time.Second, "/metrics and the batches report the same energy",
		func(ctx context.Context) (bool, error) {
			var err error
			if joules, err = a.joules(ctx, pods); err != nil {
				return false, err
			}
			if err := a.forward(ctx); err != nil {
				return false, err
			}
			batches = a.sink.got(t)
			for i, p := range pods {
				dynamic, idle, _ := sum(batches, energy.ContainerID(string(p.pod.UID), p.id))
				for mode, sent := range map[string]energy.Microjoules{"dynamic": dynamic, "idle": idle} {
					if shown := joules[i][mode]; energy.Joules(shown).Microjoules() != sent {
						return false, fmt.Errorf("%s energy of pod %s: %v J in batches, %v J in /metrics", mode, p.pod.Name,
							float64(sent.Joules()), shown)
					}
				}
			}
			return true, nil
		}, a.daemon)
	return batches, joules
}

// sum returns the total usage of a consumer in batches.
func sum(batches []batch.Batch, consumer string) (dynamic, idle energy.Microjoules, cpu time.Duration) {
	for i := range batches {
		for _, s := range batches[i].Shares {
			if s.ID == consumer {
				dynamic, idle, cpu = dynamic+s.Dynamic, idle+s.Idle, cpu+s.CPU
			}
		}
	}
	return dynamic, idle, cpu
}

// checkLimits verifies that the pods used as much CPU as their limits allow.
func (m *metering) checkLimits(t *testing.T) {
	t.Helper()
	for i, p := range m.pods {
		used := 1000 * m.cpu[i].Seconds() / (m.to - m.from).Seconds()
		stopped, periods, err := throttled(p.limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("pod %s: %.1fm of CPU according to the kernel, throttled in %d of %d periods", p.pod.Name, used,
			stopped, periods)
		if off := used/float64(p.milli) - 1; stopped == 0 || math.Abs(off) > tolerance {
			t.Errorf("pod %s used %.1fm of CPU, want its limit %dm", p.pod.Name, used, p.milli)
		}
	}
}

// checkRatio compares the ratio of dynamic energy with that of CPU time and the ratio of idle energy with that of
// CPU requests.
func (m *metering) checkRatio(t *testing.T) {
	t.Helper()
	for mode, want := range map[string]float64{
		"dynamic": m.cpu[0].Seconds() / m.cpu[1].Seconds(),
		"idle":    float64(m.pods[0].milli) / float64(m.pods[1].milli),
	} {
		got := m.joules[0][mode] / m.joules[1][mode]
		t.Logf("%-7s energy: %.2f J and %.2f J, ratio %.4f, want %.4f", mode, m.joules[0][mode], m.joules[1][mode], got,
			want)
		if !(math.Abs(got/want-1) <= tolerance) {
			t.Errorf("ratio of %s energy = %.4f, want %.4f within %v %%", mode, got, want, 100*tolerance)
		}
	}
}

// checkBatches compares the pushed batches with the CPU time of the kernel and checks their quality and
// completeness.
func (m *metering) checkBatches(t *testing.T) {
	t.Helper()
	var measured, unknown energy.Microjoules
	for i := range m.batches {
		b := &m.batches[i]
		measured, unknown = measured+b.Measured, unknown+b.Unknown
		if b.Quality != energy.Estimated || !strings.Contains(b.Source, "model") {
			t.Errorf("batch %d has source %q and quality %v, want an estimate of a model", b.First, b.Source, b.Quality)
		}
		if b.Stream.Node != nodeName || b.Unmeasured != 0 {
			t.Errorf("unexpected batch %d of node %s with %v unmeasured", b.First, b.Stream.Node, b.Unmeasured)
		}
	}
	t.Logf("%d batches cover %v: %v measured, %v unknown", len(m.batches), (m.to - m.from).Round(time.Millisecond),
		measured, unknown)
	if unknown*1000 > measured {
		t.Errorf("%v of %v are unknown, want at most 0.1 %%", unknown, measured)
	}
	for i, p := range m.pods {
		_, _, cpu := sum(m.batches, energy.ContainerID(string(p.pod.UID), p.id))
		if off := cpu.Seconds()/m.cpu[i].Seconds() - 1; math.Abs(off) > 0.01 {
			t.Errorf("CPU time of pod %s = %v according to the agent, want %v as in the kernel",
				p.pod.Name, cpu, m.cpu[i])
		}
	}
}

// checkEnded verifies that no CPU time is lost when the pods end. The CPU time attributed to the pods since before
// their start must equal that of their common control group.
func (a *agent) checkEnded(t *testing.T, all *witness, pods ...*burner) {
	t.Helper()
	time.Sleep(2 * time.Second) // one more tick
	if err := a.forward(t.Context()); err != nil {
		t.Fatal(err)
	}
	batches := a.sink.got(t)
	booked, ended := time.Duration(0), map[string]bool{}
	for i := range batches {
		for _, s := range batches[i].Shares {
			if uid, _, ok := energy.PodOf(s.ID); ok &&
				(uid == string(pods[0].pod.UID) || uid == string(pods[1].pod.UID)) {
				booked += s.CPU
				ended[s.ID] = ended[s.ID] || s.Ended
			}
		}
	}
	for _, p := range pods {
		if id := energy.ContainerID(string(p.pod.UID), p.id); !ended[id] {
			t.Errorf("no batch reports the end of container %s of pod %s", id, p.pod.Name)
		}
	}
	used := all.between(t, batches[0].StartSinceBoot, batches[len(batches)-1].EndSinceBoot)
	t.Logf("CPU time attributed to finished pods = %v, used %v", booked, used)
	if math.Abs(booked.Seconds()/used.Seconds()-1) > 0.01 {
		t.Errorf("CPU time attributed to finished pods = %v, want %v", booked, used)
	}
}
