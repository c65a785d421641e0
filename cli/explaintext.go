package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// maxRows are the nodes that a terminal shows; other formats show all.
const maxRows = 15

// text writes the explanation for people.
func (x *explanation) text(t terminal) error {
	var b strings.Builder
	bold := func(s string) string {
		if t.colours(t.out) {
			return "\x1b[1m" + s + "\x1b[0m"
		}
		return s
	}
	fmt.Fprintf(&b, "%s: %s\n", bold(x.Object+" "+x.Namespace+"/"+x.Name), x.State)
	fmt.Fprintln(&b, x.Sentence)
	if x.LatestStart != nil {
		fmt.Fprintf(&b, "Latest start: %s\n", x.LatestStart.UTC().Format(time.RFC3339))
	}
	for _, w := range x.Warnings {
		fmt.Fprintf(&b, "Warning: %s\n", w)
	}
	x.textNowAndThen(&b, bold)
	if len(x.Settings) > 0 {
		rows := make([]table.Row, len(x.Settings))
		for i, s := range x.Settings {
			rows[i] = table.Row{s.Name, s.Value, s.From}
		}
		fmt.Fprintf(&b, "\n%s\n%s\n", bold("Settings"), columns(table.Row{"setting", "value", "from"}, rows))
	}
	if len(x.Signals) > 0 {
		rows := make([]table.Row, len(x.Signals))
		for i, s := range x.Signals {
			rows[i] = table.Row{s.Zone, s.Quantity, valueOf(s.Now, s.Unit), s.Age, s.Source, s.Forecast, s.Quality}
		}
		fmt.Fprintf(&b, "\n%s\n%s\n", bold("Signals"),
			columns(table.Row{"zone", "quantity", "now", "age", "source", "forecast by", "quality"}, rows))
	}
	if x.Placement != nil {
		x.Placement.text(&b, bold)
	}
	for _, u := range x.Unseen {
		fmt.Fprintf(&b, "\nNot seen: %s\n", u)
	}
	_, err := t.out.Write([]byte(b.String()))
	return err
}

func (x *explanation) textNowAndThen(b *strings.Builder, bold func(string) string) {
	if x.Decision == nil {
		return
	}
	fmt.Fprintf(b, "\n%s\n", bold("Decided now"))
	fmt.Fprintf(b, "%s: %s\n", x.Decision.Reason, x.Decision.Text)
	rows := make([]table.Row, 0, len(x.Compare))
	priced := false
	for _, c := range x.Compare {
		priced = priced || c.PriceOver != nil
	}
	for _, c := range x.Compare {
		row := table.Row{
			c.Site, figure(c.CarbonNow, "%.0f"), figure(c.CarbonOver, "%.0f"), figure(c.CarbonThen, "%.0f"),
		}
		if priced {
			row = append(row, figure(c.PriceOver, "%.4g"), figure(c.PriceThen, "%.4g"))
		}
		rows = append(rows, row)
	}
	if len(rows) > 0 {
		header := table.Row{"site", "gCO2e/kWh\nnow", "over its run,\nstarted now", "over its run,\nstarted then"}
		if priced {
			header = append(header, "price,\nstarted now", "price,\nstarted then")
		}
		fmt.Fprintln(b, columns(header, rows))
	}
}

func (p *placement) text(b *strings.Builder, bold func(string) string) {
	fmt.Fprintf(b, "\n%s\n", bold("Nodes by "+p.Strategy))
	var rows []table.Row
	for i, r := range p.Ranked {
		if i == maxRows {
			break
		}
		rank := "–"
		if r.Rank > 0 {
			rank = strconv.Itoa(r.Rank)
		}
		site := r.Site
		if r.Zone != "" && r.Zone != r.Site {
			site += " (" + r.Zone + ")"
		}
		rows = append(rows, table.Row{
			rank, r.Node, site, figure(r.Cost, "%.4g"), figure(r.Grams, "%.1f"), figure(r.WattHours, "%.1f"),
			orDash(r.Profile),
		})
	}
	if len(rows) > 0 {
		fmt.Fprintln(b, columns(table.Row{"rank", "node", "site", "cost", "gCO2e", "Wh", "profile"}, rows))
	} else {
		fmt.Fprintln(b, "No node could take it.")
	}
	if more := len(p.Ranked) - len(rows); more > 0 {
		fmt.Fprintf(b, "and %s more (-o json shows all)\n", count(more, "node"))
	}
	for i, o := range p.Out {
		if i == maxRows {
			fmt.Fprintf(b, "out: and %s more\n", count(len(p.Out)-i, "node"))
			break
		}
		fmt.Fprintf(b, "out: %s: %s\n", o.Node, o.Why)
	}
	fmt.Fprintf(b, "Estimated; %s.\n", p.Note)
}

func figure(v *float64, format string) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf(format, *v)
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// columns lays out rows. It has no frame: what people paste into a ticket is to stay readable.
func columns(header table.Row, rows []table.Row) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Options = table.OptionsNoBordersAndSeparators
	t.AppendHeader(header)
	t.AppendRows(rows)
	lines := strings.Split(t.Render(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
