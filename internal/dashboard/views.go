package dashboard

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

const maxDecisions = 300 // maximum number on a page

// actions contains the values of the filter for the action of a decision.
var actions = []string{"any", "hold", "release", "pause", "scale", "place"}

// decisions fills the list of decisions, the most recent first.
func (p *page) decisions() {
	m := p.Model
	p.Filter = &filter{p.query.Get("q"), p.query.Get("action")}
	p.Actions = sliceutil.Map(actions, func(a string) option { return option{Name: a} })
	found := m.filtered(p.Filter)
	p.Said = []string{fmt.Sprintf("%s out of %d, the most recent first.", humanize.Count(len(found), "decision"),
		len(m.Decisions))}
	if q := p.Filter.Q; q != "" && len(found) == 0 {
		p.Said = said(fmt.Sprintf("No Job %q: the text occurs in none of %s.", q,
			humanize.Count(len(m.Decisions), "decision")), given(!m.Past,
			"A Job without a decision in this period may exist: kubenergy explain job"))
	}
	t := &table{Caption: "Decisions", Limit: maxDecisions, Header: columns(7, "time (UTC)", "what", "work", "strategy",
		"node", "start", "why", "kWh", "gCO2e")}
	t.fill(len(found), p.whole, func(i int) row { return m.decisionRow(found[i]) })
	p.CSV = address("/csv", p.query, "run", "from", "to", "q", "action", "of=decisions")
	if p.Tables = []*table{t}; !p.whole {
		t.compact()
	}
	if !m.Past {
		p.Commands = []string{"kubenergy decisions"}
	}
}

// machines fills the table of machines.
func (p *page) machines() {
	sum := 0.0
	for i := range p.Machines {
		sum += p.Machines[i].KWh
	}
	p.Said = []string{humanize.Count(len(p.Machines), "machine") + " with " + humanize.Significant(sum) + " kWh" +
		given(!p.Past, " in the last seven days") + ", in descending order of energy."}
	t := &table{
		Caption: "Machines", Limit: maxDecisions, Header: columns(1, "machine", "kWh", "share", "kgCO2e", "jobs"),
	}
	t.fill(len(p.Machines), p.whole, func(i int) row {
		u := &p.Machines[i]
		return row{Links: map[int]string{0: "/decisions?" + p.ofRun(url.Values{"q": {u.Name}})}, Cells: []string{
			pathOf(u.Cluster, u.Name), humanize.Significant(u.KWh), percent(u.KWh / max(sum, 1e-12)), optional(u.Kg),
			given(p.Past, strconv.Itoa(u.Jobs)),
		}}
	})
	t.compact()
	p.show(t)
}

func (m *Model) decisionRow(d *ledger.Record) row {
	why := d.Reason
	if d.Message != "" {
		why = humanize.Plain(Briefly(d.Message), m.Now)
	}
	work := Job{Held: Held{Namespace: d.Namespace, Kind: d.OwnerKind, Name: d.Owner}}
	links := map[int]string{}
	if !m.Past { // runs do not keep snapshots
		links[0] = m.decisionLink(d)
	}
	if d.OwnerKind == "Job" || d.OwnerKind == "Pod" {
		links[2] = jobLink(m, &work)
	}
	return row{Links: links, Cells: []string{
		stamp(d.At), d.Action, work.path(), d.Strategy, d.Node, stampOf(&d.Start), why, expected(d.Energy.KWh()),
		expected(float64(d.Carbon)),
	}}
}

// decisionLink returns the URL of a decision's page.
func (m *Model) decisionLink(d *ledger.Record) string {
	q := url.Values{"id": {d.ID}, "uid": {d.UID}, "at": {d.At.UTC().Format(time.RFC3339Nano)}}
	if d.Namespace != "" {
		q.Set("namespace", d.Namespace)
	}
	return "/decision?" + m.ofRun(q)
}

func expected(v float64) string {
	return shown(v, v != 0)
}

// filtered returns the decisions that match a filter.
func (m *Model) filtered(f *filter) (found []*ledger.Record) {
	q := strings.ToLower(strings.TrimSpace(f.Q))
	for i := range m.Decisions {
		d := &m.Decisions[i]
		if f.Action != "" && f.Action != "any" && f.Action != d.Action {
			continue
		}
		text := strings.ToLower(d.Namespace + "/" + d.Owner + " " + d.Node + " " + d.Strategy + " " + d.Reason)
		if strings.Contains(text, q) {
			found = append(found, d)
		}
	}
	return found
}

