// Package schedtest generates snapshots for tests of strategies and of the codec.
package schedtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Strategies contains the names of all combinations of a placement and a start rule.
var Strategies = func() (names []string) {
	wheres, whens := strategy.Names()
	for _, where := range wheres {
		for _, when := range whens {
			names = append(names, where+"+"+when)
		}
	}
	return names
}()

// Each contains every placement and every start rule once, which is sufficient because they are independent of each
// other.
var Each = func() (names []string) {
	wheres, whens := strategy.Names()
	names = append(names, wheres...)
	for _, when := range whens {
		names = append(names, "energy+"+when)
	}
	return names
}()

// DrawSnapshot generates a cluster of a few sites and heterogeneous nodes under load, and a queue of jobs with and
// without an allowed delay.
func DrawSnapshot(t *rapid.T, intensity func(t *rapid.T, label string) []float64) *sched.Snapshot {
	s := &sched.Snapshot{Now: Day.Add(time.Duration(rapid.IntRange(0, 12*3600).Draw(t, "now")) * time.Second)}
	for i := range rapid.IntRange(1, 3).Draw(t, "sites") {
		series, err := grid.NewSeries(Day, 30*time.Minute, intensity(t, fmt.Sprint("intensity", i)))
		if err != nil {
			t.Fatal(err)
		}
		s.Sites = append(s.Sites, &sched.Site{
			Name: fmt.Sprint("site", i), PUE: rapid.Float64Range(1, 2).Draw(t, "pue"),
			Carbon: grid.Signal{Series: series},
		})
	}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		capacity := sched.Resources{
			MilliCPU: 1000 * rapid.Int64Range(1, 32).Draw(t, "cpu"),
			Memory:   rapid.Int64Range(1, 64).Draw(t, "memory") << 30,
		}
		used := sched.Resources{
			MilliCPU: rapid.Int64Range(0, capacity.MilliCPU).Draw(t, "usedCPU"),
			Memory:   rapid.Int64Range(0, capacity.Memory).Draw(t, "usedMemory"),
		}
		idle := rapid.Float64Range(10, 200).Draw(t, "idle")
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprint("node", i), Site: rapid.SampledFrom(s.Sites).Draw(t, "site"),
			Capacity: capacity, Free: capacity.Sub(used), Jobs: rapid.IntRange(0, 2).Draw(t, "jobs"),
			Speed:      rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "speed"),
			PUE:        rapid.SampledFrom([]float64{0, 1, 1.7}).Draw(t, "nodePUE"),
			Benchmarks: drawBenchmarks(t), HasLive: rapid.Bool().Draw(t, "hasLive"),
			Live:        energy.Watts(rapid.Float64Range(0, 500).Draw(t, "live")),
			Provisional: energy.Watts(rapid.Float64Range(0, 100).Draw(t, "provisional")),
			Profile: &energy.Profile{
				Idle: energy.Watts(idle), Max: energy.Watts(idle + rapid.Float64Range(0, 400).Draw(t, "dynamic")),
				Exponent: rapid.SampledFrom([]float64{0, 0.7, 1, 1.4, 3}).Draw(t, "exponent"),
				Sleep:    energy.Watts(idle * rapid.Float64Range(0, 1).Draw(t, "sleep")),
			},
		})
	}
	for i := range rapid.IntRange(1, 6).Draw(t, "queue") {
		j := sched.Job{
			ID:           fmt.Sprint("job", i),
			Submitted:    s.Now.Add(-time.Duration(rapid.IntRange(0, 3600).Draw(t, "age")) * time.Second),
			Duration:     time.Duration(rapid.IntRange(1, 6*3600).Draw(t, "duration")) * time.Second,
			AllowedDelay: time.Duration(rapid.IntRange(0, 12*3600).Draw(t, "delay")) * time.Second,
			Request: sched.Resources{
				MilliCPU: rapid.Int64Range(0, 16000).Draw(t, "requestCPU"),
				Memory:   rapid.Int64Range(0, 16).Draw(t, "requestMemory") << 30,
			},
			Released: rapid.Bool().Draw(t, "released"),
			Class:    rapid.SampledFrom([]string{"", "training"}).Draw(t, "class"),
			PUE:      rapid.SampledFrom([]float64{0, 1.1}).Draw(t, "jobPUE"),

			PerformanceWeight:    rapid.Float64Range(0, 1).Draw(t, "weight"),
			HasPerformanceWeight: rapid.Bool().Draw(t, "hasWeight"),
			Expected:             energy.Watts(rapid.Float64Range(0, 50).Draw(t, "expected")),
			HasExpected:          rapid.Bool().Draw(t, "hasExpected"),
		}
		if rapid.Bool().Draw(t, "hasFinishBy") {
			j.FinishBy = s.Now.Add(time.Duration(rapid.IntRange(-3600, 12*3600).Draw(t, "finishBy")) * time.Second)
		}
		if rapid.Bool().Draw(t, "bound") {
			j.Sites = []string{rapid.SampledFrom(s.Sites).Draw(t, "boundTo").Name}
		}
		s.Queue = append(s.Queue, j)
	}
	s.Policy.Seed = rapid.Uint64Range(0, 3).Draw(t, "seed")
	return s
}

