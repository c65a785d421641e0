package hold

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func heldUntil(name string, start, latest time.Duration) *hold {
	return &hold{
		HeldJob: kube.HeldJob{UID: types.UID(name)}, start: epoch.Add(start), latest: epoch.Add(latest), basis: fixed,
	}
}

func jobQueue() *queue { return newQueue(kindJob, newJobPace(), newJobCongestion(), newLimits(0, 0)) }

func podQueue() *queue { return newQueue(kindPod, newPodPace(), newPodCongestion(), newLimits(0, 0)) }

// drain releases due holds at every step of a virtual clock, and returns the release time of each hold. Released
// holds start immediately.
func drain(q *queue, early bool, until, step time.Duration) map[types.UID]time.Duration {
	at := map[types.UID]time.Duration{}
	for t := time.Duration(0); t <= until; t += step {
		for _, h := range q.due(epoch.Add(t), early) {
			at[h.UID] = t
			q.remove(h)
		}
	}
	return at
}

func TestDeadlinesBeginEarlyEnoughForAllToStart(t *testing.T) {
	q := jobQueue()
	p := q.pace
	const n = 200
	for i := range n {
		q.add(heldUntil(strconv.Itoa(i), time.Minute, time.Minute))
	}
	at := drain(q, false, 2*time.Minute, 10*time.Millisecond)
	first := time.Minute - p.lead() - (n-1)*p.gap() + standbyLag
	if len(at) != n {
		t.Fatalf("released %d of %d", len(at), n)
	}
	perSecond := map[time.Duration]int{}
	for uid, when := range at {
		if when > time.Minute-p.lead()+standbyLag+10*time.Millisecond || when < first {
			t.Errorf("%s was released at %v, want between %v and %v", uid, when, first, time.Minute-p.lead())
		}
		perSecond[when.Truncate(time.Second)]++
	}
	for second, count := range perSecond {
		if float64(count) > p.rate+1 {
			t.Errorf("%d releases in second %v, want %v", count, second, p.rate)
		}
	}
}

// TestDeadlinesBeatEveryLimit verifies that no hold is released after its deadline with any combination of holds
// and limits, both in the Lease holder and in a standby.
func TestDeadlinesBeatEveryLimit(t *testing.T) {
	for _, early := range []bool{true, false} {
		for seed := range uint64(100) {
			random := rand.New(rand.NewPCG(seed, 0))
			q := newQueue(kindJob, &pace{rate: 1, max: 10, initial: time.Second}, newJobCongestion(),
				newLimits(0.5, 100))
			q.watts = func(*hold) energy.Watts { return 1000 }
			q.congestion.inFlight = 1000 // no further starts are observed
			latest := map[types.UID]time.Duration{}
			for i := range 100 {
				end := time.Duration(random.IntN(60)) * time.Second
				start := time.Duration(random.Int64N(int64(end) + 1))
				h := heldUntil(strconv.Itoa(i), start, end)
				if random.IntN(10) == 0 {
					h.state = freed
				}
				h.rolls, h.rank = random.IntN(5) == 0, random.Int64()
				q.add(h)
				latest[h.UID] = end
			}
			at := drain(q, early, 61*time.Second, 10*time.Millisecond)
			for uid, end := range latest {
				if when, ok := at[uid]; !ok || when > end {
					t.Fatalf("seed %d: %s was released at %v, want at most %v", seed, uid, when, end)
				}
			}
		}
	}
}

func TestStandbyKeepsDeadlinesOnly(t *testing.T) {
	q := jobQueue()
	q.add(heldUntil("job", 5*time.Second, time.Minute))
	at := drain(q, false, 2*time.Minute, 10*time.Millisecond)["job"]
	if want := time.Minute - q.pace.lead() + standbyLag; at != want {
		t.Errorf("released at %v, want %v", at, want)
	}
}

func TestNextNamesTheInstantThatDueActsOn(t *testing.T) {
	for _, early := range []bool{true, false} {
		q := podQueue()
		q.add(heldUntil("a", 20*time.Second, time.Minute))
		q.add(heldUntil("b", 40*time.Second, 50*time.Second))
		late := heldUntil("c", 0, 45*time.Second)
		q.add(late)
		q.release(late)
		q.fail(late, epoch.Add(10*time.Second))
		for now := epoch; len(q.byUID) > 0; {
			next := q.next(now, early)
			if got := q.due(next.Add(-time.Millisecond), early); len(got) > 0 {
				t.Fatalf("early=%v: %s is due before %v", early, got[0].UID, next)
			}
			due := q.due(next, early)
			if len(due) == 0 {
				t.Fatalf("early=%v: no hold is due at %v", early, next)
			}
			q.remove(due[0])
			now = next
		}
	}
}

