package strategy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// dayOf returns a snapshot with the given number of jobs that may wait, and the given number of machines of each of
// twelve kinds.
func dayOf(tb testing.TB, jobs, machines int) *sched.Snapshot {
	tb.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	values := make([]float64, 72)
	for i := range values {
		values[i] = 300 - 200*math.Sin(float64(i)/24*2*math.Pi) + 50*r.Float64()
	}
	carbon, err := grid.NewSeries(now, time.Hour, values)
	if err != nil {
		tb.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	s := &sched.Snapshot{Now: now, Sites: []*sched.Site{site}}
	for kind := range 12 {
		profile := &energy.Profile{
			Name: fmt.Sprint("k", kind), Idle: energy.Watts(30 + 5*kind), Max: energy.Watts(150 + 20*kind), Sleep: 5,
			WakeUp: 9000, Quality: energy.Measured,
		}
		capacity := sched.Resources{MilliCPU: int64(16000 + 4000*kind), Memory: 1 << 40}
		for i := range machines {
			s.Nodes = append(s.Nodes, &sched.Node{
				Name: fmt.Sprintf("n%02d-%03d", kind, i), Site: site, Capacity: capacity, Free: capacity, Profile: profile,
			})
		}
	}
	for i := range jobs {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprintf("j%05d", i), Submitted: now.Add(-time.Duration(r.IntN(3600)) * time.Second),
			Duration: time.Duration(10+r.IntN(110)) * time.Minute, AllowedDelay: time.Duration(r.IntN(22)) * time.Hour,
			Request:  sched.Resources{MilliCPU: int64(500 * (1 + r.IntN(8))), Memory: 1 << 30},
			Shortage: 6 * time.Hour,
		})
	}
	return s
}

// TestKindsAreOfWhatMachinesDraw checks that machines with separate but equal power profiles belong to the same
// kind.
func TestKindsAreOfWhatMachinesDraw(t *testing.T) {
	s := dayOf(t, 100, 5)
	want := mustStrategy(t, "carbon+plan").Plan(s)
	for _, n := range s.Nodes {
		own := *n.Profile
		n.Profile = &own
	}
	if diff := cmp.Diff(want, mustStrategy(t, "carbon+plan").Plan(s)); diff != "" {
		t.Errorf("plan differs with separate profiles (-shared +own):\n%s", diff)
	}
}

// BenchmarkPlanTogether plans up to 100,000 jobs on 12 kinds of machines. The jobs are short of capacity, so that
// each one is checked against the free capacity.
func BenchmarkPlanTogether(b *testing.B) {
	plan, err := strategy.New("carbon+guarded")
	if err != nil {
		b.Fatal(err)
	}
	for _, jobs := range []int{100, 1000, 10000, 100000} {
		b.Run(strconv.Itoa(jobs), func(b *testing.B) {
			s := dayOf(b, jobs, max(40, jobs/250))
			for b.Loop() {
				plan.PlanWithin(s, func() bool { return false })
			}
		})
	}
}

// BenchmarkPlanAgain repeats a plan after one percent of the jobs has been added and one percent removed.
func BenchmarkPlanAgain(b *testing.B) {
	plan, err := strategy.New("carbon+guarded")
	if err != nil {
		b.Fatal(err)
	}
	s := dayOf(b, 10100, 40)
	whole := s.Queue
	s.Queue = whole[:10000]
	for i, d := range plan.Plan(s) {
		if d.Held(s.Now) {
			s.Queue[i].Place = d.Place()
		}
	}
	s.Queue = whole[100:]
	for b.Loop() {
		plan.PlanWithin(s, func() bool { return false })
	}
}

// TestWhatTakesTheCleanHour checks that the reason for a job that does not fit into the cleanest hour contains that
// hour and the fraction of the cores in use then.
func TestWhatTakesTheCleanHour(t *testing.T) {
	now := time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)
	carbon, err := grid.NewSeries(now, time.Hour, []float64{500, 100, 450, 500, 500, 500, 500})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	room := sched.Resources{MilliCPU: 4000, Memory: 1 << 34}
	s := &sched.Snapshot{Now: now, Sites: []*sched.Site{site}, Nodes: []*sched.Node{{
		Name: "n1", Site: site, Capacity: room, Free: room, Awake: true,
		Profile: &energy.Profile{Idle: 50, Max: 150, Sleep: 50, Quality: energy.Estimated},
	}}}
	for i := range 3 {
		s.Queue = append(s.Queue, sched.Job{
			ID: strconv.Itoa(i), Submitted: now, Duration: 30 * time.Minute, AllowedDelay: 4 * time.Hour,
			Request: sched.Resources{MilliCPU: 4000},
		})
	}
	plan, err := strategy.New("carbon+plan")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, d := range plan.Plan(s) {
		all = append(all, d.Reason.String())
	}
	reported := strings.Join(all, "\n")
	want := "(without other jobs it would start at 2026-06-01T09:00:00Z, when they use 100 % of the cores)"
	if strings.Count(reported, "joint plan") != 3 || strings.Count(reported, want) != 1 {
		t.Errorf("want three held jobs and one of them with\n%s\ngot\n%s", want, reported)
	}
}

// TestAPlanPricesReplicas checks that the cost of an elastic job on four replicas is based on a quarter of its run
// time.
func TestAPlanPricesReplicas(t *testing.T) {
	now := time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)
	carbon, err := grid.NewSeries(now, time.Hour, []float64{100, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	room := sched.Resources{MilliCPU: 4000, Memory: 1 << 34}
	s := &sched.Snapshot{Now: now, Sites: []*sched.Site{site}, Nodes: []*sched.Node{{
		Name: "n1", Site: site, Capacity: room, Free: room, Awake: true,
		Profile: &energy.Profile{Idle: 50, Max: 150, Sleep: 50, Quality: energy.Estimated},
	}}, Queue: []sched.Job{{
		ID: "wide", Submitted: now, Duration: 4 * time.Hour, AllowedDelay: 6 * time.Hour, Interruptible: true,
		Request: sched.Resources{MilliCPU: 1000}, RoomAssured: true,
		Scaling: &sched.Scaling{Least: 1, Throughput: []float64{1, 2, 3, 4}},
	}}}
	plan, err := strategy.New("carbon+plan")
	if err != nil {
		t.Fatal(err)
	}
	decided, _ := plan.PlanWithin(s, func() bool { return false })
	d := decided[0]
	if d.Replicas != 4 || !d.Window.End.Equal(now.Add(time.Hour)) || math.Abs(float64(d.Cost.Energy)-100*3600) > 1 {
		t.Errorf("got %d replicas until %v for %v J, want 4 replicas, one hour and 360,000 J", d.Replicas, d.Window.End,
			float64(d.Cost.Energy))
	}
}
