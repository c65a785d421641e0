package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// clock formats a time with its distance from now.
func (m *Model) clock(t time.Time) string {
	if m.Past {
		return t.UTC().Format("2 Jan 15:04")
	}
	return humanize.Clock(t, m.Now) + " (" + humanize.Away(t, m.Now) + ")"
}

// nominal matches the savings in grams and money in the message of a hold, and promised all of its savings.
var (
	nominal  = regexp.MustCompile(` \([^()]* (k?gCO2e|in money)\)`)
	promised = regexp.MustCompile(`saves an estimated (\d+) %(?: \((-?[\d.e+-]+) (k?)gCO2e)?`)
)

// Expected returns the saving in the message of a hold, as a fraction of the cost of an immediate start and in grams.
// Values that the message does not contain are nil.
func Expected(message string) (share, grams *float64) {
	found := promised.FindStringSubmatch(message)
	if found == nil {
		return nil, nil
	}
	const perKilo, perPercent = 1000, 100
	if v, err := strconv.ParseFloat(found[1], 64); err == nil {
		share = new(v / perPercent)
	}
	if v, err := strconv.ParseFloat(found[2], 64); err == nil {
		if grams = new(v); found[3] != "" {
			*grams *= perKilo
		}
	}
	return share, grams
}

// Jointly reports whether the message of a hold is that of a joint plan.
func Jointly(message string) bool { return strings.Contains(message, "joint plan") }

func percent(share float64) string {
	const unit = "\u00a0%" // prevents a line break before the unit
	if share > 0 && share < 0.001 {
		return "<0.1" + unit
	}
	return strconv.FormatFloat(math.Round(1000*share)/10+0, 'f', -1, 64) + unit // avoids -0
}

// watts formats a power with a suitable unit.
func watts(w float64) string {
	switch {
	case math.Abs(w) >= 1e6:
		return fmt.Sprintf("%.3g MW", w/1e6)
	case math.Abs(w) >= 1e3:
		return fmt.Sprintf("%.3g kW", w/1e3)
	}
	return fmt.Sprintf("%.3g W", w)
}

// quantity is a signal with its name.
type quantity struct {
	*Signal
	name string
}

// signals returns the available signals of a zone.
func (z *Zone) signals() []quantity {
	return slices.DeleteFunc([]quantity{{z.Carbon, "carbon intensity"}, {z.Price, "price"}},
		func(q quantity) bool { return q.Signal == nil })
}

// gridSentence describes a signal of a zone.
func (m *Model) gridSentence(s *Signal) string {
	var now, extremes string
	if s.Now != nil {
		now = fmt.Sprintf("%s %s now", short(*s.Now), s.Unit)
	}
	from := m.From
	if !m.Past { // past extremes are of no use
		from = timeutil.Later(from, m.Now)
	}
	if lowest, at, highest, ok := s.extremes(from, m.To); ok {
		extremes = fmt.Sprintf("lowest %s at %s, highest %s", short(lowest), m.clock(at), short(highest)) +
			given(s.Now == nil, " "+s.Unit)
	}
	return cmp.Or(strings.Join(said(now, extremes), "; "), "unknown")
}

func (l *Line) extremes(from, to time.Time) (lowest float64, at time.Time, highest float64, ok bool) {
	for i, p := range l.Points {
		if p.Unknown || !l.end(i).After(from) || !p.At.Before(to) {
			continue
		}
		if !ok || p.Value < lowest {
			lowest, at = p.Value, timeutil.Later(p.At, from)
		}
		if !ok || p.Value > highest {
			highest = p.Value
		}
		ok = true
	}
	return lowest, at, highest, ok
}

func short(v float64) string { return fmt.Sprintf("%.3g", v) }

// provenance describes the source of a signal.
func (s *Signal) provenance() string {
	age := ""
	if s.AgeSeconds != nil {
		age = given(s.Stale, "STALE: ") + humanize.Rounded(time.Duration(*s.AgeSeconds*float64(time.Second))) + " old" +
			given(s.Stale, ", not used for decisions")
	}
	forecast := given(s.Forecast != "", "forecast by "+s.Forecast)
	if s.Forecast != "" && s.ForecastError != nil {
		forecast += fmt.Sprintf(" (error one day ahead: %.1f %%)", *s.ForecastError)
	}
	return strings.Join(said(s.Quality, s.Source, forecast, age), ", ")
}