// savings fills the page of savings and their causes.
func (p *page) savings() {
	m, s := p.Model, cmp.Or(p.Saved, &Saved{Shadow: true})
	p.Said = said(m.savedSentence(), s.Optimum.Sentence(), s.Method)
	p.Commands = said(s.Command, given(s.Optimum != nil, "kubenergy optimum"))
	if plot := drawSteps(s); plot != "" {
		p.Figures = []pageFigure{{
			"Step by step from the " + s.Unit + " with " + s.Against + " to the actual " + s.Unit,
			"steps", plot,
		}}
	}
	t := listed("Causes of the savings", []column{{"part", false}, {s.Unit, true}, {"reason", false}}, s.Steps,
		func(step *Step) []string { return []string{step.Name, humanize.Significant(step.Value), step.Why} })
	all := listed("Consumption, actual and with "+s.Against, columns(1, "quantity", "used", "baseline", "saved",
		"95 % from", "to"), s.differences(), func(d *named) []string {
		return []string{
			strings.TrimSuffix(d.name+", "+d.unit, ", "), humanize.Significant(d.Used),
			humanize.Significant(d.Baseline), humanize.Significant(d.Saved), optional(d.Low), optional(d.High),
		}
	})
	all.compact()
	if !s.Shadow { // the consumption without decisions is unknown
		p.show(all)
	}
	p.show(t, listed("Not comparable", columns(1, "reason", "jobs"), slices.Sorted(maps.Keys(s.Left)),
		func(why *string) []string { return []string{*why, strconv.Itoa(s.Left[*why])} }))
}

func optional(v *float64) string {
	if v == nil {
		return shown(0, false)
	}
	return shown(*v, true)
}

// drawSteps draws a waterfall chart.
func drawSteps(s *Saved) template.HTML {
	d := s.Emissions
	if s.Unit == "kWh" {
		d = s.Energy
	}
	if d == nil || len(s.Steps) == 0 {
		return ""
	}
	top := math.Max(d.Baseline, d.Used)
	level := d.Baseline
	for _, step := range s.Steps {
		level -= step.Value
		top = max(top, level)
	}
	w := &drawing{top: 1.12 * math.Max(top, 1e-12)}
	width := 100 / float64(len(s.Steps)+2)
	i := 0
	bar := func(class, name string, from, to float64, said string) {
		x, upper, lower := (float64(i)+0.5)*width, math.Max(from, to), math.Min(from, to)
		fmt.Fprintf(w, `<rect class="bar %s" x="%s" width="%s" y="%s" height="%s" rx="2"><title>%s</title></rect>`,
			class, pc(x-0.32*width), pc(0.64*width), pc(0.9*w.y(upper)), pc(0.9*(w.y(lower)-w.y(upper))),
			html.EscapeString(name+": "+said))
		svgText(w, said, `x="%s" y="%s" dy="-5" text-anchor="middle"`, pc(x), pc(0.9*w.y(upper)))
		svgText(w, name, `class="tick" x="%s" y="97%%" text-anchor="middle"`, pc(x))
		i++
	}
	bar("whole", "baseline", 0, d.Baseline, humanize.Significant(d.Baseline))
	level = d.Baseline
	for _, step := range s.Steps {
		class, said := "gain", humanize.Significant(-step.Value)
		if step.Value < 0 {
			class, said = "loss", "+"+said
		}
		bar(class, step.Name, level, level-step.Value, said)
		level -= step.Value
	}
	bar("whole", "caused", 0, d.Used, humanize.Significant(d.Used))
	return w.picture("steps", "Savings step by step, with the same figures as the table")
}

// compare fills the comparison of strategies.
func (p *page) compare() {
	if len(p.Strategies) == 0 {
		p.Said = []string{"There is no comparison of strategies. To compare them on your own trace, run"}
		p.Commands = []string{
			"kubenergy simulate -f scenario.yaml --out results", "kubenergy dashboard --dir results",
		}
		return
	}
	p.Said = []string{p.Note, compareSentence(p.Strategies)}
	p.Figures = []pageFigure{{
		"Emissions by mean wait. Green: no other strategy emits less without waiting longer. Ring: the baseline. " +
			"Names are shown under the pointer. The table has the same figures.",
		"pareto", drawPareto(p.Strategies),
	}}
	t := &table{
		Caption: "Strategies", Header: columns(1, "strategy", "mean wait", "kgCO2e", "kWh", "saved", "95 % from", "to"),
	}
	for _, s := range p.Strategies {
		r := row{Cells: []string{
			s.Name, humanize.Span(3600 * s.WaitHours), humanize.Significant(s.Kg), humanize.Significant(s.KWh), "–",
			"–", "–",
		}}
		if s.Saving != nil && !s.Baseline {
			r.Cells[4] = percent(s.Saving.Value)
			for k, v := range []*float64{s.Saving.Low, s.Saving.High} {
				if v != nil {
					r.Cells[5+k] = percent(*v)
				}
			}
		}
		r.Class = s.class()
		t.Rows = append(t.Rows, r)
	}
	t.compact()
	p.Tables = []*table{t}
}

