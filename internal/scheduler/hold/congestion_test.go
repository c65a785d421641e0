package hold

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// line simulates a cluster with a minimum start latency and a maximum rate of starts. Like a client-side rate
// limiter, it may allow an initial burst.
type line struct {
	latency time.Duration
	rate    func(at time.Duration) float64
	burst   int

	free time.Duration // earliest time of the next start
}

// start returns the start time of an object that is released at the given time.
func (l *line) start(at time.Duration) time.Duration {
	gap := time.Duration(float64(time.Second) / l.rate(at))
	l.free = max(l.free, at-time.Duration(l.burst)*gap) + gap
	return max(l.free, at) + l.latency
}

func steadily(rate float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return rate }
}

// flown contains the times of a release and its start.
type flown struct{ released, started time.Duration }

// fly simulates the loop releasing n holds with open windows. It returns their release and start times in order.
func fly(t *testing.T, q *queue, l *line, n int) []flown {
	t.Helper()
	for i := range n {
		h := heldUntil(strconv.Itoa(i), 0, 24*time.Hour)
		h.state, h.rank = opened, int64(i)
		q.add(h)
	}
	loop := New(Config{})
	loop.jobs = q
	var all, coming []flown
	for now := time.Duration(0); len(all) < n; now += minPause {
		if now > 12*time.Hour {
			t.Fatalf("after %v, %d of %d objects have started", now, len(all), n)
		}
		for len(coming) > 0 && coming[0].started <= now {
			all = append(all, coming[0])
			loop.sawStart(heldUntil(strconv.Itoa(len(all)-1), 0, 0).UID, epoch.Add(coming[0].started))
			coming = coming[1:]
		}
		loop.giveUpStarts(epoch.Add(now))
		for _, h := range q.due(epoch.Add(now), true) {
			loop.awaitStart(h, epoch.Add(now), false)
			q.remove(h)
			coming = append(coming, flown{now, l.start(now)})
		}
	}
	return all
}

// TestReleaseIsAsFastAsTheCluster verifies that the first object starts immediately, that the last one starts not
// much later than if all had been released simultaneously, and that few objects wait in the queues of the cluster.
//
//test:norace
func TestReleaseIsAsFastAsTheCluster(t *testing.T) {
	for _, c := range []struct {
		rate    float64
		latency time.Duration
		burst   int
		n       int
	}{
		{8, 300 * time.Millisecond, 10, 2000}, // default limits of kube-controller-manager
		{70, 100 * time.Millisecond, 0, 10_000},
		{300, 300 * time.Millisecond, 300, 10_000}, // raised limits
		{300, 20 * time.Millisecond, 0, 10_000},
		{300, 2 * time.Second, 0, 10_000}, // slow admission
		{2000, 100 * time.Millisecond, 0, 20_000},
		{2000, 600 * time.Millisecond, 2000, 40_000},
		{0.5, 300 * time.Millisecond, 0, 50},
	} {
		t.Run(fmt.Sprintf("%v/s after %v", c.rate, c.latency), func(t *testing.T) {
			q := jobQueue()
			flown := fly(t, q, &line{latency: c.latency, rate: steadily(c.rate), burst: c.burst}, c.n)
			// if all were released simultaneously
			alone := time.Duration(float64(c.n-c.burst)/c.rate*float64(time.Second)) + c.latency
			first, last := flown[0].started, flown[c.n-1].started
			var waited []time.Duration
			for _, f := range flown[c.n/2:] {
				waited = append(waited, f.started-f.released)
			}
			slices.Sort(waited)
			median := waited[len(waited)/2]
			t.Logf("first start %v, last start %v, relative time %.2f, latency %v, window %d", first, last,
				last.Seconds()/alone.Seconds(), median, q.congestion.maxInFlight())
			one := c.latency + time.Duration(float64(time.Second)/c.rate)
			if slack := 2*time.Second + 12*c.latency; first > one+minPause || last > alone*5/4+slack {
				t.Errorf("want the first start before %v and the last start before %v", one+minPause, alone*5/4+slack)
			}
			if most := max(500*time.Millisecond, 6*c.latency,
				time.Duration(3*minWindow/c.rate*float64(time.Second))); median > most {
				t.Errorf("the median latency is %v, want at most %v", median, most)
			}
		})
	}
}