// powerSentence describes the power of all machines.
func (m *Model) powerSentence() string {
	p := m.Power
	if p == nil || len(p.Points) == 0 && p.Now == nil {
		return "Unknown. No node reports its power, and no energy was booked in this period."
	}
	var now, over string
	if p.Now != nil {
		nodes := humanize.Count(p.Nodes, "node")
		now = fmt.Sprintf("%s now, reported by %d of %s", watts(*p.Now), p.Nodes-p.Late, nodes) +
			given(p.Asleep > 0, fmt.Sprintf(", %d asleep", p.Asleep)) +
			given(p.Guests > 0, "; the power of hosts includes "+humanize.Count(p.Guests, "virtual machine"))
	}
	if used, _ := p.lines()[allParts].kWh(m.From, m.To); len(p.Points) > 0 {
		instead, known := p.Baseline.kWh(m.From, m.To)
		over = fmt.Sprintf("%s kWh in this period, %s", humanize.Significant(used), p.Where) +
			given(known, fmt.Sprintf("; %s would have drawn %s kWh", p.Instead, humanize.Significant(instead)))
	}
	nodes := func(n int) string { return humanize.Plural(n, "node reports", "nodes report") }
	return strings.Join(said(now, over, given(p.Odd > 0, nodes(p.Odd)+" implausible power"),
		given(p.Late > 0, nodes(p.Late)+" outdated power")), ". ") + "."
}

// kWh returns the energy of a line of watts in an interval, and whether the power was known during all of it.
func (l *Line) kWh(from, to time.Time) (sum float64, known bool) {
	if l == nil {
		return 0, false
	}
	known = true
	for i, p := range l.Points {
		if hours := timeutil.Earlier(l.end(i), to).Sub(timeutil.Later(p.At, from)).Hours(); hours > 0 {
			known = known && !p.Unknown
			sum += p.Value * hours / 1000
		}
	}
	return sum, known
}

// workSentence describes the held jobs.
func (m *Model) workSentence() string {
	jobs := m.heldJobs()
	if m.Past {
		if len(jobs) == 0 {
			return "No Job was held."
		}
		var wait time.Duration
		for _, j := range jobs {
			wait += j.begin().Sub(j.Since)
		}
		return fmt.Sprintf("%s held, %s on average.", humanize.Plural(len(jobs), "Job was", "Jobs were"),
			humanize.Rounded(wait/time.Duration(len(jobs))))
	}
	if len(jobs) == 0 {
		return "No Job is held."
	}
	text := humanize.Plural(len(jobs), "Job is", "Jobs are") + " held"
	if j := m.next(); j != nil {
		text += fmt.Sprintf("; the next one is %s, at %s", j.path(), m.clock(*j.PlannedStart))
	}
	var last time.Time
	for _, j := range jobs {
		last = timeutil.Later(last, deref(j.LatestStart))
	}
	return text + given(!last.IsZero(), "; all start by "+m.clock(last)) + "."
}

// heldBriefly describes the held jobs in a few words.
func (m *Model) heldBriefly() string {
	jobs := m.heldJobs()
	if len(jobs) == 0 {
		return "no Job is waiting for a better time"
	}
	text := humanize.Plural(len(jobs), "Job is", "Jobs are") + " held"
	if j := m.next(); j != nil {
		text += "; next " + m.clock(*j.PlannedStart)
	}
	return text
}

// next returns the job with the earliest planned start, or nil.
func (m *Model) next() *Job {
	for _, j := range m.heldJobs() {
		if j.PlannedStart != nil {
			return j
		}
	}
	return nil
}

// path returns the name of a job with its namespace, if it has one.
func (j *Job) path() string { return pathOf(j.Namespace, j.Name) }

