package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// An Optimum compares the starts of held jobs with their best starts in hindsight, given the booked carbon
// intensities, energy and run times. Emissions are those of the booked energy of a job, distributed evenly over its
// run time, at the site where it ran. Each job is considered alone, so the optimum ignores that machines may be
// occupied. See docs/explanation/oracles.md.
type Optimum struct {
	Jobs   int            `json:"jobs"`
	Left   map[string]int `json:"left"` // held jobs that are not included, by reason
	Signal string         `json:"signal,omitempty"`
	// Immediate, Actual and Best are emissions in kg: with starts at the beginning of the holds, with the actual
	// starts, and with the best permitted starts.
	Immediate float64 `json:"immediateKg"`
	Actual    float64 `json:"actualKg"`
	Best      float64 `json:"bestKg"`
	// Efficiency is the part of the possible savings that was achieved; nil if no savings were possible.
	Efficiency *float64 `json:"etaGrams,omitempty"`
	// Parts sum to Actual - Best. Each but the first and the last is the difference that a piece of knowledge makes
	// when a recorded decision is repeated with it. Negative values are gains by chance.
	Parts []Part `json:"parts"`
	// Longer contains the emissions in kg that one more hour of allowed delay of each job would have saved at best.
	Longer float64  `json:"oneMoreHourKg"`
	Notes  []string `json:"notes,omitempty"`
}

// Reasons why held jobs are not included, in addition to those of a Comparison.
const (
	leftUnfinished = "its last permitted run has not ended yet"
	leftSites      = "it ran at several sites or at an unknown one"
	leftRates      = "the carbon intensity of an hour was not booked"
	leftSignal     = "it has several signals, or another one"
	leftRule       = "the recorded strategy is unknown"
	leftReused     = "its name was used by several jobs"
	leftPaused     = "it was paused while it ran"
	leftScaled     = "its number of replicas changed while it ran"
)

// FindOptimum returns the optimum of the jobs with a hold that began at from or later and runs that ended before to.
// The evidence must contain snapshots and the rates of sites.
func FindOptimum(e *Evidence, from, to time.Time) *Optimum {
	o := &Optimum{Left: map[string]int{}, Parts: []Part{
		{Name: "Start", Why: "started earlier or later than last planned"},
		{Name: "Room", Why: "last planned for another time than without other jobs"},
		{Name: "Forecast", Why: "the actual intensities were not known"},
		{Name: "Run time", Why: "the actual run time was not known"},
		{Name: "Rest", Why: "conditions of the start rule, and the unexplained rest"},
	}}
	found := e.index()
	found.asOf = timeutil.Earlier(found.asOf, to)
	var all []hindsight
	signals := map[string]Totals{}
	for _, j := range group(e.Records) {
		end := j.release
		if len(j.places) > 0 {
			end = j.places[0]
		}
		hold := j.held(end)
		if hold == nil || hold.At.Before(from) {
			continue
		}
		h, why := found.hindsight(j, hold, end)
		if why != "" {
			o.Left[why]++
			continue
		}
		all = append(all, h)
		signals[h.signal] = Totals{Jobs: signals[h.signal].Jobs + 1}
	}
	o.Signal = Most(signals)
	for i := range all {
		if h := &all[i]; h.signal != o.Signal {
			o.Left[leftSignal]++
		} else if why := h.add(o); why != "" {
			o.Left[why]++
		}
	}
	if possible := o.Immediate - o.Best; possible > 0 {
		o.Efficiency = new((o.Immediate - o.Actual) / possible)
	}
	return o
}

// hindsight contains the data of a held job that are known in hindsight.
type hindsight struct {
	first, last decision // the first decision to hold the job, and the last one before its release
	signal      string
	site        string
	kWh         float64
	ran         sched.Window
	latest      time.Time    // latest start
	intensities *grid.Series // from the first decision to the end of a run that starts an hour after latest
}

// A decision is a recorded decision about a start with its snapshot.
type decision struct {
	*ledger.Record
	s *sched.Snapshot
}

// hindsight returns the hindsight of a held job, or the reason why there is none.
func (f *found) hindsight(j *job, hold, end *ledger.Record) (h hindsight, why string) {
	switch {
	case j.scaled:
		return h, leftScaled
	case len(j.pauses) > 0:
		return h, leftPaused
	}
	h.first.Record, h.last.Record = hold, hold
	for _, r := range j.holds {
		if r.UID != hold.UID {
			return h, leftReused
		}
		if !r.At.After(end.At) {
			h.last.Record = r
		}
	}
	for _, d := range []*decision{&h.first, &h.last} {
		var err error
		if len(d.Snapshot) == 0 {
			return h, leftNoSnapshot
		}
		if d.s, err = ReadSnapshot(d.Record); err != nil {
			return h, leftDamaged
		}
	}
	row, booked := f.measured(j)
	switch {
	case !booked || row.Facility <= 0 || !row.Last.After(row.First):
		return h, leftUnmeasured
	case row.First.Before(hold.At.Add(-stillRuns)):
		return h, leftEarlier
	case len(row.Signals()) != 1 || float64(row.Uncharted) > unknownShare*float64(row.Facility):
		return h, leftSignal
	}
	h.signal, h.kWh, h.ran = row.Signals()[0], kWh(row.Facility), sched.Window{Start: row.First, End: row.Last}
	if h.site = siteOf(j, h.first.s); h.site == "" {
		return h, leftSites
	}
	queued := &h.first.s.Queue[0]
	h.latest = timeutil.Later(h.first.s.Policy.LatestStart(queued), hold.At)
	begin := timeutil.Earlier(hold.At, h.ran.Start).UTC().Truncate(time.Hour)
	until := timeutil.Later(h.latest.Add(time.Hour+max(h.length(), queued.Duration)), h.ran.End.Add(stillRuns))
	if until.After(f.asOf) {
		return h, leftUnfinished
	}
	var values []float64
	for hour := begin; hour.Before(until); hour = hour.Add(time.Hour) {
		rate, known := f.rates[rateKey{h.site, h.signal, hour.Unix()}]
		if !known {
			return h, leftRates
		}
		values = append(values, rate)
	}
	var err error
	if h.intensities, err = grid.NewSeries(begin, time.Hour, values); err != nil {
		return h, leftRates
	}
	return h, ""
}