// TestReleaseFollowsTheCluster simulates a cluster that becomes ten times slower and then recovers. It verifies
// that few releases are wasted in the meantime, and that the remaining releases are as fast as possible.
//
//test:norace
func TestReleaseFollowsTheCluster(t *testing.T) {
	const n, fast, slow = 20_000, 300, 30
	l := &line{latency: 200 * time.Millisecond, rate: func(at time.Duration) float64 {
		if at > 20*time.Second && at < 80*time.Second {
			return slow
		}
		return fast
	}}
	flown := fly(t, jobQueue(), l, n)
	ideal := time.Minute + (n-60*slow)*time.Second/fast
	last := flown[n-1].started
	var most time.Duration
	for _, f := range flown {
		if f.released > 35*time.Second && f.started < 75*time.Second {
			most = max(most, f.started-f.released)
		}
	}
	t.Logf("last start %v, %.2f relative to an unlimited release, max latency %v while the cluster is slow", last,
		last.Seconds()/ideal.Seconds(), most)
	if last > ideal*5/4 {
		t.Errorf("the last start is after %v, want at most %v", last, ideal*5/4)
	}
	if most > 3*time.Second {
		t.Errorf("the latency is %v while the cluster is slow", most)
	}
}

// TestReleaseNoticesALongerWay verifies that the number of releases in flight grows if the latency of a single
// start increases by a factor of six while the rate of starts remains the same.
//
//test:norace
func TestReleaseNoticesALongerWay(t *testing.T) {
	const n, rate = 40_000, 300.0
	l := &line{latency: 300 * time.Millisecond, rate: steadily(rate)}
	changing := func(at time.Duration) float64 {
		if at > 10*time.Second {
			l.latency = 1800 * time.Millisecond
		}
		return rate
	}
	l.rate = changing
	flown := fly(t, jobQueue(), l, n)
	at := func(from, to time.Duration) (starts int) {
		for _, f := range flown {
			if f.started >= from && f.started < to {
				starts++
			}
		}
		return starts
	}
	if got := float64(at(100*time.Second, 130*time.Second)) / 30; got < 0.8*rate {
		t.Errorf("the rate is %.0f starts per second after a minute and a half, want %v", got, rate)
	}
}

// TestNothingStarts verifies that releases continue slowly if no starts are observed, e.g. because all pods wait
// for capacity or cannot be watched. If only some objects never start, releases continue at full speed.
func TestNothingStarts(t *testing.T) {
	never := &line{latency: 365 * 24 * time.Hour, rate: steadily(1000)}
	q := jobQueue()
	for i := range 1000 {
		h := heldUntil(strconv.Itoa(i), 0, 24*time.Hour)
		h.state = opened
		q.add(h)
	}
	loop := New(Config{})
	loop.jobs = q
	released := 0
	for now := time.Duration(0); now < 10*time.Minute; now += minPause {
		loop.giveUpStarts(epoch.Add(now))
		for _, h := range q.due(epoch.Add(now), true) {
			loop.awaitStart(h, epoch.Add(now), false)
			q.remove(h)
			never.start(now)
			released++
		}
	}
	if released < 200 || released > 700 {
		t.Errorf("%d objects are released in ten minutes, want about one every two seconds", released)
	}
	if out := q.congestion.inFlight; out < 0 || out > minWindow {
		t.Errorf("%d releases are in flight", out)
	}
}

// TestSomeNeverStart verifies that releases are not slowed down if every tenth object never starts.
func TestSomeNeverStart(t *testing.T) {
	const n, rate = 5000, 100.0
	q := jobQueue()
	for i := range n {
		h := heldUntil(strconv.Itoa(i), 0, 24*time.Hour)
		h.state, h.rank = opened, int64(i)
		q.add(h)
	}
	loop := New(Config{})
	loop.jobs = q
	l := &line{latency: 200 * time.Millisecond, rate: steadily(rate)}
	var coming []flown
	var of []types.UID
	now := time.Duration(0)
	for ; len(q.byUID) > 0 && now < time.Hour; now += minPause {
		for len(coming) > 0 && coming[0].started <= now {
			loop.sawStart(of[0], epoch.Add(coming[0].started))
			coming, of = coming[1:], of[1:]
		}
		loop.giveUpStarts(epoch.Add(now))
		for _, h := range q.due(epoch.Add(now), true) {
			loop.awaitStart(h, epoch.Add(now), false)
			q.remove(h)
			if h.rank%10 != 0 {
				coming, of = append(coming, flown{now, l.start(now)}), append(of, h.UID)
			}
		}
	}
	if ideal := time.Duration(0.9 * n / rate * float64(time.Second)); now > 2*ideal {
		t.Errorf("all objects are released after %v, want about %v", now, ideal)
	}
}