func drawBenchmarks(t *rapid.T) map[string]energy.Benchmark {
	if rapid.Bool().Draw(t, "notMeasured") {
		return nil
	}
	return map[string]energy.Benchmark{"training": {
		Rate:  rapid.Float64Range(1e-3, 1e3).Draw(t, "rate"),
		Power: energy.Watts(rapid.Float64Range(0, 500).Draw(t, "loaded")),
		Idle:  energy.Watts(rapid.Float64Range(0, 300).Draw(t, "benchmarkIdle")),
	}}
}

// DrawLife generates the run-time distribution and the progress of a job.
func DrawLife(t *rapid.T, s *sched.Snapshot, j *sched.Job) {
	j.Interruptible = rapid.Bool().Draw(t, "interruptible")
	j.Shortage = time.Duration(rapid.IntRange(0, 3).Draw(t, "shortageHours")) * time.Hour
	j.RestartCost = time.Duration(rapid.IntRange(0, 3).Draw(t, "restartMinutes")) * 5 * time.Minute
	if rapid.Bool().Draw(t, "begun") {
		j.Done = time.Duration(rapid.Int64Range(0, int64(s.Now.Sub(j.Submitted))).Draw(t, "done"))
		if rapid.Bool().Draw(t, "otherSpeed") {
			j.Worked = time.Duration(rapid.Int64Range(0, int64(s.Now.Sub(j.Submitted))).Draw(t, "worked"))
		}
		j.Running = rapid.Bool().Draw(t, "running")
	}
	if rapid.Bool().Draw(t, "lengthKnown") {
		return
	}
	survival := []float64{1}
	for range rapid.IntRange(1, 8).Draw(t, "lives") {
		survival = append(survival, survival[len(survival)-1]*float64(rapid.IntRange(0, 16).Draw(t, "share"))/16)
	}
	step := time.Duration(rapid.IntRange(1, 300).Draw(t, "lifeMinutes")) * time.Minute
	var err error
	if j.Runtimes, err = sched.NewRuntimes(step, survival); err != nil {
		t.Fatal(err)
	}
	j.Duration = j.Runtimes.Mean()
}

// DrawLimits generates limits of every kind, in the range of the generated signals.
func DrawLimits(t *rapid.T) sched.Limits {
	l := sched.Limits{NoCarbon: rapid.Bool().Draw(t, "noCarbon")}
	if rapid.Bool().Draw(t, "limitCarbon") {
		l.Carbon = grid.Intensity(rapid.Float64Range(1, 900).Draw(t, "maxCarbon"))
	}
	if rapid.Bool().Draw(t, "limitShare") {
		l.Percentile = rapid.Float64Range(0.01, 0.99).Draw(t, "percentile")
	}
	if l.HasPrice = rapid.Bool().Draw(t, "limitPrice"); l.HasPrice {
		l.Price = grid.Price(rapid.Float64Range(-0.1, 0.5).Draw(t, "maxPrice"))
	}
	return l
}

// anyDigits generates values with sums that are subject to rounding, like in real signals.
func anyDigits(t *rapid.T, label string) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(0, 1000), 1, 100).Draw(t, label)
}