func TestMovedDeadlineIsKept(t *testing.T) {
	q := podQueue()
	h := heldUntil("a", time.Minute, time.Minute)
	q.add(h)
	q.add(heldUntil("b", time.Minute, time.Minute))
	q.spread()
	q.setLatest(h, epoch.Add(10*time.Second))
	if at := drain(q, true, 2*time.Minute, 10*time.Millisecond)["a"]; at > 10*time.Second {
		t.Errorf("released at %v, want at most 10s", at)
	}
}

// TestDeadlinesStayInOrder compares the order of deadlines with that of a plain sort and the release times with
// their definition, while random holds are added and removed.
func TestDeadlinesStayInOrder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 2))
		var d deadlines
		var there []*hold
		for range 300 {
			switch random.IntN(6) {
			case 0:
				if len(there) > 0 {
					i := random.IntN(len(there))
					if !d.drop(there[i]) || d.drop(there[i]) {
						t.Fatalf("seed %d: a hold in the order is not dropped exactly once", seed)
					}
					there = slices.Delete(there, i, i+1)
				}
			case 1:
				d.sort()
			default:
				h := heldUntil(strconv.Itoa(random.IntN(1e9)), 0, time.Duration(random.IntN(20))*time.Second)
				h.rank = random.Int64N(3)
				d.add(h)
				there = append(there, h)
			}
		}
		d.sort()
		const lead, gap = 3 * time.Second, 700 * time.Millisecond
		d.spread(lead, gap)
		slices.SortFunc(there, func(a, b *hold) int { return deadlineOf(a).compare(deadlineOf(b)) })
		var sorted []*deadline
		for _, e := range d.all() {
			sorted = append(sorted, e)
		}
		if len(sorted) != len(there) {
			t.Fatalf("seed %d: the order contains %d holds, want %d", seed, len(sorted), len(there))
		}
		for i, h := range there {
			by := h.latest.Add(-lead)
			for k := i + 1; k < len(there); k++ {
				by = timeutil.Earlier(by, there[k].latest.Add(-lead-time.Duration(k-i)*gap))
			}
			if e := sorted[i]; e.hold != h || e.by != by.UnixNano() {
				t.Fatalf("seed %d: entry %d is %s at %v, want %s at %v", seed, i, e.hold.UID, time.Unix(0, e.by),
					h.UID, by)
			}
		}
	}
}

// BenchmarkTurnOfManyHolds measures an iteration with 100,000 holds, both without changes and after a single
// release.
func BenchmarkTurnOfManyHolds(b *testing.B) {
	for name, changes := range map[string]bool{"quiet": false, "changed": true} {
		b.Run(name, func(b *testing.B) {
			q := jobQueue()
			for i := range 100_000 {
				q.add(heldUntil(strconv.Itoa(i), time.Hour, time.Hour+time.Duration(i*7919%100_000)*time.Second))
			}
			q.spread()
			h := q.order.sorted[50_000].hold
			for b.Loop() {
				if changes {
					q.remove(h)
					q.add(h)
				}
				q.due(epoch.Add(-time.Hour), true)
				q.next(epoch.Add(-time.Hour), true)
			}
		})
	}
}

// TestManyRetriesTakeNoTime verifies that a hundred thousand failed releases are retried without delay when the API
// server becomes available again.
func TestManyRetriesTakeNoTime(t *testing.T) {
	q := jobQueue()
	const n = 100_000
	for i := range n {
		h := heldUntil(strconv.Itoa(i), 0, 0)
		h.rank = int64(i)
		q.add(h)
	}
	for i, h := range q.due(epoch, true) {
		q.fail(h, epoch.Add(time.Duration(1+i%2)*time.Second))
	}
	began := time.Now()
	if first := len(q.due(epoch.Add(time.Second), true)); first != n/2 {
		t.Errorf("%d releases are retried after a second, want %d", first, n/2)
	}
	if rest := len(q.due(epoch.Add(2*time.Second), true)); rest != n/2 {
		t.Errorf("%d releases are retried after two seconds, want %d", rest, n/2)
	}
	// a tenth of a second; a minute if each hold is compared with all others
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("all retries took %v", took)
	}
}
