package energy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// The accuracy of attribution is measured on simulated machines with known ground truth in steps of 100 ms. In each
// step, the running pods are charged for the power above idle by their CPU time in that step. Power is a convex
// piecewise linear curve. The meter is read every second, up to 100 ms after the CPU times, with an error of up to
// 1 % per interval.
const (
	step      = 100 * time.Millisecond
	tickSteps = 10
	nodeCPUs  = 64.0
	truthPods = 50
)

// A demand is the CPU demand of a pod, in CPUs, step by step.
type demand struct {
	kind    string
	size    float64
	period  float64 // steps
	on, off float64 // mean lengths, in steps
	running bool
	left    int
	level   float64
}

func newDemand(r *rand.Rand, i int) *demand {
	d := &demand{
		kind: []string{"steady", "bursty", "periodic", "batch", "idle"}[i%5], size: uniform(r, .2, 1.2), level: 1,
	}
	switch d.kind {
	case "steady", "bursty", "periodic":
		d.size *= .6
	}
	switch d.kind {
	case "bursty":
		d.on, d.off = uniform(r, 3, 60), uniform(r, 20, 150)
	case "periodic":
		d.period = uniform(r, 40, 900)
	case "batch":
		d.size *= 6
	}
	return d
}

func (d *demand) next(r *rand.Rand, now int, busy float64) float64 {
	switch d.kind {
	case "steady": // varies slowly
		d.level += .02*(1-d.level) + .03*r.NormFloat64()
		return d.size * max(d.level, 0)
	case "bursty":
		if d.left--; d.left <= 0 {
			d.running = !d.running
			mean := d.off
			if d.running {
				mean = d.on
			}
			d.left = 1 + int(mean*r.ExpFloat64())
		}
		if !d.running {
			return .01 * d.size
		}
		return d.size * uniform(r, .8, 1.2)
	case "periodic":
		return d.size * (.55 + .45*math.Sin(2*math.Pi*float64(now)/d.period))
	case "batch":
		return d.size * busy * uniform(r, .95, 1.05)
	}
	if r.IntN(200) == 0 {
		return .5
	}
	return .002
}

// A clocking is the delay of the meter reading after the CPU times, and whether the timestamps of the readings
// include it.
type clocking struct {
	name  string
	after func(r *rand.Rand) time.Duration
	known bool

	steady bool // the delay is known or constant
}

var clockings = []clocking{
	{"100 ms later", func(*rand.Rand) time.Duration { return step }, true, true},
	{"0 to 100 ms later", func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(step))) }, true, true},
	{"100 ms later, unknown", func(*rand.Rand) time.Duration { return step }, false, true},
	{
		"0 to 100 ms later, unknown", func(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(step))) },
		false, false,
	},
}

// A history is the ground truth of a node.
type history struct {
	curve *truth
	cpu   [][]float64 // per pod, CPU seconds since the start, at each step
	paid  [][]float64 // per pod, joules to be charged for them
	drawn []float64   // joules of the node
	load  []float64   // utilisation in each step
}

func newHistory(r *rand.Rand, ticks int) *history {
	h := &history{curve: newTruth(r, .1), drawn: []float64{0}}
	pods := make([]*demand, truthPods)
	for i := range pods {
		pods[i] = newDemand(r, i)
		h.cpu, h.paid = append(h.cpu, []float64{0}), append(h.paid, []float64{0})
	}
	busy, until := .1, 0
	used := make([]float64, truthPods)
	for now := range ticks*tickSteps + 5 {
		if now == until { // a phase in which batch jobs start and finish, lasting minutes
			busy = []float64{0, .02, .1, .5, .8, 1.1}[r.IntN(6)]
			until = now + int(uniform(r, 100, 600))
		}
		sum := 0.0
		for i, d := range pods {
			used[i] = d.next(r, now, busy)
			sum += used[i]
		}
		fits := min(1, nodeCPUs/sum)
		u := sum * fits / nodeCPUs
		power := h.curve.power(u)
		h.load = append(h.load, u)
		h.drawn = append(h.drawn, h.drawn[now]+power*step.Seconds())
		for i := range pods {
			h.cpu[i] = append(h.cpu[i], h.cpu[i][now]+used[i]*fits*step.Seconds())
			h.paid[i] = append(h.paid[i], h.paid[i][now]+(power-h.curve.idle)*used[i]/sum*step.Seconds())
		}
	}
	return h
}

// at interpolates between steps.
func at(series []float64, t time.Duration) float64 {
	i := int(t / step)
	return series[i] + (series[i+1]-series[i])*float64(t%step)/float64(step)
}

// A squares accumulates squared errors of pod power, by interval and by batch of 15 intervals.
type squares struct {
	sum, n           float64
	open             []float64 // errors of the current, incomplete batch
	intervals        int       // number of intervals in the current batch
	batchSum, batchN float64
}

func (s *squares) add(errs []float64) {
	if s.open == nil {
		s.open = make([]float64, len(errs))
	}
	for i, e := range errs {
		s.sum += e * e
		s.n++
		s.open[i] += e / 15
	}
	if s.intervals++; s.intervals < 15 {
		return
	}
	s.intervals = 0
	for i, e := range s.open {
		s.batchSum += e * e
		s.batchN++
		s.open[i] = 0
	}
}

func (s *squares) join(o *squares) {
	s.sum, s.n = s.sum+o.sum, s.n+o.n
	s.batchSum, s.batchN = s.batchSum+o.batchSum, s.batchN+o.batchN
}

