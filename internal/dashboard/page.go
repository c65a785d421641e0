package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

//go:embed assets
var assets embed.FS

var pages = template.Must(template.New("").ParseFS(assets, "assets/page.html"))

// page is the input of the template, with the texts, tables and drawings of a model.
type page struct {
	*Model
	View    View
	Heading string
	Theme   string
	Live    bool
	Banner  *banner
	Said    []string

	Tiles   []tile
	Bands   []band
	Cards   []card
	Axis    template.HTML
	Filter  *filter
	CSV     string   // URL of the table
	Actions []option // values of the filter, or available actions

	Figures  []pageFigure
	Tables   []*table
	Sources  []source
	Commands []string

	JobView             *JobView
	CurvePlot           template.HTML
	DelayTable          *table
	LastDelay, SetDelay int

	Form         *Act
	CSRF, Button string

	query url.Values // query of the request
	asked Query      // parsed query
	whole bool       // the page is rendered for a download
}

type banner struct{ Class, Head, Text, Command string }

type tile struct{ Name, Value, Unit, Text, Class, Link string }

type band struct {
	ID, Name, Sentence, Empty string
	Keys                      []keyed
	Notes                     []note
	Plot, Second              template.HTML
	Table                     *table
	CSV, SVG                  string
	Copies                    []copied
}

type keyed struct{ Name, Class string }

// copied is a text for the clipboard, such as a command or query that is equivalent to a figure.
type copied struct{ As, Text string }

type note struct {
	Text  string
	Stale bool
}

type card struct {
	Name, Text, Class string
	Rows              []cardRow
}

type cardRow struct {
	Name, Value, Text, Link string
	Share                   string
	Current                 bool
}

type option struct{ Name, Link, Text string }

type filter struct{ Q, Action string }

type pageFigure struct {
	Caption, Class string
	Plot           template.HTML
}

type source struct {
	ID, Name string
	Lines    []string
	Table    *table
}

// table is a table for screen readers and spreadsheets.
type table struct {
	ID, Caption string
	Header      []column
	Rows        []row
	Limit       int // maximum number of rows on a page; zero for no limit
	Left        int // number of rows that are only in the download
	More        string
}

// fill adds a row for each of n items. On a page, it adds at most Limit rows.
func (t *table) fill(n int, whole bool, fn func(i int) row) {
	if t.Limit > 0 && n > t.Limit && !whole {
		n, t.Left = t.Limit, n-t.Limit
	}
	for i := range n {
		t.Rows = append(t.Rows, fn(i))
	}
}

// compact hides empty columns.
func (t *table) compact() {
	for i := range t.Header {
		if !slices.ContainsFunc(t.Rows, func(r row) bool { return r.Cells[i] != "" && r.Cells[i] != "–" }) {
			t.Header[i].Name = ""
		}
	}
}

// Shown reports whether a column is visible.
func (t *table) Shown(i int) bool { return i >= len(t.Header) || t.Header[i].Name != "" }

// listed returns a table with a row for each item.
func listed[T any](caption string, header []column, all []T, cells func(*T) []string) *table {
	t := &table{Caption: caption, Header: header}
	t.fill(len(all), true, func(i int) row { return row{Cells: cells(&all[i])} })
	return t
}

type column struct {
	Name   string
	Number bool
}

type row struct {
	Cells []string
	Links map[int]string // by column
	Class string
}

// Numbered reports whether a column contains numbers.
func (t *table) Numbered(i int) bool { return i < len(t.Header) && t.Header[i].Number }

// columns returns the columns of a table. The first ones contain words, and the others contain numbers.
func columns(words int, names ...string) (all []column) {
	for i, name := range names {
		all = append(all, column{name, i >= words})
	}
	return all
}

type viewLink struct {
	Name, Link string
	Current    bool
}

var views = []View{Overview, Decisions, Machines, Savings, Compare, Doctor}

func viewPath(v View) string { return "/" + strings.TrimPrefix(string(v), string(Overview)) }

// Timeless reports whether a page has no time axis and no Jobs, which is the case for comparisons.
func (p *page) Timeless() bool { return p.From.Equal(p.To) }

// Views returns the links above each page. It omits views that the source cannot fill.
func (p *page) Views() (links []viewLink) {
	for _, v := range views {
		if v == Doctor && p.Past || v == Compare && len(p.Strategies) == 0 && p.View != Compare ||
			p.Timeless() && v != Compare || v == Machines && p.Past && len(p.Machines) == 0 {
			continue
		}
		links = append(links, viewLink{p.titled(v), p.Here(v), v == p.View})
	}
	return links
}

// titled returns the displayed name of a view.
func (p *page) titled(v View) string {
	if v == Overview && !p.Past {
		return "Now"
	}
	return strings.ToUpper(string(v[:1])) + string(v[1:])
}

// Here returns the URL of a view with the same run and time range.
func (p *page) Here(v View) string { return address(viewPath(v), p.query, "run", "from", "to") }

