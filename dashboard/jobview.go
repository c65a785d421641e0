package dashboard

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sim"
)

// whatIf are the allowed delays that a page compares.
var whatIf = []time.Duration{
	0, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour, 18 * time.Hour,
	24 * time.Hour, 36 * time.Hour, 48 * time.Hour,
}

// muchMore is how much more time a page speaks of.
const muchMore = 6 * time.Hour

// Weigh adds what a signal says of every start from an instant on: the mean over the run, and the best start within
// other allowed delays, which count from submission. What the signal does not cover is left out.
func (v *JobView) Weigh(s *Signal, submitted, from time.Time, duration, allowed time.Duration) {
	if s == nil || duration <= 0 {
		return
	}
	const step = 15 * time.Minute
	curve := &Line{}
	until := grid.Later(from.Add(48*time.Hour), submitted.Add(allowed))
	for t := from; !t.After(until); t = t.Add(step) {
		mean, ok := s.Mean(t, t.Add(duration))
		if !ok {
			break
		}
		curve.Points, curve.Until = append(curve.Points, Point{At: t, Value: mean}), t.Add(step)
	}
	if len(curve.Points) == 0 {
		return
	}
	v.Curve, v.Unit = curve, s.Unit
	first := curve.Points[0].Value
	delays := append(slices.Clone(whatIf), allowed, allowed+muchMore)
	slices.Sort(delays)
	for _, d := range slices.Compact(delays) {
		latest := grid.Later(submitted.Add(d), from)
		if latest.After(curve.Until) {
			break // the signal ends before
		}
		lowest, at, _, _ := curve.extremes(from, latest.Add(time.Nanosecond))
		saving := 0.0
		if first != 0 {
			saving = (first - lowest) / math.Abs(first)
		}
		v.Delays = append(v.Delays, Delay{Allowed: d, Start: at, Value: lowest, Saving: saving, Set: d == allowed})
	}
}

// Job tells of a job of a run, and of the same job in the others.
func (f *Folder) Job(_ context.Context, q Query, _, _, name string) (*JobView, error) {
	m := f.run(q)
	i := slices.IndexFunc(m.Jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return nil, nil
	}
	j := &m.Jobs[i]
	v := &JobView{Job: j, Now: m.Now, Explanation: Explanation{
		APIVersion: sim.APIVersion, Kind: "Explanation", Object: "job", Name: name, State: "finished",
		Sentence: j.sentence(m), Node: j.Node, HeldUntil: j.PlannedStart, LatestStart: j.LatestStart,
		Planned: j.PlannedStart, Started: j.Started,
	}}
	if j.Unscheduled {
		v.State = "never ran"
	}
	var allowed time.Duration
	if j.LatestStart != nil {
		allowed = j.LatestStart.Sub(j.Since)
	}
	if len(m.Zones) == 1 { // of several sites, each machine has its own
		v.Weigh(m.Zones[0].Carbon, j.Since, j.Since, j.end().Sub(j.begin()), allowed)
	}
	for k, other := range f.models {
		if k != m.Run && i < len(other.Jobs) && other.Jobs[i].Name == name {
			v.Others = append(v.Others, JobRun{m.Runs[k], other.Jobs[i]})
		}
	}
	return v, nil
}

// delaySentence says what more time would bring.
func (v *JobView) delaySentence() string {
	i := slices.IndexFunc(v.Delays, func(d Delay) bool { return d.Set })
	if i < 0 {
		return ""
	}
	set := &v.Delays[i]
	text := fmt.Sprintf("With the allowed delay of %s the best start has %s %s over its run, %s less than a start at "+
		"once.", report.Rounded(set.Allowed), short(set.Value), v.Unit, percent(set.Saving))
	if set.Allowed == 0 {
		text = fmt.Sprintf("No delay is allowed: a start at once has %s %s over its run.", short(set.Value), v.Unit)
	}
	for _, d := range v.Delays[i+1:] {
		if d.Allowed == set.Allowed+muchMore || d == v.Delays[len(v.Delays)-1] {
			more := report.Rounded(d.Allowed - set.Allowed)
			if d.Value >= set.Value {
				return text + fmt.Sprintf(" %s more would bring nothing.", more)
			}
			return text + fmt.Sprintf(" %s more would bring it to %s %s: %s less than a start at once.", more,
				short(d.Value), v.Unit, percent(d.Saving))
		}
	}
	return text + " The forecast does not reach further."
}
