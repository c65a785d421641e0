package hold

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

func TestHoldsAndReleasesAreRecorded(t *testing.T) {
	var mu sync.Mutex
	var recorded []record.Entry
	listen := func(_ *world, c *Config) {
		recorded = nil
		c.Record = func(e *record.Entry) {
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, *e)
		}
	}
	during(t, listen, func(w *world) {
		began := time.Now()
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		w.job("at-once", marked(time.Minute)) // the window starts after its deadline
		bubble.Advance(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(recorded) != 2 {
			t.Fatalf("recorded %d times: %+v", len(recorded), recorded)
		}
		held, released := recorded[0], recorded[1]
		if held.Action != record.Hold || held.OwnerKind != "Job" || held.Namespace != "default" || held.Owner != "j" ||
			held.UID == "" ||
			held.Reason != "CheaperLater" || held.Saving <= 0 || held.Saving > 1 || held.Saved <= 0 {
			t.Errorf("the record of the hold is %+v", held)
		}
		if until := held.Start.Sub(began); until < 59*time.Minute || until > 61*time.Minute ||
			held.At.Sub(began) > time.Minute {
			t.Errorf("held after %v until %v", held.At.Sub(began), until)
		}
		strategy, err := strategy.New(held.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		if d := strategy.Plan(held.Question)[0]; !d.Window.Start.Equal(held.Start) ||
			d.Reason.Kind.String() != held.Reason {
			t.Errorf("the replayed decision is %+v", d)
		}
		if released.Action != record.Release || released.UID != held.UID || released.Reason != reasonReleased ||
			released.At.Before(held.Start.Add(-time.Minute)) {
			t.Errorf("the record of the release is %+v", released)
		}
	})
}

// TestMovedHoldsAreRecordedAgain verifies that a hold is recorded again only if its window changes.
func TestMovedHoldsAreRecordedAgain(t *testing.T) {
	var mu sync.Mutex
	var starts []time.Time
	listen := func(_ *world, c *Config) {
		c.Record = func(e *record.Entry) {
			mu.Lock()
			defer mu.Unlock()
			if e.Action == record.Hold {
				starts = append(starts, e.Start)
			}
		}
	}
	during(t, listen, func(w *world) {
		began := time.Now()
		for _, after := range []time.Duration{time.Hour, time.Hour, 2 * time.Hour} {
			w.green(after - time.Since(began).Truncate(time.Minute))
			if after == time.Hour && len(starts) == 0 {
				w.job("j", marked(3*time.Hour))
			}
			bubble.Advance(2 * time.Minute)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(starts) != 2 || starts[1].Sub(starts[0]) < 50*time.Minute {
			t.Errorf("the recorded starts are %v", starts)
		}
	})
}

// TestFreedJobsAreRecorded verifies that the release of a held Job is recorded if the owner was notified of the hold
// before the Job became invalid or exempt, and that the owner is notified of invalid annotations.
func TestFreedJobsAreRecorded(t *testing.T) {
	invalid := map[string]string{v1alpha1.AnnotationStrategy: "enrgy"}
	for name, c := range map[string]struct {
		change    map[string]string
		unplanned bool // the annotations change before the policies are loaded
		events    string
		record    string  // reason of the recorded release, "" if none is recorded
		refused   float64 // number of refusals because of invalid annotations
	}{
		"invalid":           {invalid, false, "Normal Held Warning NoEffect", reasonReleased, 0},
		"invalid unplanned": {invalid, true, "Warning NoEffect", "", 1},
		"exempt": {
			map[string]string{"helm.sh/hook": "post-install"}, false, "Normal Held Normal Released", reasonReleased, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var recorded atomic.Value
			recorded.Store("")
			prepare := func(_ *world, config *Config) {
				config.Record = func(e *record.Entry) {
					if e.Action == record.Release {
						recorded.Store(e.Reason)
					}
				}
			}
			during(t, prepare, func(w *world) {
				if w.green(time.Hour); c.unplanned {
					w.see(kube.Unsettled())
				}
				w.job("j", marked(3*time.Hour))
				bubble.Advance(time.Minute)
				noEffect, notHeld := decisions(record.Refuse, reasonNoEffect), decisions(record.Refuse, reasonNotHeld)
				w.annotate(c.change, "j")
				w.wantJob("j", 0, time.Second)
				bubble.Advance(time.Second)
				events := w.reported("j", func(e *eventsv1.Event) string { return e.Type + " " + e.Reason })
				if events != c.events {
					t.Errorf("events are %q, want %q", events, c.events)
				}
				if got := recorded.Load(); got != c.record {
					t.Errorf("the record of the release is %q, want %q", got, c.record)
				}
				noEffect = decisions(record.Refuse, reasonNoEffect) - noEffect
				if notHeld = decisions(record.Refuse, reasonNotHeld) - notHeld; noEffect != c.refused || notHeld != 0 {
					t.Errorf("%v refusals because of invalid annotations are counted, want %v; %v others, want 0",
						noEffect, c.refused, notHeld)
				}
			})
		})
	}
}

// decisions returns the number of counted decisions with the default strategy.
func decisions(action, reason string) float64 {
	of, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "kubenergy_decisions_total",
		map[string]string{"action": action, "strategy": "carbon+guarded"}, "reason")
	if err != nil {
		return 0 // no decision has been counted yet
	}
	return of[reason]
}

// TestDecisionsAreCounted verifies that decisions are counted by strategy and reason, even without recording, and
// that the lateness of releases is measured.
func TestDecisionsAreCounted(t *testing.T) {
	during(t, nil, func(w *world) {
		late := func() (n uint64, sum float64) {
			all, err := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer,
				"kubenergy_release_lateness_seconds", map[string]string{"kind": kindJob})
			if err != nil {
				return 0, 0
			}
			return all.GetAggregatedSampleCount(), all.GetAggregatedSampleSum()
		}
		wants := [][2]string{
			{record.Hold, "CheaperLater"},
			{record.Release, reasonReleased},
			{record.Refuse, "NothingToSave"},
			{record.Refuse, reasonNoEffect},
		}
		var before []float64
		for _, w := range wants {
			before = append(before, decisions(w[0], w[1]))
		}
		releasedBefore, sumBefore := late()
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		w.job("at-once", marked(time.Minute)) // the window starts after its deadline
		w.job("wrong", map[string]string{v1alpha1.AnnotationAllowedDelay: "soon"})
		others := decisions(record.Refuse, reasonNotHeld)
		// resumed by its owner
		w.job("resumed", marked(3*time.Hour), func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
		bubble.Advance(2 * time.Hour)
		if got := decisions(record.Refuse, reasonNotHeld) - others; got != 0 {
			t.Errorf("%v refusals are counted for a Job resumed by its owner", got)
		}
		for i, w := range wants {
			if got := decisions(w[0], w[1]) - before[i]; got != 1 {
				t.Errorf("%v was counted %v times", w, got)
			}
		}
		if n, sum := late(); n != releasedBefore+1 || sum-sumBefore > 60 {
			t.Errorf("lateness of %d releases is %v s, before of %d releases %v s", n, sum, releasedBefore, sumBefore)
		}
	})
}
