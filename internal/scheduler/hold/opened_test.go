package hold

import (
	"context"
	"fmt"
	"testing"
	"time"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// TestDeadlinesCallFirst verifies that an opened hold is released at its deadline before requests that are not
// urgent.
func TestDeadlinesCallFirst(t *testing.T) {
	b := newBench(t, "j", marked(3*time.Hour))
	b.view = forecastOf(t, steps(12, 100))
	b.turn(epoch)
	b.loop.jobs.congestion.inFlight = 1000
	if b.turn(epoch.Add(2 * time.Hour)); b.h.state != opened {
		t.Fatalf("the state is %d, want opened", b.h.state)
	}
	b.loop.leads = true
	b.loop.goes = func(func(context.Context)) {}
	b.loop.calls.running = parallelCalls
	b.loop.releaseDueJobs(klog.Background(), epoch.Add(3*time.Hour))
	if len(b.loop.calls.waiting[0]) != 1 {
		t.Error("the release at the deadline is not urgent")
	}
}

// TestLimitsChangeWhileATurnIsAwaited verifies that policy changes apply to opened holds. A shorter delay results
// in an earlier deadline.
func TestLimitsChangeWhileATurnIsAwaited(t *testing.T) {
	b := newBench(t, "j", marked(10*time.Hour))
	b.view = forecastOf(t, steps(12, 100))
	b.turn(epoch)
	b.loop.jobs.congestion.inFlight = 1000
	if b.turn(epoch.Add(2 * time.Hour)); b.h.state != opened {
		t.Fatalf("the state is %d, want opened", b.h.state)
	}
	previous := b.h.start
	b.view = forecastOf(t, steps(40, 1))
	if b.turn(epoch.Add(2 * time.Hour)); b.h.state != opened || !b.h.start.Equal(previous) {
		t.Error("a new forecast closes an open window")
	}
	limited, err := (&kube.Contents{Defaults: policy.Defaults{
		Terms:    policy.Terms{ExpectedDuration: 10 * time.Minute},
		MaxDelay: 3 * time.Hour,
	}}).View()
	if err != nil {
		t.Fatal(err)
	}
	b.view = limited
	b.turn(epoch.Add(2 * time.Hour))
	if want := epoch.Add(3 * time.Hour); b.h.latest.After(want) {
		t.Errorf("the deadline is %v, want %v", b.h.latest, want)
	}
}

// TestWindowsStayOpenUnderANewLeader verifies that a standby that becomes the leader during a release continues it,
// regardless of new forecasts.
func TestWindowsStayOpenUnderANewLeader(t *testing.T) {
	b := newBench(t, "j", marked(10*time.Hour))
	b.view = forecastOf(t, steps(12, 100))
	standby := func(now time.Time) {
		for b.loop.planAll(klog.Background(), now) {
		}
		b.loop.jobs.due(now, false)
	}
	standby(epoch)
	standby(epoch.Add(2 * time.Hour))
	b.view = forecastOf(t, steps(40, 1))
	standby(epoch.Add(2*time.Hour + time.Minute))
	if !b.turn(epoch.Add(2*time.Hour + 2*time.Minute)) {
		t.Errorf("the hold lasts until %v, although its window opened at %v", b.h.start, epoch.Add(2*time.Hour))
	}
}

// TestNotesPutOffAreToldOldestFirst verifies that postponed notes are written in the order of the decisions.
func TestNotesPutOffAreToldOldestFirst(t *testing.T) {
	t.Cleanup(panics.Reset)
	b := newBench(t, "j0", marked(3*time.Hour))
	names := []types.UID{"j0"}
	for i := range 20 {
		name := fmt.Sprint("j", i+1)
		b.saw(name, marked(3*time.Hour))
		names = append(names, types.UID(name))
	}
	b.view = forecastOf(t, steps(12, 100))
	fails := false
	b.loop.c.Record = func(*record.Entry) {
		if fails {
			panic("write failed")
		}
	}
	b.turn(epoch)
	b.loop.leads, b.loop.notes = true, make(chan note, 4)
	for range 3 {
		b.loop.notes <- nil
	}
	for _, name := range names {
		b.loop.explain(b.loop.jobs.byUID[name])
	}
	for range 3 {
		<-b.loop.notes
	}
	b.loop.flushNotes()
	reported := func(before int) {
		t.Helper()
		for i, name := range names {
			if reported := !b.loop.jobs.byUID[name].reported.IsZero(); reported != (i < before) {
				t.Errorf("the hold %s is reported: %v", name, reported)
			}
		}
	}
	reported(2)
	// A panic affects only a single note.
	fails = true
	for before := 3; before < 6; before++ {
		for len(b.loop.notes) > 0 {
			<-b.loop.notes
		}
		func() {
			defer func() { _ = recover() }()
			b.loop.flushNotes()
		}()
		reported(before)
	}
}

// TestStartAheadOfThePlan verifies that the event of a hold that a joint plan starts early does not claim that its
// window has started.
func TestStartAheadOfThePlan(t *testing.T) {
	for early, want := range map[time.Duration]string{
		time.Hour: "started ahead of its planned start: " + sched.Reason{Kind: sched.Planned}.String(),
		0:         "the planned window has started",
	} {
		b := newBench(t, "j", marked(10*time.Hour))
		client := fake.NewClientset()
		b.loop.c.Client, b.loop.leads = client, true
		now := epoch.Add(2 * time.Hour)
		b.h.start, b.h.reported, b.h.left = now.Add(early), now.Add(early), opened
		b.h.reason = unique.Make(sched.Reason{Kind: sched.Planned}.String())
		b.loop.released(b.h, now, true)
		if err := (<-b.loop.releaseEvents)(t.Context()); err != nil {
			t.Fatal(err)
		}
		events, err := client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(events.Items) != 1 || events.Items[0].Note != want {
			t.Errorf("%v early: %v, %v, want %q", early, events.Items, err, want)
		}
	}
}