// front returns the strategies on the Pareto front of wait and emissions.
func front(all []Strategy) []Strategy {
	return slices.DeleteFunc(slices.Clone(all), func(s Strategy) bool { return !s.Best })
}

// compareSentence lists the strategies on the Pareto front.
func compareSentence(all []Strategy) string {
	names := sliceutil.Map(front(all), func(s Strategy) string { return s.brief() })
	return "No other strategy is better than these in both wait and emissions: " + strings.Join(names, "; ") + "."
}

func (s *Strategy) brief() string {
	return fmt.Sprintf("%s (%s kgCO2e, waits %s)", s.Name, humanize.Significant(s.Kg), humanize.Span(3600*s.WaitHours))
}

func (s *Strategy) class() string {
	switch {
	case s.Baseline:
		return "base"
	case s.Best:
		return "best"
	}
	return "other"
}

// drawPareto draws strategies by wait and emissions.
func drawPareto(all []Strategy) template.HTML {
	d, longest := &drawing{}, 0.0
	var kg []float64
	for i := range all {
		longest, kg = math.Max(longest, all[i].WaitHours), append(kg, all[i].Kg)
	}
	longest = cmp.Or(longest, 1)
	d.low, d.top = 0, math.Max(1.08*slices.Max(kg), 1e-12)
	x := func(wait float64) float64 { return 6 + 88*wait/longest }
	y := func(v float64) float64 { return 4 + 0.82*d.y(v) }
	for _, t := range report.NumberTicks(0, slices.Max(kg)) {
		if t.Value > d.top {
			continue
		}
		fmt.Fprintf(d, `<line class="mark" x1="6%%" x2="100%%" y1="%s" y2="%s"/>`, pc(y(t.Value)), pc(y(t.Value)))
		svgText(d, t.Label, `class="tick" x="5.4%%" y="%s" dy="4" text-anchor="end"`, pc(y(t.Value)))
	}
	for _, t := range report.NumberTicks(0, longest) {
		if t.Value <= longest*1.01 {
			svgText(d, t.Label, `class="tick" x="%s" y="93%%" text-anchor="middle"`, pc(x(t.Value)))
		}
	}
	svgText(d, "mean wait, hours", `class="tick" x="50%%" y="99%%" text-anchor="middle"`)
	svgText(d, "kgCO2e", `class="tick" x="0" y="3%%" dy="6"`)
	best := front(all)
	slices.SortFunc(best, func(a, b Strategy) int { return cmp.Compare(a.WaitHours, b.WaitHours) })
	for i := range max(0, len(best)-1) {
		a, b := &best[i], &best[i+1]
		fmt.Fprintf(d, `<line class="front" x1="%s" y1="%s" x2="%s" y2="%s"/>`, pc(x(a.WaitHours)), pc(y(a.Kg)),
			pc(x(b.WaitHours)), pc(y(b.Kg)))
	}
	taken := sliceutil.Map(all, func(s Strategy) box { return around(x(s.WaitHours), y(s.Kg)) })
	for _, s := range all {
		fmt.Fprintf(d, `<circle class="dot %s" cx="%s" cy="%s" r="6"><title>%s</title></circle>`, s.class(),
			pc(x(s.WaitHours)), pc(y(s.Kg)), html.EscapeString(s.brief()))
		if s.Best {
			taken = d.beside(x(s.WaitHours), y(s.Kg), shortened(s.Name), taken)
		}
	}
	return d.picture("pareto", "Strategies by mean wait and emissions")
}

// box is the area of a point or label, in percent.
type box struct{ left, top, right, bottom float64 }

func around(x, y float64) box { return box{x - 0.6, y - 2, x + 0.6, y + 2} }

func (b box) meets(o box) bool {
	return b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom
}

