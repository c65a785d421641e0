package hold

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func heldUntil(name string, start, latest time.Duration) *hold {
	return &hold{uid: types.UID(name), start: epoch.Add(start), latest: epoch.Add(latest), planned: true}
}

// drain releases what is due at every step of a virtual clock and returns when each hold was let go.
func drain(q *queue, early bool, until, step time.Duration) map[types.UID]time.Duration {
	at := map[types.UID]time.Duration{}
	for t := time.Duration(0); t <= until; t += step {
		for _, h := range q.due(epoch.Add(t), early) {
			at[h.uid] = t
			q.remove(h)
		}
	}
	return at
}

func TestDeadlinesBeginEarlyEnoughForAllToStart(t *testing.T) {
	p := newJobPace()
	q := newQueue(p)
	const n = 200
	for i := range n {
		q.add(heldUntil(strconv.Itoa(i), time.Minute, time.Minute))
	}
	at := drain(q, true, 2*time.Minute, 10*time.Millisecond)
	first := time.Minute - p.lead() - (n-1)*p.gap()
	if len(at) != n {
		t.Fatalf("released %d of %d", len(at), n)
	}
	perSecond := map[time.Duration]int{}
	for uid, when := range at {
		if when > time.Minute-p.lead()+10*time.Millisecond || when < first {
			t.Errorf("%s was released at %v: want from %v until %v", uid, when, first, time.Minute-p.lead())
		}
		perSecond[when.Truncate(time.Second)]++
	}
	for second, count := range perSecond {
		if float64(count) > p.rate+1 {
			t.Errorf("%d releases in second %v: want %v", count, second, p.rate)
		}
	}
}

func TestWindowsOpenAtThePaceOfTheCluster(t *testing.T) {
	p := newPodPace()
	q := newQueue(p)
	for i := range 300 {
		q.add(heldUntil(strconv.Itoa(i), 10*time.Second, time.Hour))
	}
	for uid, when := range drain(q, true, time.Minute, 5*time.Millisecond) {
		if opens := 10*time.Second - p.lead(); when < opens || when > opens+300*p.gap()+batchSpan {
			t.Errorf("%s was released at %v", uid, when)
		}
	}
	if len(q.holds) != 0 {
		t.Errorf("%d are left", len(q.holds))
	}
}

// Whatever the mix, nothing passes its deadline, in the Lease holder and in a standby.
func TestDeadlinesBeatEveryLimit(t *testing.T) {
	for _, early := range []bool{true, false} {
		for seed := range uint64(50) {
			random := rand.New(rand.NewPCG(seed, 0))
			q := newQueue(&pace{rate: 1, max: 10, initial: time.Second})
			latest := map[types.UID]time.Duration{}
			for i := range 100 {
				end := time.Duration(random.IntN(60)) * time.Second
				start := time.Duration(random.Int64N(int64(end) + 1))
				h := heldUntil(strconv.Itoa(i), start, end)
				h.unheld = random.IntN(10) == 0
				q.add(h)
				latest[h.uid] = end
			}
			at := drain(q, early, 61*time.Second, 10*time.Millisecond)
			for uid, end := range latest {
				if when, ok := at[uid]; !ok || when > end {
					t.Fatalf("seed %d: %s was released at %v: want by %v", seed, uid, when, end)
				}
			}
		}
	}
}

func TestStandbyKeepsDeadlinesOnly(t *testing.T) {
	p := newJobPace()
	q := newQueue(p)
	q.add(heldUntil("job", 5*time.Second, time.Minute))
	at := drain(q, false, 2*time.Minute, 10*time.Millisecond)["job"]
	if want := time.Minute - p.lead() + standbyLag; at != want {
		t.Errorf("released at %v: want %v", at, want)
	}
}

func TestNextNamesTheInstantThatDueActsOn(t *testing.T) {
	for _, early := range []bool{true, false} {
		q := newQueue(newPodPace())
		q.add(heldUntil("a", 20*time.Second, time.Minute))
		q.add(heldUntil("b", 40*time.Second, 50*time.Second))
		for len(q.holds) > 0 {
			next := q.next(early)
			if got := q.due(next.Add(-time.Millisecond), early); len(got) > 0 {
				t.Fatalf("early=%v: %s is due before %v", early, got[0].uid, next)
			}
			due := q.due(next, early)
			if len(due) == 0 {
				t.Fatalf("early=%v: nothing is due at %v", early, next)
			}
			q.remove(due[0])
		}
	}
}

func TestMovedDeadlineIsKept(t *testing.T) {
	q := newQueue(newPodPace())
	h := heldUntil("a", time.Minute, time.Minute)
	q.add(h)
	q.add(heldUntil("b", time.Minute, time.Minute))
	q.move(h, epoch.Add(10*time.Second))
	if at := drain(q, true, 2*time.Minute, 10*time.Millisecond)["a"]; at > 10*time.Second {
		t.Errorf("released at %v: want by 10s", at)
	}
}

func TestPaceLearns(t *testing.T) {
	p := newJobPace()
	for range 100 {
		p.observe(300*time.Millisecond, 0)
	}
	if got := p.lead(); got != 300*time.Millisecond {
		t.Errorf("lead is %v: want 300ms", got)
	}
	for range 200 {
		p.observe(25*time.Second, 100) // 4 per second
	}
	if p.rate < 3.9 || p.rate > 4.1 {
		t.Errorf("rate is %v: want 4", p.rate)
	}
	if got := p.lead(); got != 300*time.Millisecond {
		t.Errorf("what waited behind others changed the lead to %v", got)
	}
	for range 500 {
		p.observe(300*time.Millisecond, 2)
	}
	if p.rate < 8 {
		t.Errorf("rate is %v although the cluster kept up", p.rate)
	}
	p.observe(0, 5)
	p.observe(time.Hour, 0)
	if got := p.lead(); got > maxLead {
		t.Errorf("lead is %v: want at most %v", got, maxLead)
	}
}

func TestSkewAllowsForTheServersWholeSeconds(t *testing.T) {
	for _, c := range []struct{ asked, answered, want time.Duration }{
		{0, 0, 0},
		{900 * time.Millisecond, 990 * time.Millisecond, 0},
		{-time.Hour, -time.Hour, time.Hour},
		{-100 * time.Millisecond, 100 * time.Millisecond, 0},
		{time.Hour, time.Hour + time.Second, -time.Hour + time.Second},
	} {
		if got := skew(epoch.Add(c.asked), epoch.Add(c.answered), epoch); got != c.want {
			t.Errorf("skew(%v, %v) = %v: want %v", c.asked, c.answered, got, c.want)
		}
	}
}

func BenchmarkTurnOfManyHolds(b *testing.B) {
	q := newQueue(newJobPace())
	for i := range 100_000 {
		q.add(heldUntil(strconv.Itoa(i), time.Hour, time.Hour+time.Duration(i*7919%100_000)*time.Second))
	}
	q.spread()
	b.ResetTimer()
	for b.Loop() {
		q.dirty = true
		q.due(epoch, true)
		q.next(true)
	}
}