// address returns a path with a part of a query. keep lists the names of parameters to copy, or name=value to add a
// parameter.
func address(path string, q url.Values, keep ...string) string {
	kept := url.Values{}
	for _, name := range keep {
		if name, value, said := strings.Cut(name, "="); said {
			kept.Set(name, value)
		} else if q.Get(name) != "" {
			kept.Set(name, q.Get(name))
		}
	}
	if len(kept) == 0 {
		return path
	}
	return path + "?" + kept.Encode()
}

// Zoomed reports whether the user selected a time range.
func (p *page) Zoomed() bool { return p.query.Get("from") != "" || p.query.Get("to") != "" }

// Whole returns the URL without a time range.
func (p *page) Whole() string { return address(viewPath(p.View), p.query, "run") }

// OtherTheme returns the URL that switches between light and dark.
func (p *page) OtherTheme() string {
	q := maps.Clone(p.query)
	q.Set("theme", map[bool]string{true: "light", false: "dark"}[p.Theme == "dark"])
	return "?" + q.Encode()
}

// show adds the tables that are not empty.
func (p *page) show(tables ...*table) {
	p.Tables = append(p.Tables, slices.DeleteFunc(tables, func(t *table) bool { return len(t.Rows) == 0 })...)
}

// given returns text if holds is true, and an empty string otherwise.
func given(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}

