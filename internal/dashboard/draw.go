package dashboard

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	maxBars    = 200 // maximum number of held Jobs drawn one by one; if there are more, their density is drawn
	maxPoints  = 400 // maximum number of points of a line; more would not be visible
	maxNamed   = 12  // maximum number of bars with names
	maxLines   = 6   // maximum number of zones
	plotWidth  = 1000.0
	plotHeight = 100.0
)

// drawing is an SVG element over time that fills its container. Coordinates along the axis are percentages, and
// lines are in a nested SVG element that is stretched. Styles are classes, because the Content-Security-Policy of
// the page forbids inline styles.
type drawing struct {
	strings.Builder
	from time.Time
	span float64 // in seconds
	top  float64 // value at the upper edge
	low  float64 // value at the lower edge

	labels strings.Builder // drawn above everything else
	small  bool            // there is only space for one label
}

func newDrawing(m *Model) *drawing {
	return &drawing{from: m.From, span: math.Max(1, m.To.Sub(m.From).Seconds()), top: 1}
}

// x returns the position of a time in percent. Times outside the range are moved to the edge.
func (d *drawing) x(t time.Time) float64 {
	return 100 * math.Min(1, math.Max(0, t.Sub(d.from).Seconds()/d.span))
}

// y returns the position of a value in percent from the top.
func (d *drawing) y(v float64) float64 {
	return 100 * math.Min(1, math.Max(0, 1-(v-d.low)/(d.top-d.low)))
}

func pc(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) + "%" }

