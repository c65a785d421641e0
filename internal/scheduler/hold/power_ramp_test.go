package hold

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// let is a release with its time and power.
type let struct {
	at    time.Duration
	watts float64
}

// most returns the maximum over all intervals [t, t+τ] of the released power in the interval minus rate·τ.
func most(all []let, rate float64) (beyond float64) {
	for i := range all {
		sum := 0.0
		for _, l := range all[i:] {
			sum += l.watts
			beyond = max(beyond, sum-rate*(l.at-all[i].at).Seconds())
		}
	}
	return beyond
}

// TestRampIsKept verifies that in any interval, early releases add at most the power allowed by the ramp plus that
// of one second or of the largest Job. Deadlines are met regardless, and a Job that exceeds the power of one second
// is released eventually.
//
//test:norace
func TestRampIsKept(t *testing.T) {
	const ramp = 500
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		watts := map[types.UID]energy.Watts{}
		q := newQueue(kindPod, newPodPace(), unbounded(), newLimits(0, ramp))
		q.watts = func(h *hold) energy.Watts { return watts[h.UID] }
		deadline := map[types.UID]time.Duration{}
		largest := 0.0
		const n = 150
		for i := range n {
			end := time.Hour
			if random.IntN(4) == 0 {
				end = time.Duration(30+random.IntN(60)) * time.Second
			}
			h := heldUntil(strconv.Itoa(i), time.Duration(random.IntN(60))*time.Second, end)
			h.rank = int64(i)
			draw := 200 * random.Float64()
			if random.IntN(30) == 0 {
				draw = 3000
			}
			watts[h.UID], deadline[h.UID] = energy.Watts(draw), end
			largest = max(largest, draw)
			q.add(h)
		}
		var early []let
		count := 0
		for now := time.Duration(0); now < 10*time.Minute; now += 20 * time.Millisecond {
			must := forced(q, epoch.Add(now))
			for _, h := range q.due(epoch.Add(now), true) {
				count++
				if now > deadline[h.UID] {
					t.Fatalf("seed %d: %s is released at %v, after its deadline %v", seed, h.UID, now, deadline[h.UID])
				}
				if !must[h] {
					early = append(early, let{at: now, watts: float64(watts[h.UID])})
				}
				q.remove(h)
			}
		}
		if count != n {
			t.Fatalf("seed %d: %d of %d holds are released in ten minutes", seed, count, n)
		}
		if beyond, allowed := most(early, ramp), max(ramp*burst.Seconds(), largest); beyond > allowed+1e-6 {
			t.Fatalf("seed %d: early releases exceed the ramp by %.0f W, want at most %.0f W", seed, beyond, allowed)
		}
	}
}

// TestReleaseRateIsKept verifies that the release rate is not exceeded in any interval, and that it is fully used.
//
//test:norace
func TestReleaseRateIsKept(t *testing.T) {
	for _, rate := range []float64{0.4, 7, 150} {
		q := newQueue(kindPod, newPodPace(), unbounded(), newLimits(rate, 0))
		const seconds = 60
		for i := range int(rate*seconds) + 200 {
			h := heldUntil(strconv.Itoa(i), 0, time.Hour)
			q.add(h)
		}
		var all []let
		for now := time.Duration(0); now < seconds*time.Second; now += minPause {
			for _, h := range q.due(epoch.Add(now), true) {
				all = append(all, let{at: now, watts: 1})
				q.remove(h)
			}
		}
		if beyond := most(all, rate); beyond > max(rate*burst.Seconds(), 1)+1e-6 {
			t.Errorf("at a rate of %v per second, the limit is exceeded by %.1f", rate, beyond)
		}
		if want := rate*seconds - 1; float64(len(all)) < want {
			t.Errorf("at a rate of %v per second, %d holds are released in a minute, want %.0f", rate, len(all), want)
		}
	}
}

// TestDeadlinesUseUpTheRamp verifies that releases at deadlines consume tokens, so that other releases are delayed,
// but do not leave a debt.
func TestDeadlinesUseUpTheRamp(t *testing.T) {
	b := newBucket(500)
	b.force(epoch, 100_000)
	if b.holds(epoch, 1) {
		t.Error("tokens are left")
	}
	if !b.holds(epoch.Add(time.Second), 500) {
		t.Error("the tokens after a second are not those of a second")
	}
	if wait := b.wait(epoch.Add(time.Second), 500); wait != 0 {
		t.Errorf("the wait is %v", wait)
	}
}

// TestAbsurdJobsOweLittle verifies that a Job that requests more power than any cluster has delays others for
// minutes rather than forever.
func TestAbsurdJobsOweLittle(t *testing.T) {
	l := newLimits(0, 500)
	absurd := energy.Watts(1e15)
	if !l.allow(epoch, absurd) {
		t.Fatal("a full bucket does not allow a release")
	}
	if l.allow(epoch.Add(time.Minute), 100) {
		t.Error("the bucket has no debt")
	}
	at := l.when(epoch, 100)
	if at.After(epoch.Add(maxDebt + burst)) {
		t.Errorf("the next release is allowed at %v", at)
	}
	if !l.allow(at, 100) {
		t.Errorf("no release is allowed at %v, contrary to the announced time", at)
	}
}