// said returns the texts that are not empty.
func said(texts ...string) []string {
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// overview fills the first view.
func (p *page) overview() {
	m := p.Model
	p.Axis, p.Banner, p.Tiles = drawAxis(m), m.banner(), p.tiles()
	p.Bands, p.Cards = []band{m.gridBand(), m.powerBand(), m.workBand(p.whole)}, m.cards()
	for i := range p.Bands {
		if b := &p.Bands[i]; b.Table != nil {
			b.CSV = address("/csv", p.query, "run", "from", "to", "of="+b.ID)
			b.SVG = address("/svg", p.query, "run", "from", "to", "of="+b.ID)
		}
	}
}

// banner returns the most important notice, or nil.
func (m *Model) banner() *banner {
	switch {
	case !m.Past && len(m.Zones) == 0 && m.Power == nil && len(m.Jobs) == 0:
		return &banner{
			"", "No data yet.", "No GridZone has a signal, no node reports its power, and no Job is " +
				"held. To find the reason, run", "kubenergy doctor",
		}
	case m.Mode == "shadow" && m.Enforcing == 0:
		return &banner{
			"", "Shadow mode:", "decisions are counted but not applied. To enforce them in one namespace, run",
			"kubectl label namespace NAME kubenergy.io/mode=enforce",
		}
	case len(m.Unseen) > 0:
		first, _, _ := strings.Cut(m.Unseen[0], ". ") // there is only space for one line
		left := len(m.Unseen) - 1
		return &banner{"", "Not available:", first + given(left > 0,
			fmt.Sprintf(" (and %d more, see the sources of the figures)", left)), ""}
	}
	return nil
}

// tiles returns the most important figures.
func (p *page) tiles() []tile {
	tiles := []tile{p.savedTile(), p.waitedTile(), p.estimatedTile(), p.staleTile()}
	if p.Past {
		tiles[3] = p.usedTile()
	}
	return tiles
}

// source returns the URL of the explanation of a figure.
func (p *page) source(id string) string {
	return address("/how", p.query, "run", "from", "to") + "#" + id
}

func (p *page) savedTile() tile {
	t := tile{Name: "Saved", Value: "unknown", Text: "no decision can be compared yet", Link: p.Here(Savings)}
	s := p.Saved
	switch {
	case !s.known():
		return t
	case p.Past && p.Run == 0:
		t.Value, t.Text = "–", p.savedSentence()
		return t
	case s.Shadow:
		t.Name = "Would have saved"
	}
	if known := s.differences(); len(known) > 0 {
		d := known[0]
		t.Value, t.Unit, t.Text = humanize.Significant(d.Saved), d.unit+interval(d.Difference), s.brief(d.Difference)
		t.Class = map[bool]string{true: "good", false: "bad"}[d.Saved >= 0]
	}
	return t
}

func (p *page) waitedTile() tile {
	t := tile{Name: "Waited", Text: p.heldBriefly(), Link: p.source("waited")}
	s := p.Saved
	if s == nil || s.MeanWait == nil {
		t.Name, t.Value, t.Unit = "Waits now", strconv.Itoa(len(p.heldJobs())), "held"
		return t
	}
	if t.Value, t.Unit = humanize.Span(*s.MeanWait), "on average"; p.Past && s.Late != nil {
		t.Text = humanize.Plural(s.Held, "Job was", "Jobs were") + " held; " + humanize.Count(*s.Late, "start") +
			" too late"
	}
	return t
}

func (p *page) estimatedTile() tile {
	t := tile{Name: "Estimated", Value: "unknown", Text: "no energy is available", Link: p.source("estimated")}
	if p.Power == nil || len(p.Power.Points) == 0 {
		return t
	}
	t.Value, t.Unit, t.Text = percent(p.Power.Estimated), "of energy", "the rest is measured"
	if p.Power.Estimated >= 1 {
		t.Text = "from power profiles, not metered"
	}
	return t
}

func (p *page) staleTile() tile {
	t := tile{Name: "Stale", Value: "none", Text: "all signals are recent", Link: p.source("stale")}
	if len(p.Zones) == 0 && p.Power == nil {
		t.Value, t.Text = "unknown", "no signal is available"
	}
	if names := p.stale(); len(names) > 0 {
		t.Value, t.Unit, t.Class = strconv.Itoa(len(names)), "too old", "bad"
		if t.Text = humanize.Few(3, names); p.Power != nil && p.Power.Odd > 0 {
			t.Unit = "too old or implausible"
		}
	}
	return t
}

func (p *page) usedTile() tile {
	t := tile{Name: "Used", Value: "unknown", Text: "at the sites' meters", Link: p.source("estimated")}
	if p.Saved != nil && p.Saved.Energy != nil {
		t.Value, t.Unit = humanize.Significant(p.Saved.Energy.Used), "kWh"
		if p.Saved.Emissions != nil {
			t.Text = humanize.Significant(p.Saved.Emissions.Used) + " kgCO2e, " + t.Text
		}
	}
	return t
}

// MaxNamespaces is the number of namespaces on a page. Grafana and kubenergy report show all.
const MaxNamespaces = 5

// cards returns the boxes next to the bands: the namespaces with the highest energy and the next exhausted budget,
// or the available runs.
func (m *Model) cards() (all []card) {
	if len(m.Runs) > 1 {
		return []card{m.runsCard()}
	}
	if m.Past {
		return nil
	}
	used := card{Name: "Highest usage, last 7 days"}
	for i := range m.Namespaces[:min(len(m.Namespaces), MaxNamespaces)] {
		u := &m.Namespaces[i]
		r := cardRow{
			Name: pathOf(u.Cluster, u.Name), Value: humanize.Significant(u.KWh) + " kWh",
			Link:  originLink(u.Cluster, u.Name, ""),
			Share: pc(100 * u.KWh / max(m.Namespaces[0].KWh, 1e-12)),
		}
		if u.Kg != nil {
			r.Text = humanize.Significant(*u.Kg) + " kgCO2e"
		}
		r.Text += given(u.Estimated > 0, ", "+percent(u.Estimated)+" estimated")
		used.Rows = append(used.Rows, r)
	}
	if len(used.Rows) == 0 {
		used.Text = "No energy was booked."
	}
	budget := card{Name: "Next exhausted budget"}
	if len(m.Budgets) == 0 {
		budget.Text = "There is no EnergyBudget."
	} else {
		b := &m.Budgets[0]
		r := cardRow{
			Name: b.Namespace + "/" + b.Name, Value: percent(b.Percent / 100), Share: pc(min(100, b.Percent)),
			Text: m.budgetSentence(b),
		}
		budget.Rows = []cardRow{r}
		if b.Percent >= 100 {
			budget.Class = "over"
		}
	}
	return append(all, used, budget, m.nextCard())
}

// nextCard lists the next starts.
func (m *Model) nextCard() card {
	const most = 3
	c := card{Name: "Starts next", Class: "next"}
	for _, j := range m.heldJobs() {
		if len(c.Rows) < most && j.PlannedStart != nil {
			c.Rows = append(c.Rows, cardRow{Name: j.path(), Link: jobLink(m, j), Text: m.clock(*j.PlannedStart)})
		}
	}
	if len(c.Rows) == 0 {
		c.Text = "No held Job has a planned start."
	}
	return c
}

func (m *Model) budgetSentence(b *Budget) string {
	switch {
	case b.Percent >= 100:
		text := "exhausted"
		if b.Closed != nil {
			text += "; new work waits until " + m.clock(*b.Closed)
		}
		return text + given(b.Suspended > 0, "; "+humanize.Count(int(b.Suspended), "Job")+" suspended")
	case b.UsedUp != nil:
		return "exhausted " + m.clock(*b.UsedUp) + " at the current rate"
	case b.Ends != nil:
		return "lasts until the end of its " + b.Period + ", " + m.clock(*b.Ends)
	}
	return "for its " + b.Period
}

func (m *Model) runsCard() card {
	c := card{Name: "Runs in this directory"}
	most := 0.0
	for i := range m.Strategies {
		most = max(most, m.Strategies[i].Kg, 1e-12)
	}
	for i, s := range m.Strategies {
		text := fmt.Sprintf("%s kWh, waits %s", humanize.Significant(s.KWh), humanize.Span(3600*s.WaitHours))
		name, machines, both := strings.Cut(s.Name, ", ")
		text = given(both, machines+"; ") + text
		if i == 0 {
			text += "; baseline"
		} else if s.Saving != nil {
			text += "; saves " + percent(s.Saving.Value)
		}
		c.Rows = append(c.Rows, cardRow{
			Name: name, Value: humanize.Significant(s.Kg) + " kg", Text: text, Link: "/?run=" + strconv.Itoa(i),
			Share: pc(100 * s.Kg / most), Current: i == m.Run,
		})
	}
	return c
}