func px(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// scale adapts the vertical axis to values and draws the grid lines with their labels. show formats a value. If it
// is nil, the labels of the ticks are used.
func (d *drawing) scale(m *Model, unit string, show func(float64) string, values ...float64) {
	lo, hi := math.Min(0, slices.Min(append(values, 0))), slices.Max(append(values, 0))
	if hi-lo <= 0 {
		hi = lo + 1
	}
	ticks := report.NumberTicks(lo, hi+0.04*(hi-lo))
	d.low, d.top = math.Min(lo, ticks[0].Value), math.Max(hi*1.04, lo+1e-9)
	d.upright(m)
	for i, t := range ticks {
		if t.Value > d.top || len(ticks) > 4 && i%2 == 1 && !d.small {
			continue
		}
		y, label := d.y(t.Value), t.Label
		fmt.Fprintf(d, `<line class="mark" x1="0" x2="100%%" y1="%s" y2="%s"/>`, pc(y), pc(y))
		if show != nil {
			label = show(t.Value)
		}
		if highest := i+1 == len(ticks) || ticks[i+1].Value > d.top; t.Value != 0 && (highest || !d.small) {
			svgText(&d.labels, label, `class="tick" x="4" y="%s" dy="%d"`, pc(y),
				map[bool]int{true: 12, false: -3}[y < 10])
		}
	}
	if unit != "" {
		svgText(&d.labels, unit, `class="tick" x="100%%" dx="-3" y="11" text-anchor="end"`)
	}
}

// upright draws the vertical grid lines of the time axis.
func (d *drawing) upright(m *Model) {
	for _, t := range report.TimeTicks(m.From, d.span) {
		d.rule("mark", 100*t.Value/d.span)
	}
}

// rule draws a vertical line.
func (d *drawing) rule(class string, x float64) {
	fmt.Fprintf(d, `<line class="%s" x1="%s" x2="%[2]s" y1="0" y2="100%%"/>`, class, pc(x))
}

// now marks the current time.
func (d *drawing) now(m *Model) {
	if !m.Past && m.Now.After(m.From) && m.Now.Before(m.To) {
		d.rule("now", d.x(m.Now))
	}
}

// svgText writes a text element. attributes is a format string for args.
func svgText(w io.Writer, words, attributes string, args ...any) {
	fmt.Fprintf(w, "<text "+attributes+">%s</text>", append(args, html.EscapeString(words))...)
}

// stretched calls paths between the tags of an SVG element that is stretched.
func (d *drawing) stretched(paths func()) {
	fmt.Fprintf(d, `<svg viewBox="0 0 %g %g" preserveAspectRatio="none" width="100%%" height="100%%">`, plotWidth,
		plotHeight)
	paths()
	d.WriteString("</svg>")
}

func (d *drawing) path(class string, commands string) {
	if commands != "" {
		fmt.Fprintf(d, `<path class="%s" d="%s"/>`, class, commands)
	}
}

// steps returns the path commands of a step function. Unknown points interrupt it.
func (d *drawing) steps(l *Line) string {
	var b strings.Builder
	pen := "M"
	for i, p := range l.Points {
		until := l.end(i)
		if p.Unknown || !until.After(d.from) || d.x(p.At) == d.x(until) {
			if p.Unknown {
				pen = "M"
			}
			continue
		}
		y := px(d.y(p.Value))
		fmt.Fprintf(&b, "%s%s %sH%s", pen, px(10*d.x(p.At)), y, px(10*d.x(until)))
		pen = "L"
	}
	return b.String()
}

// area returns the path commands of the area between two step functions over the same points. Unknown points
// interrupt it.
func (d *drawing) area(l *Line, upper, lower func(i int) float64) string {
	var all, there strings.Builder
	var back []string
	flush := func() {
		if len(back) > 0 {
			slices.Reverse(back)
			all.WriteString("M" + there.String()[1:] + strings.Join(back, "") + "Z")
		}
		there.Reset()
		back = back[:0]
	}
	height := 0.0
	for i, p := range l.Points {
		until := l.end(i)
		switch {
		case p.Unknown:
			flush()
			continue
		case d.x(p.At) == d.x(until):
			continue // outside the time range
		}
		height += upper(i) - lower(i)
		fmt.Fprintf(&there, "L%s %sH%s", px(10*d.x(p.At)), px(d.y(upper(i))), px(10*d.x(until)))
		back = append(back, fmt.Sprintf("L%s %sH%s", px(10*d.x(until)), px(d.y(lower(i))), px(10*d.x(p.At))))
	}
	if flush(); height <= 0 {
		return ""
	}
	return all.String()
}

// picture returns the drawing as an element of a page.
func (d *drawing) picture(id, name string) template.HTML {
	role := "img"
	if strings.Contains(d.String(), "<a ") {
		role = "group" // links in an image are not accessible
	}
	//nolint:gosec // all texts in it are escaped
	return template.HTML(fmt.Sprintf(
		`<svg class="plot" id="%s" role="%s" aria-label="%s" width="100%%" height="100%%">%s%s</svg>`, id, role,
		html.EscapeString(name), d.String(), d.labels.String()))
}

// drawGrid draws signals of the zones, which are carbon intensities or prices.
func drawGrid(m *Model, id, name string, fn func(*Zone) *Signal) template.HTML {
	d := newDrawing(m)
	d.small = id == "price"
	var shown []*Signal
	var values []float64
	for i := range m.Zones {
		if s := fn(&m.Zones[i]); s != nil && len(shown) < maxLines {
			shown = append(shown, s)
			values = append(values, s.within(m.From, m.To)...)
		}
	}
	if len(values) == 0 {
		return ""
	}
	d.scale(m, shown[0].Unit, nil, values...)
	d.stretched(func() {
		for i, s := range shown {
			l := s.thinned(m.From, m.To)
			if i == 0 || len(shown) <= 2 {
				d.path(fmt.Sprintf("fan c%d", i), d.area(l, func(k int) float64 { return bound(l.Points[k], true) },
					func(k int) float64 { return bound(l.Points[k], false) }))
			}
			class := fmt.Sprintf("line c%d", i)
			if s.Stale {
				class += " stale"
			}
			d.path(class, d.steps(l))
		}
	})
	d.now(m)
	return d.picture(id, name)
}

// drawPower stacks the power of all machines by part.
func drawPower(m *Model) template.HTML {
	p := m.Power
	if p == nil || len(p.Points) == 0 {
		return ""
	}
	d := newDrawing(m)
	lines := p.lines()
	for k, l := range lines {
		lines[k] = l.thinned(m.From, m.To)
	}
	values := lines[allParts].within(m.From, m.To)
	var base *Line
	if p.Baseline != nil {
		base = p.Baseline.thinned(m.From, m.To)
		values = append(values, base.within(m.From, m.To)...)
	}
	d.WriteString(`<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" ` +
		`patternTransform="rotate(45)"><line class="hatch" x1="0" x2="0" y1="0" y2="7"/></pattern></defs>`)
	d.scale(m, "", watts, values...)
	d.stretched(func() {
		below := make([]float64, len(lines[0].Points))
		for k, part := range parts {
			next := slices.Clone(below)
			for i, p := range lines[k].Points {
				next[i] += p.Value
			}
			d.path("area "+part.class, d.area(lines[k], at(next), at(below)))
			below = next
		}
		guessed := func(i int) float64 { return lines[estimated].Points[i].Value }
		d.path("guessed", d.area(lines[estimated], guessed, func(int) float64 { return 0 }))
		if base != nil {
			d.path("instead", d.steps(base))
		}
	})
	d.now(m)
	return d.picture("power", "Power of all machines over time")
}

// parts contains the parts of the power, from bottom to top.
var parts = []struct {
	name, class string
	of          func(Watts) float64
}{
	{"asleep", "asleep", func(w Watts) float64 { return w.Asleep }},
	{"idle", "idle", func(w Watts) float64 { return w.Idle }},
	{"for work", "dynamic", func(w Watts) float64 { return w.Dynamic }},
	{"unknown", "unknown", func(w Watts) float64 { return w.Unknown }},
}

func at(values []float64) func(int) float64 { return func(i int) float64 { return values[i] } }

// teams returns the teams of jobs in descending order of their number of jobs, and the class of each team.
func teams(jobs []*Job) (names []string, class map[string]string) {
	count, class := map[string]int{}, map[string]string{}
	for _, j := range jobs {
		count[j.team()]++
	}
	names = slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	for i, name := range names {
		class[name] = fmt.Sprintf("t%d", min(i, maxLines))
	}
	return names, class
}

// team returns the team of a job, or its namespace if it has none.
func (j *Job) team() string { return cmp.Or(j.Team, j.Namespace, "no team") }

// heldJobs returns the jobs that are or were held, by planned start. The result is cached, because a page does not
// share its model.
func (m *Model) heldJobs() (held []*Job) {
	if m.held != nil {
		return m.held
	}
	held = []*Job{}
	for i := range m.Jobs {
		j := &m.Jobs[i]
		if j.PlannedStart != nil || j.Started == nil && !j.Unscheduled && !m.Past {
			held = append(held, j)
		}
	}
	slices.SortStableFunc(held, func(a, b *Job) int {
		return cmp.Or(a.begin().Compare(b.begin()), a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	m.held = held
	return held
}

// begin returns the actual start of a job, or the planned one.
func (j *Job) begin() time.Time {
	return *cmp.Or(j.Started, j.PlannedStart, j.LatestStart, &j.Since)
}

// end returns the actual end of a job, or the expected one.
func (j *Job) end() time.Time {
	return *cmp.Or(j.Finished, j.PlannedEnd, new(j.begin().Add(time.Hour)))
}

// within returns the jobs that overlap the time range of the page.
func (m *Model) within(jobs []*Job) []*Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *Job) bool {
		last := timeutil.Later(j.end(), deref(j.LatestStart))
		return last.Before(m.From) || j.Since.After(m.To)
	})
}

func deref(t *time.Time) time.Time { return *cmp.Or(t, &time.Time{}) }

// drawWork draws held Jobs as bars, or their number if there are too many.
func drawWork(m *Model) template.HTML {
	jobs := m.within(m.heldJobs())
	if len(jobs) == 0 {
		return ""
	}
	_, class := teams(jobs)
	d := newDrawing(m)
	if len(jobs) > maxBars {
		d.density(m, jobs, class)
	} else {
		d.bars(m, jobs, class)
	}
	d.now(m)
	return d.picture("work", "Held Jobs over time")
}

func (d *drawing) bars(m *Model, jobs []*Job, class map[string]string) {
	d.upright(m)
	row := math.Min(100/float64(len(jobs)), 9)
	for i, j := range jobs {
		middle := (float64(i) + 0.5) * row
		foot := middle + 0.36*row // names are above the line
		start, end := d.x(j.begin()), d.x(j.end())
		passed := "" // excluded from the tab order, because the table has the same links
		if len(jobs) > maxNamed {
			passed = ` tabindex="-1"`
		}
		fmt.Fprintf(d, `<a href="%s" class="job %s"%s><title>%s</title>`, html.EscapeString(jobLink(m, j)),
			class[j.team()], passed, html.EscapeString(j.sentence(m)))
		fmt.Fprintf(d, `<line x1="%s" x2="%s" y1="%s" y2="%s"/>`, pc(d.x(j.Since)),
			pc(d.x(timeutil.Later(deref(j.LatestStart), j.begin()))), pc(foot), pc(foot))
		fmt.Fprintf(d, `<rect class="%s" x="%s" width="%s" y="%s" height="%s" rx="1.5"/>`,
			map[bool]string{true: "ran", false: "plan"}[j.Started != nil], pc(start), pc(math.Max(0.25, end-start)),
			pc(middle-0.36*row), pc(0.72*row))
		if len(jobs) <= maxNamed {
			d.name(j, start, end, foot)
		}
		d.WriteString("</a>")
	}
}

// name writes a job's name after its bar, or before it if there is no space after it.
func (d *drawing) name(j *Job, start, end, foot float64) {
	x, anchor, dx := end, "start", "5"
	if end > 75 {
		x, anchor, dx = start, "end", "-5"
	}
	svgText(&d.labels, shortened(j.Name), `x="%s" dx="%s" y="%s" dy="-2" text-anchor="%s"`, pc(x), dx, pc(foot), anchor)
}

// shortened returns a name that fits next to a bar.
func shortened(name string) string { return humanize.Shortened(name, 28) }

// slots is the number of intervals of the density.
const slots = 96

// density draws the number of planned starts of Jobs in each interval, stacked by team.
func (d *drawing) density(m *Model, jobs []*Job, class map[string]string) {
	step := time.Duration(d.span / slots * float64(time.Second))
	line := &Line{Until: d.from.Add(slots * step)}
	for i := range slots {
		line.Points = append(line.Points, Point{At: d.from.Add(time.Duration(i) * step)})
	}
	var upTo [maxLines + 2][slots]float64 // number of starts per interval, cumulative over teams
	for _, j := range jobs {
		i := int(j.begin().Sub(d.from) / step)
		if i >= slots || j.begin().Before(d.from) {
			continue
		}
		own, _ := strconv.Atoi(strings.TrimPrefix(class[j.team()], "t"))
		for c := own + 1; c < len(upTo); c++ {
			upTo[c][i]++
		}
	}
	d.scale(m, "Jobs", nil, upTo[maxLines+1][:]...)
	d.stretched(func() {
		for c := range maxLines + 1 {
			d.path(fmt.Sprintf("area t%d", c), d.area(line, at(upTo[c+1][:]), at(upTo[c][:])))
		}
	})
}

// drawAxis draws the time axis.
func drawAxis(m *Model) template.HTML {
	d := newDrawing(m)
	for _, t := range report.TimeTicks(m.From, d.span) {
		clock, date, _ := strings.Cut(t.Label, "\n")
		if day, err := time.Parse("2 Jan 2006", date); err == nil {
			date = day.Format("Mon 2 Jan") // the year is obvious
		}
		x, anchor := 100*t.Value/d.span, "middle"
		if x < 2 {
			anchor = "start"
		} else if x > 98 {
			anchor = "end"
		}
		svgText(d, clock, `class="tick" x="%s" y="12" text-anchor="%s"`, pc(x), anchor)
		if date != "" {
			svgText(d, date, `class="tick day" x="%s" y="26" text-anchor="%s"`, pc(x), anchor)
		}
	}
	if !m.Past && m.Now.After(m.From) && m.Now.Before(m.To) {
		svgText(d, "now", `class="nowtext" x="%s" y="26" text-anchor="middle"`, pc(d.x(m.Now)))
	}
	return d.picture("axis", "Time axis in UTC")
}
