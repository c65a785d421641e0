package dashboard

import (
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// job fills the page of one Job.
func (p *page) job(v *JobView) {
	p.JobView = v
	p.Heading = pathOf(v.Namespace, v.Name)
	p.Said, p.Commands = said(v.delaySentence()), said(v.Command)
	if d := v.Decision; d != nil {
		p.Said = append(p.Said, "Decision at present: "+d.Text+".")
	}
	switch {
	case v.Curve != nil:
		p.Axis, p.CurvePlot = v.curve()
	case v.Where != "":
		p.Said = append(p.Said, "There is no curve of its starts: "+v.Where+".")
	}
	if len(v.Delays) > 0 {
		t := &table{ID: "delays", Caption: "The start with other allowed delays", Header: columns(1,
			"allowed delay", "start (UTC)", v.Unit, "less than an immediate start")}
		for i, d := range v.Delays {
			r := row{Cells: []string{
				humanize.Rounded(d.Allowed), stamp(d.Start), short(d.Value), percent(d.Saving),
			}}
			if d.Set {
				p.SetDelay, r.Class = i, "set"
				if at := v.HeldUntil; at != nil && Jointly(v.Sentence) && stamp(*at) != stamp(d.Start) {
					p.Said = append(p.Said, "The planned start, "+humanize.Clock(*at, v.Now)+", is not the best one "+
						"of this Job alone, because the joint plan also considers other Jobs and capacity, and its "+
						"starts are multiples of its step.")
				}
			}
			t.Rows = append(t.Rows, r)
		}
		p.DelayTable, p.LastDelay = t, len(v.Delays)-1
	}
	p.show(v.nodes(), v.others(p.Model), v.nowAndThen(), v.settings(), v.signals(), v.events())
}

// actions returns the actions that the page offers. Each of them first shows its effect.
func (v *JobView) actions() (all []option) {
	link := func(do, mode string) string {
		return "/act?" + url.Values{
			"do": {do}, "mode": {mode}, "kind": {v.Object}, "namespace": {v.Namespace}, "name": {v.Name},
		}.Encode()
	}
	if v.State == "held" {
		all = append(all, option{"Run now …", link(DoRunNow, ""), "shows the lost savings first"})
	}
	if v.Object == "job" && v.State != "held" && v.State != "waiting" { // it has run
		all = append(all, option{"Energy used …", originLink("", v.Namespace, "Job/"+v.Name), "by node and hour"})
	}
	for _, mode := range []string{"shadow", "enforce"} {
		if mode != v.Mode {
			all = append(all, option{
				"Switch " + v.Namespace + " to " + mode + " …", link(DoMode, mode),
				"shows the effect first",
			})
		}
	}
	return all
}

// curve draws the mean intensity for each start, and marks the planned and the latest start.
func (v *JobView) curve() (axis, plot template.HTML) {
	first, last := v.Curve.Points[0].At, v.Curve.Until
	m := &Model{Now: v.Now, From: first, To: last}
	d := newDrawing(m)
	d.scale(m, "", nil, sliceutil.Map(v.Curve.Points, func(p Point) float64 { return p.Value })...)
	d.stretched(func() { d.path("line c0", d.steps(v.Curve)) })
	for i, mark := range []struct {
		at   *time.Time
		name string
	}{{v.HeldUntil, "planned"}, {v.LatestStart, "latest"}} {
		if mark.at == nil || mark.at.Before(first) || mark.at.After(last) {
			continue
		}
		x, anchor := d.x(*mark.at), "start"
		if x > 85 {
			anchor = "end"
		}
		d.rule("now", x)
		svgText(&d.labels, mark.name, `x="%s" dx="%s" y="%d" text-anchor="%s"`, pc(x),
			map[string]string{"start": "4", "end": "-4"}[anchor], 12+14*i, anchor)
	}
	return drawAxis(m), d.picture("curve", "Mean intensity of the run by start")
}

func (v *JobView) nodes() *table {
	t := &table{Header: columns(3, "node", "site", "profile", "rank", "Wh", "gCO2e", "cost")}
	if v.Placement == nil {
		return t
	}
	t.Caption = "Choice of the node: nodes by " + v.Placement.Title() + ", estimated for one pod that starts now"
	const most = 20
	t.Limit = most
	t.fill(len(v.Placement.Ranked), false, func(i int) row {
		n, rank := &v.Placement.Ranked[i], "–"
		if n.Rank > 0 {
			rank = strconv.Itoa(n.Rank)
		}
		return row{Cells: []string{
			n.Node, n.Site, n.Profile, rank, optional(n.WattHours), optional(n.Grams), optional(n.Cost),
		}}
	})
	if out := sliceutil.Map(v.Placement.Out, func(o NodeOut) string { return o.Node + ": " + o.Why }); len(out) > 0 {
		t.More += " Out: " + humanize.Few(most, out) + "."
	}
	t.More += " " + v.Placement.Note
	return t
}

func (v *JobView) others(m *Model) *table {
	runs := v.Others
	if v.Job != nil && len(m.Runs) > m.Run && len(runs) > 0 {
		runs = append([]JobRun{{m.Runs[m.Run] + " (this)", *v.Job}}, runs...)
	}
	return listed("The same job in the other runs", columns(3, "run", "started (UTC)", "node", "kWh", "gCO2e"), runs,
		func(r *JobRun) []string {
			j := &r.Job
			return []string{
				r.Run, stampOf(j.Started), j.Node, expected(j.Energy.KWh()), expected(float64(j.Grams)),
			}
		})
}

func (v *JobView) nowAndThen() *table {
	return listed("A start now and at the chosen time", columns(1, "site", "gCO2e/kWh now", "over a run from now",
		"over the chosen run", "price from now", "price of the chosen run"), v.Compare, func(c *Comparison) []string {
		return []string{
			c.Site, optional(c.CarbonNow), optional(c.CarbonOver), optional(c.CarbonThen), optional(c.PriceOver),
			optional(c.PriceThen),
		}
	})
}

func (v *JobView) settings() *table {
	return listed("Settings", columns(3, "setting", "value", "from"), v.Settings,
		func(s *Setting) []string { return []string{s.Name, humanize.Plain(s.Value, v.Now), s.From} })
}

func (v *JobView) signals() *table {
	return listed("Signals of the decision", columns(7, "zone", "quantity", "unit", "age", "source", "forecast by",
		"quality", "now"), v.Signals, func(s *SignalSource) []string {
		return []string{
			s.Zone, s.Quantity, s.Unit, s.Age, s.Source, s.Forecast, s.Quality, humanize.Significant(s.Now),
		}
	})
}

func (v *JobView) events() *table {
	return listed("Events", columns(3, "at (UTC)", "event", "message"), v.Events,
		func(e *Reported) []string { return []string{stamp(e.At), e.Reason, humanize.Plain(e.Text, v.Now)} })
}

// jobLink returns the URL of a job's page.
func jobLink(m *Model, j *Job) string {
	q := url.Values{"kind": {strings.ToLower(j.Kind)}, "namespace": {j.Namespace}, "name": {j.Name}}
	return "/job?" + m.ofRun(q)
}

// ofRun encodes a query, with the current run if there are several.
func (m *Model) ofRun(q url.Values) string {
	if m.Past {
		q.Set("run", strconv.Itoa(m.Run))
	}
	return q.Encode()
}
