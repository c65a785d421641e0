package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// maxRows is the maximum number of nodes in the text output. Other formats contain all nodes.
const maxRows = 15

// Text returns the explanation as text.
func (x *Explanation) Text(_, colours bool) string {
	var b strings.Builder
	bold := func(s string) string {
		if colours {
			return "\x1b[1m" + s + "\x1b[0m"
		}
		return s
	}
	name := x.Namespace + "/" + x.Name
	if x.Object == cmdutil.KindNamespace {
		name = x.Name
	}
	fmt.Fprintf(&b, "%s: %s\n", bold(x.Object+" "+name), x.State)
	fmt.Fprintln(&b, x.Sentence)
	if x.LatestStart != nil {
		fmt.Fprintf(&b, "Latest start: %s UTC\n", humanize.Clock(*x.LatestStart, x.now))
	}
	if x.Planned != nil {
		fmt.Fprintf(&b, "Planned start: %s\nActual start: %s (%s)\n", x.Planned.UTC().Format(time.RFC3339),
			x.Started.UTC().Format(time.RFC3339), offBy(x.Started.Sub(*x.Planned))) // times in seconds
	}
	if x.Saved != "" {
		fmt.Fprintf(&b, "Saved: %s\n", x.Saved)
	}
	for _, w := range x.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", w)
	}
	x.textNowAndThen(&b, bold)
	section := func(title string, rows *report.Table) {
		if len(rows.Rows) > 0 {
			fmt.Fprintf(&b, "\n%s\n%s\n", bold(title), rows.Open())
		}
	}
	settings := report.Heads(3, "setting", "value", "from")
	for _, s := range x.Settings {
		settings.Add(s.Name, humanize.Plain(s.Value, x.now), s.From)
	}
	section("Settings", settings)
	budgets := report.Heads(2, "budget", "period", "used %", "new workloads wait until", "suspended")
	for _, u := range x.Budgets {
		budgets.Add(u.Name, u.Period, u.Percent, u.ClosedUntil, int(u.Suspended))
	}
	section("Budgets", budgets)
	signals := report.Heads(7, "zone", "quantity", "now", "age", "source", "forecast by", "quality")
	for _, s := range x.Signals {
		signals.Add(s.Zone, s.Quantity, cmdutil.ValueOf(s.Now, s.Unit), s.Age, s.Source, s.Forecast, s.Quality)
	}
	section("Signals", signals)
	if x.Placement != nil {
		textPlacement(x.Placement, &b, bold)
	}
	events := report.Heads(3, "time", "event", "message")
	for _, e := range x.Events {
		events.Add(e.At, e.Reason, humanize.Plain(e.Text, x.now))
	}
	section("Events", events)
	for _, u := range x.Unseen {
		fmt.Fprintf(&b, "\nNot readable: %s\n", u)
	}
	return b.String()
}

// offBy formats the delay of a start relative to its plan.
func offBy(late time.Duration) string {
	switch {
	case late > 0:
		return humanize.Rounded(late) + " later"
	case late < 0:
		return humanize.Rounded(-late) + " earlier"
	}
	return "as planned"
}

func (x *Explanation) textNowAndThen(b *strings.Builder, bold func(string) string) {
	if x.Decision == nil {
		return
	}
	fmt.Fprintf(b, "\n%s\n", bold("Current decision"))
	fmt.Fprintf(b, "%s: %s\n", x.Decision.Reason, x.Decision.Text)
	together := func(s dashboard.Setting) bool { return s.Name == "hold.rule" && sched.StartRules[s.Value].Together }
	if slices.ContainsFunc(x.Settings, together) && x.Decision.Reason != sched.PlannedLater.String() {
		fmt.Fprintln(b, "This is the decision for this workload alone. A joint plan also considers other workloads.")
	}
	rows := report.Heads(6, "site", "gCO2e/kWh\nnow", "mean if\nstarted now", "mean if\nstarted then",
		"price if\nstarted now", "price if\nstarted then")
	if !slices.ContainsFunc(x.Compare, func(c dashboard.Comparison) bool { return c.PriceOver != nil }) {
		rows.Columns = rows.Columns[:4] // no site has a price
	}
	for _, c := range x.Compare {
		rows.Add(c.Site, figure(c.CarbonNow, "%.0f"), figure(c.CarbonOver, "%.0f"), figure(c.CarbonThen, "%.0f"),
			figure(c.PriceOver, "%.4g"), figure(c.PriceThen, "%.4g"))
	}
	if len(rows.Rows) > 0 {
		fmt.Fprintln(b, rows.Open())
	}
}

func textPlacement(p *dashboard.Placement, b *strings.Builder, bold func(string) string) {
	if p.Unused != "" {
		fmt.Fprintf(b, "\n%s\nNodes are not ranked: %s.\n", bold("Placement"), p.Note)
		return
	}
	fmt.Fprintf(b, "\n%s\n", bold("Nodes ranked by "+p.Title()))
	rows := report.Heads(7, "rank", "node", "site", "cost", "gCO2e", "Wh", "profile")
	for _, r := range p.Ranked[:min(len(p.Ranked), maxRows)] {
		rank := "–"
		if r.Rank > 0 {
			rank = strconv.Itoa(r.Rank)
		}
		site := r.Site
		if r.Zone != "" && r.Zone != r.Site {
			site += " (" + r.Zone + ")"
		}
		rows.Add(rank, r.Node, site, figure(r.Cost, "%.4g"), figure(r.Grams, "%.1f"), figure(r.WattHours, "%.1f"),
			cmp.Or(r.Profile, "–"))
	}
	if len(rows.Rows) > 0 {
		fmt.Fprintln(b, rows.Open())
	} else {
		fmt.Fprintln(b, "No node is feasible.")
	}
	if more := len(p.Ranked) - len(rows.Rows); more > 0 {
		fmt.Fprintf(b, "and %s more (-o json shows all)\n", humanize.Count(more, "node"))
	}
	for i, o := range p.Out {
		if i == maxRows {
			fmt.Fprintf(b, "excluded: and %s more\n", humanize.Count(len(p.Out)-i, "node"))
			break
		}
		fmt.Fprintf(b, "excluded: %s: %s\n", o.Node, o.Why)
	}
	fmt.Fprintf(b, "Note: values are estimates; %s.\n", p.Note)
}

func figure(v *float64, format string) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf(format, *v)
}