// beside writes a label at the first free position next to a point. If there is none, the name is only in the
// table.
func (d *drawing) beside(x, y float64, name string, taken []box) []box {
	const letter, height = 0.66, 4.4
	width := letter * float64(len([]rune(name)))
	for _, up := range []float64{2, -6.4, 7, -11} {
		for _, right := range []bool{true, false} {
			at, anchor := box{x + 0.7, y - up - height, x + 0.7 + width, y - up}, "start"
			if !right {
				at.left, at.right, anchor = x-0.7-width, x-0.7, "end"
			}
			if at.left < 0 || at.right > 100 || at.bottom > 87 || slices.ContainsFunc(taken, at.meets) {
				continue
			}
			svgText(&d.labels, name, `x="%s" y="%s" text-anchor="%s"`,
				pc(map[bool]float64{true: at.left, false: at.right}[right]), pc(at.bottom-1), anchor)
			return append(taken, at)
		}
	}
	return taken
}

// doctor fills the findings, the most severe ones first.
func (p *page) doctor() {
	slices.SortStableFunc(p.Findings, func(a, b Finding) int { return badness(b.Status) - badness(a.Status) })
	p.Said = []string{Verdict(p.Findings)}
	p.Commands = []string{"kubenergy doctor"}
}

// Verdict summarizes findings in one line.
func Verdict(all []Finding) string {
	of := map[Status]int{}
	for i := range all {
		of[all[i].Status]++
	}
	text, warnings := "Works.", humanize.Count(of[StatusWarn], "warning")
	switch {
	case len(all) == 0:
		return "No checks were run."
	case of[StatusFail] > 0:
		text = fmt.Sprintf("Broken: %d, with %s.", of[StatusFail], warnings)
	case of[StatusWarn] > 0:
		text = "Works, with " + warnings + "."
	}
	return fmt.Sprintf("%s Out of %s, %d found no problem.", text, humanize.Count(len(all), "check"), of[StatusOK])
}

func badness(s Status) int { return slices.Index([]Status{StatusOK, StatusWarn, StatusFail}, s) }

// how fills the page that explains the sources of figures.
func (p *page) how() {
	m := p.Model
	p.Heading = "Sources of the figures"
	saved := source{ID: "saved", Name: "Saved", Lines: []string{m.savedSentence()}}
	if m.Saved != nil {
		saved.Lines = said(m.savedSentence(), m.Saved.Method)
	}
	signals := &table{Caption: "Signals", Header: []column{
		{"zone", false}, {"quantity", false}, {"now", true}, {"unit", false}, {"source", false},
	}}
	for _, z := range m.Zones {
		for _, s := range z.signals() {
			signals.Rows = append(signals.Rows, row{Cells: []string{
				z.Name, s.name, optional(s.Now), s.Unit, s.provenance(),
			}})
		}
	}
	stale := "All data is recent."
	if names := m.stale(); len(names) > 0 {
		stale = "Too old for decisions: " + strings.Join(names, ", ") + "."
	}
	p.Sources = []source{
		saved,
		{ID: "waited", Name: "Waited", Lines: []string{
			m.workSentence(),
			"From submission to start of all work, including the wait for capacity.",
		}},
		{ID: "estimated", Name: "Energy", Lines: said(
			m.powerSentence(), m.meterSentence(),
			"A meter reports the joules of an interval, which are divided among pods by the CPU time of their "+
				"control groups and sent to the ledger's windows of five minutes. Multiplied by the PUE, it is "+
				"the energy at the site's meter. Multiplied by the window's intensity or price, it is emissions or "+
				"cost. Without a meter, energy is estimated from a power profile and counts as estimated.", m.Note,
		)},
		{
			ID: "stale", Name: "Signals", Lines: []string{
				stale,
				"The band of a forecast ranges from the tenth to the ninetieth percentile, if available.",
			},
			Table: signals,
		},
	}
	if m.Mode != "" {
		p.Sources = append(p.Sources, source{ID: "mode", Name: "Mode", Lines: []string{
			"The mode of the cluster's policy is " + m.Mode + ". In shadow mode, decisions are only " +
				"counted. In advise mode, they are annotated. In enforce mode, work is held. Namespaces may have " +
				"their own mode: " + strconv.Itoa(m.Enforcing) + " namespaces enforce although the cluster does not.",
		}})
	}
	if len(m.Unseen) > 0 {
		p.Sources = append(p.Sources, source{ID: "unseen", Name: "Not available", Lines: m.Unseen})
	}
}

// meterSentence describes the reliability of the power.
func (m *Model) meterSentence() string {
	p := m.Power
	if p == nil || len(p.Points) == 0 {
		return "No energy was booked in this period."
	}
	text := percent(p.Estimated) + " of the energy is estimated, and the rest is measured."
	if !m.Past {
		text += fmt.Sprintf(" Of %s, the power of %d is too old for decisions, and that of %d is more or less "+
			"than their hardware can draw.", humanize.Count(p.Nodes, "node"), p.Late, p.Odd)
	}
	return text
}
