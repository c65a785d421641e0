package dashboard

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Origin contains the parts of the consumption of a namespace, or of one of its owners.
type Origin struct {
	Nodes, Hours []ledger.Row      // keyed by node and by hour
	Total        ledger.Row        // total of Nodes, and of Hours
	Meters       map[string]string // by node: the current source of its power
	Command      string
}

// originLink returns the URL of the page with the breakdown of a figure.
func originLink(cluster, namespace, owner string) string {
	return "/origin?" + url.Values{"cluster": {cluster}, "namespace": {namespace}, "owner": {owner}}.Encode()
}

// pathOf returns a name with its cluster or namespace, if it has one.
func pathOf(place, name string) string { return strings.TrimPrefix(place+"/"+name, "/") }

// origin fills the page with the breakdown of a figure, from meters to nodes and hours, emissions and cost.
func (p *page) origin(o *Origin, namespace, owner string) {
	name := pathOf(p.asked.Cluster, cmp.Or(owner, namespace))
	p.View, p.Heading = "origin", "Origin of the energy of "+name
	t := &o.Total
	kWh, site := t.Energy().Joules().KWh(), t.Facility.Joules().KWh()
	text := fmt.Sprintf("%s kWh were booked on %s, from %s to %s; %s of it is estimated.", humanize.Significant(kWh),
		humanize.Count(len(o.Nodes), "node"), stamp(t.First), stamp(t.Last), percent(t.EstimatedShare()))
	if kWh > 0 {
		text += fmt.Sprintf(" Multiplied by a PUE of %.3g, this is %s kWh at the sites' meters.", site/kWh,
			humanize.Significant(site))
	}
	if grams := float64(t.Carbon.Grams()); len(t.Emissions) == 1 && site > 0 {
		text += fmt.Sprintf(" Multiplied by the carbon intensity of each window, %s gCO2e/kWh on average, "+
			"this is %s gCO2e.", short(grams/site), humanize.Significant(grams))
	}
	p.Said = []string{text, "A meter reports the joules of an interval. The node's agent divides them by the " +
		"CPU time of pods, and idle energy by requests, and sends them as a batch. The controller books batches " +
		"in windows of five minutes. The hours below add up to the total, as do the nodes."}
	p.Tables = []*table{
		p.originTable("By node", "node", o.Nodes, o.Meters), p.originTable("By hour (UTC)", "hour", o.Hours, nil),
	}
	p.Commands = []string{o.Command}
}

func (p *page) originTable(caption, key string, rows []ledger.Row, meters map[string]string) *table {
	t := &table{Caption: caption, Limit: 200, Header: columns(1, key, "kWh for work", "idle kWh", "PUE",
		"kWh at the site", "gCO2e/kWh", "gCO2e", "cost", "estimated")}
	if meters != nil {
		t.Header = append(t.Header, column{Name: "current source"})
	}
	t.fill(len(rows), p.whole, func(i int) row {
		r := &rows[i]
		site, grams := r.Facility.Joules().KWh(), float64(r.Carbon.Grams())
		cells := []string{
			r.Key[0], expected(r.Dynamic.Joules().KWh()), expected(r.Idle.Joules().KWh()),
			ratio(site, r.Energy().Joules().KWh()), expected(site), ratio(grams, site), expected(grams),
			expected(r.Cost.Money()), percent(r.EstimatedShare()),
		}
		if at, err := time.Parse(time.RFC3339, r.Key[0]); err == nil {
			cells[0] = stamp(at)
		}
		if meters != nil {
			cells = append(cells, cmp.Or(meters[r.Key[0]], "–"))
		}
		return row{Cells: cells}
	})
	return t
}

func ratio(a, b float64) string {
	if b == 0 {
		return "–"
	}
	return short(a / b)
}
