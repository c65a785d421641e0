package place

import (
	"context"
	"errors"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// door is a Gate that holds every pod until a fixed time.
type door struct {
	until    time.Time
	closed   bool
	broken   bool
	latest   map[types.UID]time.Time // by Job
	activate func(map[string]*v1.Pod)
}

func (d *door) Hold(*v1.Pod) (time.Time, bool) {
	if d.broken {
		panic("gate failed")
	}
	return d.until, d.closed
}

func (*door) Holds(types.UID) bool { return false }

func (d *door) LatestStart(job types.UID) (time.Time, bool) {
	latest, known := d.latest[job]
	return latest, known
}

func (*door) WatchPods(cache.SharedIndexInformer) {}

func (d *door) Nodes(func(*kube.View, time.Time) []sched.Node) {}

func (d *door) SetActivator(activate func(map[string]*v1.Pod)) { d.activate = activate }

type handle struct {
	fwk.Handle
	activated int
}

func (*handle) ProfileName() string { return "default-scheduler" }

func (h *handle) Activate(_ klog.Logger, pods map[string]*v1.Pod) { h.activated += len(pods) }

func TestPreEnqueue(t *testing.T) {
	t.Cleanup(panics.Reset)
	now := noon
	for _, tc := range []struct {
		name string
		gate Gate
		want fwk.Code
	}{
		{"no gate", nil, fwk.Success},
		{"open", &door{until: now.Add(time.Hour)}, fwk.Success},
		{"held", &door{until: now.Add(time.Hour), closed: true}, fwk.UnschedulableAndUnresolvable},
		{"held to the last moment", &door{until: now.Add(1), closed: true}, fwk.UnschedulableAndUnresolvable},
		{"the gate forgot the deadline", &door{until: now, closed: true}, fwk.Success},
		{"the gate returns no deadline", &door{closed: true}, fwk.Success},
		{"the gate panics", &door{until: now.Add(time.Hour), closed: true, broken: true}, fwk.Success},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pl, err := New(Deps{Gate: tc.gate, Clock: func() time.Time { return now }})[HoldName](t.Context(), nil,
				&handle{})
			if err != nil {
				t.Fatal(err)
			}
			if got := pl.(*Hold).PreEnqueue(t.Context(), newPod()); got.Code() != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestHoldWaitsForNoEvent(t *testing.T) {
	events, err := (&Hold{}).EventsToRegister(t.Context())
	if err != nil || events == nil || len(events) != 0 {
		t.Errorf("events %v, %v, want an empty list", events, err)
	}
}

func TestActivatorNeedsARunningQueue(t *testing.T) {
	gate, h := &door{}, &handle{}
	pl, err := New(Deps{Gate: gate})[HoldName](t.Context(), nil, h)
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*v1.Pod{"lab/p": newPod()}
	gate.activate(pods) // kube-scheduler is not complete yet
	if h.activated != 0 {
		t.Error("pods are activated before there is a queue")
	}
	pl.(*Hold).PreEnqueue(t.Context(), newPod())
	gate.activate(pods)
	if h.activated != 1 {
		t.Errorf("%d pods activated, want 1", h.activated)
	}
}

// TestAnyProfileShowsThatTheQueueWorks verifies that pods of any profile mark the shared queue as running, and that
// the gate uses the last activator, which may belong to a profile without pods.
func TestAnyProfileShowsThatTheQueueWorks(t *testing.T) {
	gate, h := &door{}, &handle{}
	factory := New(Deps{Gate: gate})[HoldName]
	var first fwk.Plugin
	for range 3 {
		pl, err := factory(t.Context(), nil, h)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = pl
		}
	}
	first.(*Hold).PreEnqueue(t.Context(), newPod())
	gate.activate(map[string]*v1.Pod{"lab/p": newPod()})
	if h.activated != 1 {
		t.Errorf("%d pods activated, want 1", h.activated)
	}
}

// porch is a door that counts calls of WatchPods.
type porch struct {
	door
	watched int
}

func (p *porch) WatchPods(informer cache.SharedIndexInformer) {
	if informer != nil {
		p.watched++
	}
}

func (*handle) SharedInformerFactory() informers.SharedInformerFactory {
	return informers.NewSharedInformerFactory(fake.NewClientset(), 0)
}

func TestGateWatchesPodsOnce(t *testing.T) {
	gate := &porch{}
	factory := New(Deps{Gate: gate})[HoldName]
	for range 2 { // two profiles
		if _, err := factory(t.Context(), nil, &handle{}); err != nil {
			t.Fatal(err)
		}
	}
	if gate.watched != 1 {
		t.Errorf("WatchPods was called %d times, want 1", gate.watched)
	}
}

func (*handle) KubeConfig() *rest.Config { return &rest.Config{Host: "here"} }

func TestLateDepsAreBuiltOnce(t *testing.T) {
	built := 0
	factories := NewLate(func(_ context.Context, config *rest.Config) (Deps, error) {
		built++
		if config.Host != "here" {
			return Deps{}, errors.New("nowhere")
		}
		return Deps{}, nil
	})
	for range 2 { // two profiles
		for name, factory := range factories {
			if pl, err := factory(t.Context(), nil, &handle{}); err != nil || pl.Name() != name {
				t.Errorf("plugin %s: %v, %v", name, pl, err)
			}
		}
	}
	if built != 1 {
		t.Errorf("built %d times", built)
	}
	broken := NewLate(func(context.Context, *rest.Config) (Deps, error) { return Deps{}, errors.New("no client") })
	for range 2 {
		if _, err := broken[HoldName](t.Context(), nil, &handle{}); err == nil {
			t.Error("no error")
		}
	}
}

func BenchmarkPreEnqueue(b *testing.B) {
	pl, err := New(Deps{Gate: &door{until: time.Now().Add(time.Hour), closed: true}})[HoldName](b.Context(), nil,
		&handle{})
	if err != nil {
		b.Fatal(err)
	}
	h, pod := pl.(*Hold), newPod()
	b.ReportAllocs()
	for b.Loop() {
		h.PreEnqueue(b.Context(), pod)
	}
}