// sentence describes a job in one sentence, like kubenergy explain.
func (j *Job) sentence(m *Model) string {
	text := fmt.Sprintf("%s, created %s", j.path(), m.clock(j.Since))
	switch {
	case j.Unscheduled:
		return text + ": it never ran because of a lack of capacity."
	case j.Started != nil && j.PlannedStart != nil:
		text += fmt.Sprintf(": held until %s, started %s", m.clock(*j.PlannedStart), m.clock(*j.Started))
	case j.Started != nil:
		text += ": started " + m.clock(*j.Started)
	case j.PlannedStart != nil:
		text += ": held until " + m.clock(*j.PlannedStart)
	default:
		text += ": held, and the scheduler has not planned a start yet"
	}
	text += given(j.Node != "", " on "+j.Node)
	text += given(j.LatestStart != nil, "; latest start "+m.clock(deref(j.LatestStart)))
	why := humanize.Plain(Briefly(j.Why), m.Now)
	if j.Saving != nil && !strings.Contains(why, "saves an estimated") {
		text += "; saves an estimated " + percent(*j.Saving)
	}
	return strings.TrimSuffix(text+given(why != "", "; "+why), ".") + "."
}

// Briefly returns a reason without the times, which are shown next to it.
func Briefly(reason string) string {
	reason, _, _ = strings.Cut(reason, ";")
	if _, rest, ok := strings.Cut(reason, "Z: "); ok {
		reason = rest
	}
	return nominal.ReplaceAllString(reason, "")
}

func interval(d *report.Difference) string {
	if d.Low == nil || d.High == nil {
		return ""
	}
	return fmt.Sprintf(" [%s, %s]", humanize.Significant(*d.Low), humanize.Significant(*d.High))
}

// named is the difference of a quantity.
type named struct {
	*report.Difference
	name, unit string
}

// differences returns the known differences.
func (s *Saved) differences() []named {
	return slices.DeleteFunc([]named{
		{s.Emissions, "emissions", "kgCO2e"}, {s.Energy, "energy", "kWh"}, {s.Cost, "cost", s.Currency},
	}, func(d named) bool { return d.Difference == nil })
}

// known reports whether any decision was compared.
func (s *Saved) known() bool { return s != nil && (s.Jobs > 0 || s.Shadow) }

// savedSentence describes the savings and their uncertainty.
func (m *Model) savedSentence() string {
	s := m.Saved
	if !s.known() {
		return "Savings are unknown, because no decision in this period can be compared."
	}
	if m.Past && m.Run == 0 {
		return "This run is the baseline of the comparison."
	}
	verb := "Saved"
	if s.Shadow {
		verb = "Would have saved"
	}
	var said []string
	for _, d := range s.differences() {
		said = append(said, humanize.Significant(d.Saved)+interval(d.Difference)+" "+d.unit)
		if d.Difference == s.Emissions && d.Baseline > 0 {
			said[0] += fmt.Sprintf(" (%s)", percent(d.Saved/d.Baseline))
		}
	}
	text := fmt.Sprintf("%s %s relative to %s, over %s", verb, strings.Join(said, " and "), s.Against,
		humanize.Count(s.Jobs, "job"))
	return text + given(s.Few > 0, fmt.Sprintf("; an interval requires %d Jobs, not %d", report.MinJobs, s.Few)) + "."
}

// brief describes the size of a saving and the baseline.
func (s *Saved) brief(d *report.Difference) string {
	text, than := "", "less than "
	if d.Saved < 0 {
		than = "more than "
	}
	if d.Baseline > 0 {
		text = percent(math.Abs(d.Saved/d.Baseline)) + " "
	}
	if s.Energy != nil && d != s.Energy && (s.Energy.Saved < 0) == (d.Saved < 0) {
		text += "and " + humanize.Significant(math.Abs(s.Energy.Saved)) + " kWh "
	}
	return text + than + s.Against
}

// stale lists outdated and implausible data.
func (m *Model) stale() (names []string) {
	for i := range m.Zones {
		for _, s := range m.Zones[i].signals() {
			if s.Stale {
				names = append(names, s.name+" of "+m.Zones[i].Name)
			}
		}
	}
	slices.Sort(names)
	if m.Power != nil && m.Power.Late > 0 {
		names = append(names, "power of "+humanize.Count(m.Power.Late, "node"))
	}
	if m.Power != nil && m.Power.Odd > 0 {
		names = append(names, "implausible power of "+humanize.Count(m.Power.Odd, "node"))
	}
	return names
}
