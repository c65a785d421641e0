package sched_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
)

const cores = 1000 // in thousandths

func ends(n *sched.Node) []sched.End { return n.Ends }

// TestCrowding compares the price of waiting with a numerical integration over the arrivals of two jobs of 16 cores, if
// another job takes the only room for them for half an hour.
func TestCrowding(t *testing.T) {
	now, room := schedtest.Day, sched.Resources{MilliCPU: 16 * cores}
	large := &sched.Node{Name: "large", Capacity: room, Free: room}
	small := &sched.Node{Name: "small", Capacity: sched.Resources{MilliCPU: 8 * cores}}
	job := &sched.Job{Request: sched.Resources{MilliCPU: cores}, Duration: 30 * time.Minute}
	s := &sched.Snapshot{Now: now, Ahead: []sched.Demand{{
		Request: room, PerHour: 2, Openings: []sched.Opening{{At: now, Node: "large"}},
	}}}
	const perSecond, wattsPerCore = 2. / 3600, 80
	want := 0.
	for at := 0.5; at < 1800; at++ { // the second job waits in both cases, for the same time
		want += wattsPerCore * 16 * (1800 - at) * perSecond * math.Exp(-perSecond*at)
	}
	if got := float64(s.Crowding(job, large)); math.Abs(got-want) > want/1000 {
		t.Errorf("price = %.0f J, want %.0f J", got, want)
	}
	if got := s.Crowding(job, small); got != 0 {
		t.Errorf("price on a node that cannot run the expected jobs = %v, want 0", got)
	}
	s.Ahead[0].Sites = []string{"elsewhere"}
	if got := s.Crowding(job, large); got != 0 {
		t.Errorf("price on a node at which the expected jobs must not run = %v, want 0", got)
	}
}

// TestAhead checks that the jobs that may wait after one more placement are expected, with the openings of all nodes.
func TestAhead(t *testing.T) {
	now := schedtest.Day
	job := func(n int64) *sched.Job { return &sched.Job{Request: sched.Resources{MilliCPU: n * cores}} }
	node := func(name string, capacity, free int64, minutes ...int) *sched.Node {
		n := &sched.Node{
			Name: name, Capacity: sched.Resources{MilliCPU: capacity * cores}, Free: sched.Resources{MilliCPU: free * cores},
		}
		for _, m := range minutes {
			n.Ends = append(n.Ends, sched.End{
				At: now.Add(time.Duration(m) * time.Minute), Request: sched.Resources{MilliCPU: 16 * cores},
			})
		}
		return n
	}
	var a sched.Arrivals
	a.Add(now, now.Add(-2*time.Hour), job(64)) // older than an hour
	for range 3 {
		a.Add(now, now.Add(-time.Hour), job(16))
	}
	a.Add(now, now, job(1))
	for name, tc := range map[string]struct {
		nodes []*sched.Node
		want  string
	}{
		"enough": {nodes: []*sched.Node{node("a", 32, 32), node("b", 32, 32)}},
		"only on one node": {
			[]*sched.Node{node("a", 64, 64), node("b", 8, 8)}, "16 cores, 3 per hour: 0s a, 0s a",
		},
		"later": {
			[]*sched.Node{node("a", 32, 0, 5, 90), node("b", 32, 16, 20), node("c", 16, 15, -3)},
			"16 cores, 3 per hour: 0s b, 0s c, 5m0s a, 20m0s b",
		},
		"nowhere": {nodes: []*sched.Node{node("a", 32, 4), node("b", 8, 8)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			for _, d := range a.Ahead(now, job(40), slices.Values(tc.nodes), ends) {
				got += fmt.Sprintf("%d cores, %.1g per hour:", d.Request.MilliCPU/cores, d.PerHour)
				for i, o := range d.Openings {
					got += fmt.Sprint(map[bool]string{true: ", ", false: " "}[i > 0], o.At.Sub(now), " ", o.Node)
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestRatesFade checks the rate of a kind that arrived every hour for four days and then no longer.
func TestRatesFade(t *testing.T) {
	now, job := schedtest.Day, &sched.Job{Request: sched.Resources{MilliCPU: cores}}
	var a sched.Arrivals
	nodes := []*sched.Node{{Capacity: job.Request, Free: job.Request}}
	rate := func() float64 {
		if ahead := a.Ahead(now, &sched.Job{}, slices.Values(nodes), ends); len(ahead) == 1 {
			return ahead[0].PerHour
		}
		return 0
	}
	for range 96 {
		a.Add(now, now, job)
		now = now.Add(time.Hour)
	}
	if got := rate(); math.Abs(got-1) > 0.05 {
		t.Errorf("rate = %.3f per hour, want 1", got)
	}
	now = now.AddDate(0, 0, 5)
	if got := rate(); got != 0 {
		t.Errorf("rate after five days without arrivals = %.3f per hour, want 0", got)
	}
}

// TestKindsAreBounded checks that the rarest kind is forgotten.
func TestKindsAreBounded(t *testing.T) {
	now := schedtest.Day
	var a sched.Arrivals
	for i := range int64(200) {
		job := &sched.Job{Request: sched.Resources{MilliCPU: 1 << (i % 32), Memory: 1 << (i % 25)}}
		for range 1 + i/100 {
			a.Add(now, now, job)
		}
	}
	room := sched.Resources{MilliCPU: 1 << 32, Memory: 1 << 32}
	ahead := a.Ahead(now, &sched.Job{Request: room}, slices.Values([]*sched.Node{{Capacity: room, Free: room}}), ends)
	rates := 0.
	for i := range ahead {
		rates += ahead[i].PerHour
	}
	if len(ahead) != 8 || math.Abs(rates-8*2*360) > 1 { // two in ten seconds
		t.Errorf("%d kinds with a total rate of %.0f per hour, want 8 kinds that arrived twice", len(ahead), rates)
	}
}

// TestCrowdingIsNeverNegative checks that a placement never shortens the expected wait of other jobs, and that it has
// no price if there is enough room for them.
func TestCrowdingIsNeverNegative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawRecorded(t)
		for i := range s.Queue {
			for _, n := range s.Nodes {
				if price := s.Crowding(&s.Queue[i], n); price < 0 || len(s.Ahead) == 0 && price != 0 {
					t.Fatalf("price = %v with %d kinds of expected jobs", price, len(s.Ahead))
				}
			}
		}
	})
}