// drawAhead generates jobs that are expected to arrive, and ends of running jobs.
func drawAhead(t *rapid.T, s *sched.Snapshot) {
	var arrivals sched.Arrivals
	for i := range s.Queue {
		if rapid.Bool().Draw(t, "expected") {
			arrivals.Add(s.Now, s.Queue[i].Submitted, &s.Queue[i])
			if rapid.Bool().Draw(t, "waits") {
				arrivals.Waits(s.Now, s.Queue[i].ID, &s.Queue[i])
			}
		}
	}
	for _, n := range s.Nodes {
		for range rapid.IntRange(0, 2).Draw(t, "ends") {
			n.Ends = append(n.Ends, sched.End{
				At:      s.Now.Add(time.Duration(rapid.IntRange(-60, 120).Draw(t, "end")) * time.Minute),
				Request: sched.Resources{MilliCPU: rapid.Int64Range(0, 8000).Draw(t, "released")},
			})
		}
	}
	for _, n := range s.Nodes {
		slices.SortFunc(n.Ends, func(a, b sched.End) int { return a.At.Compare(b.At) })
	}
	s.Ahead = arrivals.Ahead(s.Now, &s.Queue[0], slices.Values(s.Nodes), func(n *sched.Node) []sched.End { return n.Ends })
}

// DrawRecorded generates a snapshot like [DrawSnapshot], with all further fields that an encoded snapshot can
// contain: limits, progress and openings of jobs, a budget, prices, and the age of signals.
func DrawRecorded(t *rapid.T) *sched.Snapshot {
	s := DrawSnapshot(t, anyDigits)
	for i := range s.Queue {
		s.Queue[i].Limits = DrawLimits(t)
		DrawLife(t, s, &s.Queue[i])
	}
	for _, n := range s.Nodes {
		if rapid.Bool().Draw(t, "alike") { // nodes of one kind may have separate profiles
			p := *rapid.SampledFrom(s.Nodes).Draw(t, "of").Profile
			p.Source = n.Name
			n.Profile = &p
		}
		n.Provisional = energy.Watts(rapid.Float64Range(0, 50).Draw(t, "provisionalWatts"))
	}
	for i := range s.Queue {
		s.Queue[i].Expected, s.Queue[i].HasExpected = energy.Watts(rapid.Float64Range(0, 50).Draw(t, "expectedWatts")),
			rapid.Bool().Draw(t, "hasExpectedWatts")
	}
	if rapid.IntRange(0, 3).Draw(t, "budget") == 0 {
		s.Policy.Closed, s.Policy.Budget = s.Now.Add(time.Duration(rapid.IntRange(-1, 8).Draw(t, "closed"))*time.Hour),
			"b"
	}
	s.Policy.MaxSignalAge = time.Duration(rapid.IntRange(0, 3).Draw(t, "maxAge")) * time.Hour
	drawAhead(t, s)
	for i := range s.Queue {
		for range rapid.IntRange(0, 2).Draw(t, "openings") {
			from := s.Now.Add(time.Duration(rapid.IntRange(-1, 20).Draw(t, "opening")) * 30 * time.Minute)
			s.Queue[i].Openings = append(s.Queue[i].Openings, sched.Window{
				Start: from, End: from.Add(time.Duration(rapid.IntRange(0, 4).Draw(t, "open")) * 20 * time.Minute),
			})
		}
	}
	for i := range s.Queue {
		if rapid.IntRange(0, 5).Draw(t, "delayGiven") == 0 {
			s.Queue[i].AllowedDelay = -1 // as in traces without this field
		}
	}
	for _, site := range s.Sites {
		if rapid.Bool().Draw(t, "aged") {
			site.Carbon.AsOf = s.Now.Add(-time.Duration(rapid.IntRange(0, 7200).Draw(t, "signalAge")) * time.Second)
			site.Carbon.MaxAge = time.Duration(rapid.IntRange(0, 3).Draw(t, "ownAge")) * time.Hour
		}
		if rapid.Bool().Draw(t, "priced") {
			series, err := grid.NewSeries(Day, time.Hour, anyDigits(t, "price"))
			if err != nil {
				t.Fatal(err)
			}
			site.Price = grid.Signal{Series: series, Quality: energy.Measured}
		}
	}
	return s
}

// Encode returns the encoded form of a snapshot, or fails the test.
func Encode(t rapid.TB, s *sched.Snapshot) []byte {
	t.Helper()
	data, err := codec.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Hourly returns a signal with the given values, one per hour from [Day] on. It fails the test if the values are
// invalid.
func Hourly(t *testing.T, values ...float64) grid.Signal {
	t.Helper()
	series, err := grid.NewSeries(Day, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	return grid.Signal{Series: series}
}

// Day is the start of the signals in tests: midnight UTC on 1 June 2022.
var Day = time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)