// quotients returns the ratio of the errors of two methods, by interval and by batch.
func quotients(a, b *squares) (second, batch float64) {
	return math.Sqrt(a.sum / a.n / (b.sum / b.n)), math.Sqrt(a.batchSum / a.batchN / (b.batchSum / b.batchN))
}

func compare(ours, ratio *squares) string {
	second, batch := quotients(ours, ratio)
	return fmt.Sprintf("%.2f W of %.2f W = %.3f (15 s: %.3f)", math.Sqrt(ours.sum/ours.n), math.Sqrt(ratio.sum/ratio.n),
		second, batch)
}

// observe runs an Attributor and the ratio method over a history. It returns their errors from the first tick on
// and from tick warmUp on.
func observe(t *testing.T, r *rand.Rand, h *history, c clocking, ticks,
	warmUp int,
) (ours, ratio [2]squares, a *energy.Attributor) {
	t.Helper()
	add := func(to *[2]squares, tick int, errs []float64) {
		to[0].add(errs)
		if tick > warmUp {
			to[1].add(errs)
		}
	}
	a = energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleApart})
	var out energy.Attribution
	o := energy.Observation{CPUs: nodeCPUs, Usage: make([]energy.Usage, truthPods)}
	for i := range o.Usage {
		o.Usage[i].ID = fmt.Sprintf("pod/%02d", i)
	}
	total, lastDrawn := 0.0, 0.0
	lastCPU := make([]float64, truthPods)
	errs := make([]float64, truthPods)
	for tick := range ticks + 1 {
		o.At = time.Duration(tick*tickSteps) * step
		o.Busy = 0
		for i := range o.Usage {
			o.Usage[i].CPU = time.Duration(at(h.cpu[i], o.At) * 1e9)
			o.Busy += o.Usage[i].CPU
		}
		read := o.At + c.after(r)
		drawn := at(h.drawn, read)
		delta := (drawn - lastDrawn) * uniform(r, .99, 1.01)
		total, lastDrawn = total+delta, drawn
		reading := energy.Reading{
			Domain: energy.Domain{Kind: energy.Wall, Name: "wall"}, At: read, Total: energy.Joules(total).Microjoules(),
			Quality: energy.Measured,
		}
		if !c.known {
			reading.At = o.At
		}
		o.Root = []energy.Reading{reading}
		done := a.Observe(&o, &out)
		if tick > 0 {
			for i := range errs {
				cpu := at(h.cpu[i], o.At) - lastCPU[i]
				want := at(h.paid[i], o.At) - at(h.paid[i], o.At-time.Second)
				errs[i] = delta*cpu/nodeCPUs - want // ΔE × utilisation × fraction of CPU time
			}
			add(&ratio, tick, errs)
		}
		for i := range lastCPU {
			lastCPU[i] = at(h.cpu[i], o.At)
		}
		if !done {
			continue
		}
		if err := out.Check(); err != nil {
			t.Fatal(err)
		}
		if len(out.Shares) != truthPods {
			t.Fatalf("tick %d: %d shares, want %d", tick, len(out.Shares), truthPods)
		}
		for i := range out.Shares {
			want := at(h.paid[i], out.End) - at(h.paid[i], out.Start)
			errs[i] = (float64(out.Shares[i].Dynamic.Joules()) - want) / (out.End - out.Start).Seconds()
		}
		add(&ours, tick, errs)
	}
	return ours, ratio, a
}

// After 200 ticks, the error of a pod's power is at most a quarter of the error of the method used by Kepler, on
// each machine. From the first tick on, this holds for all machines together, and for 57 of 60 machines
// individually. On the others, the ratio method is accurate by chance, or loads were never low enough to observe
// the lowest bend. If the timestamps of the meter jitter and the jitter is unknown, some energy is assigned to the
// wrong second, and less to the wrong batch of 15 seconds. Then the limits hold for batches over all machines, and
// nearly so on each machine.
func TestPodPowerAgainstRatio(t *testing.T) {
	const (
		ticks  = 1800
		warmUp = 200
	)
	var all, allRatio [4]squares
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 11))
		h := newHistory(r, ticks)
		loads := slices.Sorted(slices.Values(h.load))
		load := func(percentile int) float64 { return 100 * loads[len(loads)*percentile/100] }
		t.Logf("machine %d: idle %.0f of %.0f W, slopes %.0f; load p5 %.0f %%, median %.0f %%, p95 %.0f %%",
			seed, h.curve.idle, h.curve.power(1), h.curve.slope, load(5), load(50), load(95))
		for i, c := range clockings {
			ours, ratio, a := observe(t, r, h, c, ticks, warmUp)
			all[i].join(&ours[0])
			allRatio[i].join(&ratio[0])
			w, settled := a.IdlePower()
			text := fmt.Sprintf("%-26s from tick 0 %s; from tick %d %s; idle %+.1f %%, settled %v", c.name,
				compare(&ours[0], &ratio[0]), warmUp, compare(&ours[1], &ratio[1]), 100*(float64(w)/h.curve.idle-1),
				settled)
			t.Log("  " + text)
			second, batch := quotients(&ours[1], &ratio[1])
			limit := .25
			if !c.steady {
				second, limit = 0, .3
			}
			if second > limit || batch > limit {
				t.Errorf("machine %d: errors are %s, want at most %v", seed, text, limit)
			}
		}
	}
	for i, c := range clockings {
		text := compare(&all[i], &allRatio[i])
		t.Logf("all machines, %-26s from tick 0 %s", c.name, text)
		if second, batch := quotients(&all[i], &allRatio[i]); batch > .25 || c.steady && second > .25 {
			t.Errorf("%s, from tick 0: errors are %s, want at most a quarter", c.name, text)
		}
	}
}
