package dashboard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// whatIf contains the allowed delays that a page compares.
var whatIf = []time.Duration{
	0, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 8 * time.Hour, 12 * time.Hour, 18 * time.Hour,
	24 * time.Hour, 36 * time.Hour, 48 * time.Hour,
}

// muchMore is the additional delay mentioned on a page.
const muchMore = 6 * time.Hour

// Weigh adds the mean of a signal over the run of a job for each start after from, and the best start for other
// allowed delays. start returns the start for an allowed delay, which counts from submission. Weigh omits starts
// that the signal does not cover.
func (v *JobView) Weigh(s *grid.Series, unit string, job *sched.Job, from time.Time,
	start func(allowed time.Duration) time.Time,
) {
	const step = 15 * time.Minute
	if job.Duration <= 0 {
		return
	}
	mean := func(at time.Time) float64 { return s.Mean(at, at.Add(job.Duration)) }
	curve := &Line{}
	until := timeutil.Later(from.Add(48*time.Hour), job.Submitted.Add(job.AllowedDelay))
	for t := from; !t.After(until) && s.Covers(t, t.Add(job.Duration)); t = t.Add(step) {
		curve.Points, curve.Until = append(curve.Points, Point{At: t, Value: mean(t)}), t.Add(step)
	}
	if len(curve.Points) == 0 {
		return
	}
	v.Curve, v.Unit, v.Created = curve, unit, job.Submitted
	first := mean(from)
	delays := append(slices.Clone(whatIf), job.AllowedDelay, job.AllowedDelay+muchMore)
	slices.Sort(delays)
	for _, d := range slices.Compact(delays) {
		if latest := timeutil.Later(job.Submitted.Add(d), from); !s.Covers(latest, latest.Add(job.Duration)) {
			break
		}
		at := timeutil.Later(start(d), from)
		v.Delays = append(v.Delays, Delay{
			Allowed: d, Start: at, Value: mean(at), Saving: report.Saving(first, mean(at)), Set: d == job.AllowedDelay,
		})
	}
}

// Job returns a job of a run, and the same job in the other runs.
func (f *Folder) Job(_ context.Context, q Query, _, _, name string) (*JobView, error) {
	m := f.run(q)
	i := slices.IndexFunc(m.Jobs, func(j Job) bool { return j.Name == name })
	if i < 0 {
		return nil, nil
	}
	j := &m.Jobs[i]
	v := &JobView{Job: j, Now: m.Now, Explanation: Explanation{
		APIVersion: document.APIVersion, Kind: "Explanation", Object: "job", Name: name, State: "finished",
		Sentence: j.sentence(m), Node: j.Node, HeldUntil: j.PlannedStart, LatestStart: j.LatestStart,
		Planned: j.PlannedStart, Started: j.Started,
	}}
	if j.Unscheduled {
		v.State = "never ran"
	}
	v.weighIn(m)
	for k, other := range f.models {
		if k != m.Run && i < len(other.Jobs) && other.Jobs[i].Name == name {
			v.Others = append(v.Others, JobRun{m.Runs[k], other.Jobs[i]})
		}
	}
	return v, nil
}

// weighIn compares allowed delays of a job of a run, if the run has only one site.
func (v *JobView) weighIn(m *Model) {
	if len(m.Zones) != 1 {
		v.Where = "each machine uses the grid of its own site"
		return
	}
	z, j := &m.Zones[0], v.Job
	if v.Where = z.Name; z.Carbon == nil {
		v.Where += " has no carbon intensity"
		return
	}
	job := &sched.Job{Submitted: j.Since, Duration: j.end().Sub(j.begin())}
	if j.LatestStart != nil {
		job.AllowedDelay = j.LatestStart.Sub(j.Since)
	}
	const reach = 48*time.Hour + muchMore
	s, err := z.Carbon.series(j.Since, j.Since.Add(job.AllowedDelay+job.Duration+reach))
	if err != nil {
		v.Where += " has no carbon intensity at that time"
		return
	}
	v.Weigh(s, z.Carbon.Unit, job, j.Since, func(allowed time.Duration) time.Time {
		return sched.BestStart(s, j.Since, j.Since.Add(allowed), job.Duration)
	})
}

// delaySentence describes the benefit of a longer delay.
func (v *JobView) delaySentence() string {
	i := slices.IndexFunc(v.Delays, func(d Delay) bool { return d.Set })
	if i < 0 {
		return ""
	}
	set := &v.Delays[i]
	text := fmt.Sprintf("With the allowed delay of %s after its creation, %s, the best start has %s %s over "+
		"its run, %s less than an immediate start.", humanize.Rounded(set.Allowed), humanize.Clock(v.Created, v.Now),
		short(set.Value), v.Unit, percent(set.Saving))
	if set.Allowed == 0 {
		text = fmt.Sprintf("No delay is allowed. An immediate start has %s %s over its run.", short(set.Value), v.Unit)
	}
	if i+1 == len(v.Delays) {
		return text + " The forecast ends there."
	}
	d := &v.Delays[len(v.Delays)-1]
	if k := slices.IndexFunc(v.Delays, func(d Delay) bool { return d.Allowed == set.Allowed+muchMore }); k > 0 {
		d = &v.Delays[k]
	}
	text += " " + humanize.Rounded(d.Allowed-set.Allowed) + " more delay would "
	if d.Value >= set.Value {
		return text + "not reduce it."
	}
	return text + fmt.Sprintf("reduce it to %s %s, %s less than at once.", short(d.Value), v.Unit, percent(d.Saving))
}
