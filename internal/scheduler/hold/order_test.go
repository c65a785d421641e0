package hold

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// long enables the long form of some tests.
var long = os.Getenv("KUBENERGY_LONG") != ""

// seeds returns the number of seeds to test a property with.
func seeds() uint64 {
	if long {
		return 10_000
	}
	return 100
}

// arrivals simulates a queue that is overloaded: in each step, holds are added with windows that are open or about
// to open.
type arrivals struct {
	q      *queue
	random *rand.Rand
	now    time.Duration
	named  int
	left   []*hold // in release order
	at     map[*hold]time.Duration
	born   map[*hold]time.Duration
	forced map[*hold]bool // released at their deadlines in the last step
}

// unbounded returns a congestion control that does not limit releases.
func unbounded() *congestion {
	return &congestion{
		size: 1e9, rate: 1, alone: time.Second, aloneMeasured: epoch.Add(1000 * time.Hour),
		lastNews: epoch.Add(1000 * time.Hour),
	}
}

// forced returns the holds that are due because of their deadlines.
func forced(q *queue, now time.Time) map[*hold]bool {
	all := map[*hold]bool{}
	q.spread()
	for h, deadline := range q.order.all() {
		if !now.Before(deadline.lastCall(true)) {
			all[h] = true
		}
	}
	return all
}

func (a *arrivals) come(priority int32, start, delay time.Duration) *hold {
	a.named++
	h := heldUntil(strconv.Itoa(a.named), a.now+start, a.now+delay)
	h.rank = rankOf(epoch.Add(a.now), priority)
	a.born[h] = a.now
	a.q.add(h)
	return h
}

func (a *arrivals) step(by time.Duration) {
	a.forced = forced(a.q, epoch.Add(a.now))
	for _, h := range a.q.due(epoch.Add(a.now), true) {
		a.left = append(a.left, h)
		a.at[h] = a.now
		a.q.remove(h)
	}
	a.now += by
}

func newArrivals(seed uint64, rate float64) *arrivals {
	return &arrivals{
		q: newQueue(kindPod, newPodPace(), unbounded(), newLimits(rate, 0)), random: rand.New(rand.NewPCG(seed, 4)),
		at: map[*hold]time.Duration{}, born: map[*hold]time.Duration{},
	}
}

// TestOldestFirst verifies promise P7: of two holds with the same priority and open windows, the younger one is not
// released first unless its deadline requires it. Therefore the rank is monotonic in the creation time.
//
//test:norace
func TestOldestFirst(t *testing.T) {
	for seed := range seeds() {
		a := newArrivals(seed, 2)
		for range 300 {
			for range a.random.IntN(4) {
				a.come(0, time.Duration(a.random.IntN(20))*time.Second,
					time.Duration(20+a.random.IntN(2000))*time.Second)
			}
			before := len(a.left)
			waiting := slices.Clone(a.q.heaps[opened].holds)
			a.step(time.Second)
			for _, h := range a.left[before:] {
				if a.forced[h] {
					continue
				}
				for _, older := range waiting {
					if older.state == opened && byRank(older, h) {
						t.Fatalf("seed %d: %s, age %v, is released before %s, age %v", seed, h.UID, a.now-a.born[h],
							older.UID, a.now-a.born[older])
					}
				}
			}
		}
	}
}

// TestNoJobStarves verifies that a hold with the lowest priority is only overtaken by objects that were created
// less than about two hours later, and by deadlines, regardless of the load, priorities and delays. The hold is
// released by its own deadline at the latest.
//
//test:norace
func TestNoJobStarves(t *testing.T) {
	const spread = (32 + 31) * perDoubling // difference between the lowest and the highest priority
	for seed := range seeds() / 50 {
		a := newArrivals(seed, 1)
		patient := a.come(-1<<31, 0, 20*time.Hour)
		hurried := a.come(-1<<31, 0, 30*time.Minute)
		must := map[*hold]bool{}
		for second := range int(5 * time.Hour / time.Second) {
			// Add 1.2 holds per second, which is more than can be released. A third of them have a short delay.
			for range 1 + max(0, second%5-3) {
				delay := 20 * time.Hour
				if a.random.IntN(3) == 0 {
					delay = time.Duration(1+a.random.IntN(3600)) * time.Second
				}
				a.come(1<<31-1, 0, delay)
			}
			a.step(time.Second)
			maps.Copy(must, a.forced)
		}
		if at, ok := a.at[hurried]; !ok || at > 30*time.Minute {
			t.Fatalf("seed %d: a hold with a delay of half an hour is released after %v, %v", seed, at, ok)
		}
		at, ok := a.at[patient]
		if !ok {
			t.Fatalf("seed %d: the oldest hold is not released", seed)
		}
		for _, h := range a.left {
			if a.at[h] < at && !must[h] && a.born[h] > spread {
				t.Fatalf("seed %d: a hold created at %v was released before the oldest hold, at %v", seed, a.born[h],
					a.at[h])
			}
		}
	}
}

func TestPrioritiesAreWorthAnHour(t *testing.T) {
	last := rankOf(epoch, -1<<31)
	for _, p := range []int32{-1 << 30, -1000, -1, 0, 1, 5, 1000, 1_000_000, 1_000_000_000, 1<<31 - 1} {
		rank := rankOf(epoch, p)
		if rank > last {
			t.Errorf("priority %d has a higher rank than a lower priority", p)
		}
		last = rank
		if p <= 1_000_000_000 && p > -1<<30 {
			if apart := time.Duration(rank - epoch.UnixNano()); apart > time.Hour || apart < -time.Hour {
				t.Errorf("priority %d is equivalent to an age of %v", p, -apart)
			}
		}
	}
	if younger := rankOf(epoch.Add(time.Hour+time.Second), 1_000_000_000); younger < rankOf(epoch, 0) {
		t.Error("the highest priority is equivalent to more than an hour of age")
	}
}
