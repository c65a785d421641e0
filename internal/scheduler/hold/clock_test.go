package hold

import (
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// TestClockIsSetBack verifies that setting the clock back by an hour does not block the loop for an hour. Missing
// starts still time out as usual, and other holds get their turn.
func TestClockIsSetBack(t *testing.T) {
	l := New(Config{View: kube.Unsettled})
	f := l.jobs.congestion
	turn := func(ahead time.Duration) time.Time {
		l.clock = clockAhead(ahead)
		l.iterate(klog.Background())
		return l.clock.Now()
	}
	now := turn(time.Hour)
	f.byRate = true
	for i := range 8 {
		h := heldUntil(string(rune('a'+i)), 0, time.Hour)
		h.queue = l.jobs
		l.awaitStart(h, now, true)
	}
	turn(0)
	now = turn(2 * f.timeout())
	if f.inFlight != 0 || !f.mayRelease(now, 0) {
		t.Errorf("%d missing starts are still awaited, want 0", f.inFlight)
	}
	if next := f.nextRelease(now); next.After(now) {
		t.Errorf("the next release is due in %v, want immediately", next.Sub(now))
	}
}

// TestStartsThatWaitForRoom verifies that a start delayed by missing capacity is not used as a measurement of the
// start latency.
func TestStartsThatWaitForRoom(t *testing.T) {
	l := New(Config{View: kube.Unsettled})
	at := time.Duration(0)
	turn := func(wait time.Duration) time.Time {
		at += wait
		l.clock = clockAhead(at)
		l.iterate(klog.Background())
		return l.clock.Now()
	}
	for i := range 2 * paceEnough {
		h := heldUntil(string(rune('A'+i)), 0, time.Hour)
		h.queue = l.jobs
		l.awaitStart(h, turn(10*time.Second), true)
		if i%10 == 0 {
			turn(100 * time.Millisecond)
			l.Started(h.UID, false)
			turn(8 * time.Second)
		}
		turn(100 * time.Millisecond)
		l.Started(h.UID, true)
	}
	turn(time.Second)
	if lead := l.jobs.pace.lead(); lead > time.Second {
		t.Errorf("the lead of Jobs is %v, although Jobs start in a tenth of a second if there is capacity", lead)
	}
}