// length returns the actual run time.
func (h *hindsight) length() time.Duration { return h.ran.End.Sub(h.ran.Start) }

// siteOf returns the site where the pods of a job ran, or "" if it is not known or not the same for all.
func siteOf(j *job, hold *sched.Snapshot) string {
	if len(hold.Sites) == 1 {
		return hold.Sites[0].Name
	}
	site := ""
	for _, p := range j.places {
		s, err := ReadSnapshot(p)
		if err != nil {
			return ""
		}
		n := nodeNamed(s, p.Node)
		if n == nil || site != "" && n.Site.Name != site {
			return ""
		}
		site = n.Site.Name
	}
	return site
}

// emissions returns the emissions in kg if the job had started at the given time.
func (h *hindsight) emissions(start time.Time) float64 {
	return h.kWh * h.intensities.Mean(start, start.Add(h.length())) / 1000
}

// planned returns the start that the rule of a decision chooses for the job alone at its site, limited to the permitted
// starts. With known, it uses the actual intensities. A duration of 0 means the expected one.
func (h *hindsight) planned(d decision, known bool, duration time.Duration) (start time.Time, why string) {
	rule, err := strategy.New(d.Strategy)
	i := slices.IndexFunc(d.s.Sites, func(s *sched.Site) bool { return s.Name == h.site })
	switch {
	case err != nil:
		return start, leftRule
	case i < 0:
		return start, leftSites
	}
	site, s, queued := *d.s.Sites[i], *d.s, d.s.Queue[0]
	if known {
		site.Carbon = grid.Signal{Series: h.intensities, Quality: site.Carbon.Quality}
	}
	queued.AllowedDelay, queued.FinishBy = h.latest.Sub(queued.Submitted), time.Time{}
	queued.Duration = cmp.Or(duration, queued.Duration)
	s.Sites, s.Queue = []*sched.Site{&site}, []sched.Job{queued}
	start = s.Now
	if chosen := rule.Plan(&s)[0]; chosen.Held(s.Now) {
		start = chosen.Window.Start
	}
	return h.within(start), ""
}

// within limits a start to the permitted ones.
func (h *hindsight) within(start time.Time) time.Time {
	return timeutil.Later(timeutil.Earlier(start, h.latest), h.first.At)
}

// add adds a job to the sums. It returns the reason if the decision cannot be repeated.
func (h *hindsight) add(o *Optimum) (why string) {
	alone, why1 := h.planned(h.last, false, 0)
	informed, why2 := h.planned(h.first, true, 0)
	timed, why3 := h.planned(h.first, true, h.length())
	if why = cmp.Or(why1, why2, why3); why != "" {
		return why
	}
	best := h.emissions(sched.BestStart(h.intensities, h.first.At, h.latest, h.length()))
	longer := h.emissions(sched.BestStart(h.intensities, h.first.At, h.latest.Add(time.Hour), h.length()))
	values := []float64{
		h.emissions(h.ran.Start), h.emissions(h.within(h.last.Start)), h.emissions(alone), h.emissions(informed),
		h.emissions(timed), best,
	}
	o.Jobs++
	o.Immediate += h.emissions(h.first.At)
	o.Actual += values[0]
	o.Best += best
	o.Longer += best - longer
	for i := range o.Parts {
		o.Parts[i].Value += values[i] - values[i+1]
	}
	return ""
}

// Sentence summarizes the optimum. It is empty if no savings were possible.
func (o *Optimum) Sentence() string {
	if o == nil || o.Efficiency == nil {
		return ""
	}
	return fmt.Sprintf("The starts of %s achieved %.0f %% of the possible savings (η = %.2f). One more hour of "+
		"allowed delay would have saved up to %s kg more.", humanize.Count(o.Jobs, "held job"), 100**o.Efficiency,
		*o.Efficiency, humanize.Significant(o.Longer))
}

// Text implements [Document].
func (o *Optimum) Text(bool, bool) string {
	var b strings.Builder
	if o.Jobs == 0 {
		b.WriteString("No held job can be compared with its best start.\n")
	} else {
		fmt.Fprintf(&b, "%s with %s intensities:\n", humanize.Count(o.Jobs, "held job"), o.Signal)
		t := Heads(1, "STARTS", "KGCO2E", "")
		t.Add("at once", humanize.Significant(o.Immediate), "")
		t.Add("actual", humanize.Significant(o.Actual), "")
		for _, p := range o.Parts {
			t.Add("  "+strings.ToLower(p.Name), humanize.Significant(p.Value), p.Why)
		}
		t.Add("best", humanize.Significant(o.Best), "in hindsight, each job alone")
		b.WriteString(t.Plain())
		b.WriteString(cmp.Or(o.Sentence(), "No start could have saved emissions.") + "\n")
	}
	for _, why := range slices.Sorted(maps.Keys(o.Left)) {
		fmt.Fprintf(&b, "Not included: %s: %s.\n", humanize.Count(o.Left[why], "held job"), why)
	}
	for _, note := range o.Notes {
		b.WriteString(note + "\n")
	}
	return b.String()
}