// machine simulates a cluster with processors shared by concurrent tasks, such as a control plane on a single
// machine. Each start requires some processor time and some waiting time.
type machine struct {
	processors float64
	work, wait time.Duration
	others     func(now time.Duration) int // number of other tasks that share the processors at all times
	running    []*task
	busy       float64 // in processor seconds
	crowd      []int   // number of tasks that shared the processors, per millisecond
}

type task struct {
	uid  types.UID
	left time.Duration // remaining processor time
	end  time.Duration // end of the waiting time; 0 until the processor time is used up
}

// pass advances the time and returns the tasks that start in the meantime.
func (m *machine) pass(now, by time.Duration) (done []types.UID) {
	working := 0
	for _, t := range m.running {
		if t.left > 0 {
			working++
		}
	}
	m.crowd = append(m.crowd, working)
	if m.others != nil {
		working += m.others(now)
	}
	share := time.Duration(float64(by) * min(1, m.processors/float64(max(working, 1))))
	var still []*task
	for _, t := range m.running {
		switch {
		case t.left > 0:
			used := min(share, t.left)
			m.busy += used.Seconds()
			if t.left -= used; t.left == 0 {
				t.end = now + by + m.wait
			}
			still = append(still, t)
		case now < t.end:
			still = append(still, t)
		default:
			done = append(done, t.uid)
		}
	}
	m.running = still
	return done
}

// serve releases n objects to the machine and returns the time until the last one has started.
func (m *machine) serve(t *testing.T, n int) time.Duration {
	t.Helper()
	q := jobQueue()
	for i := range n {
		h := heldUntil(strconv.Itoa(i), 0, 24*time.Hour)
		h.state, h.rank = opened, int64(i)
		q.add(h)
	}
	loop := New(Config{})
	loop.jobs = q
	now := time.Duration(0)
	for ; len(q.byUID) > 0 || len(m.running) > 0; now += time.Millisecond {
		for _, uid := range m.pass(now, time.Millisecond) {
			loop.sawStart(uid, epoch.Add(now))
		}
		if now%minPause == 0 {
			loop.giveUpStarts(epoch.Add(now))
			for _, h := range q.due(epoch.Add(now), true) {
				loop.awaitStart(h, epoch.Add(now), false)
				q.remove(h)
				m.running = append(m.running, &task{uid: h.UID, left: m.work})
			}
		}
		if now > 10*time.Minute {
			t.Fatalf("%d holds are left", len(q.byUID))
		}
	}
	return now
}

// TestOthersKeepTheirShare verifies that releases do not saturate a machine that can start a hundred objects per
// second. Without congestion control, 3,000 released objects would share its processors with all other work.
func TestOthersKeepTheirShare(t *testing.T) {
	const n, perSecond = 3000, 100
	m := &machine{processors: 2, work: 20 * time.Millisecond, wait: 30 * time.Millisecond}
	took := m.serve(t, n)
	slices.Sort(m.crowd)
	load, median, p99 := m.busy/(took.Seconds()*m.processors), m.crowd[len(m.crowd)/2], m.crowd[len(m.crowd)*99/100]
	ideal := time.Duration(n) * time.Second / perSecond
	t.Logf("all objects start within %v, relative time %.2f, utilization %.2f, tasks %d, p99 %d", took,
		took.Seconds()/ideal.Seconds(), load, median, p99)
	if took > ideal*14/10 {
		t.Errorf("the last start is after %v, want at most %v", took, ideal*14/10)
	}
	if median > 3 || p99 > 60 {
		t.Errorf("the number of concurrent tasks has the median %d and the 99th percentile %d, want less", median, p99)
	}
}

// TestReleasesDoNotGiveWayForEver simulates other work that saturates the machine regardless of the releases, so
// that even a single start takes long. It verifies that releases continue with about a fair fraction of the
// machine.
func TestReleasesDoNotGiveWayForEver(t *testing.T) {
	const n, crowd = 3000, 10
	m := &machine{
		processors: 2, work: 20 * time.Millisecond, wait: 30 * time.Millisecond,
		others: func(now time.Duration) int {
			if now < 5*time.Second || now%1700 < 300 {
				return 0
			}
			return crowd
		},
	}
	took := m.serve(t, n)
	ideal := time.Duration(n) * time.Second / 100
	t.Logf("all objects start within %v, %.2f relative to an idle cluster", took, took.Seconds()/ideal.Seconds())
	if took > 3*ideal {
		t.Errorf("the last start is after %v, want at most %v", took, 3*ideal)
	}
}
