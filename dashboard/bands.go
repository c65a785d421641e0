package dashboard

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/report"
)

func (p *page) exports(b *band) {
	b.CSV = address("/csv", p.query, "run", "from", "to", "of="+b.ID)
	b.SVG = address("/svg", p.query, "run", "from", "to", "of="+b.ID)
}

// copies gives a band what says the same elsewhere: a command, a query of Prometheus, and a request to the controller's
// HTTP interface as docs/reference/api.md has it.
func (b *band) copies(command, promQL, path string) {
	b.Copies = []copied{{"CLI", command}, {"PromQL", promQL}, {"curl", "curl --cacert ca.crt --connect-to " +
		"kubenergy-controller.kubenergy-system.svc:9443:localhost:9443 -H \"Authorization: Bearer $(kubectl -n " +
		"kubenergy-system create token kubenergy-viewer --audience kubenergy)\" " +
		"'https://kubenergy-controller.kubenergy-system.svc:9443/api/v1/" + path + "'"}}
}

func (m *Model) gridBand(p *page) band {
	b := band{
		ID: "grid", Name: "Grid", Empty: "No carbon intensity and no price is known.", Sentence: "unknown",
		Plot:   drawGrid(m, "carbon", "Carbon intensity over time", func(z *Zone) *Signal { return z.Carbon }),
		Second: drawGrid(m, "price", "Price over time", func(z *Zone) *Signal { return z.Price }),
	}
	if b.Plot == "" {
		b.Plot, b.Second = b.Second, ""
	}
	if !m.Past {
		b.copies("kubenergy forecast", "kubenergy_grid_carbon_intensity_grams_per_kilowatthour", "zones")
	}
	b.Table = &table{
		Caption: "Grid: carbon intensity and price, hour by hour",
		Header:  columns(1, "time (UTC)"),
	}
	for i := range m.Zones {
		z := &m.Zones[i]
		if i < mostLines {
			b.Keys = append(b.Keys, keyed{z.Name, fmt.Sprintf("k-c%d", i)})
		}
		for _, s := range []*Signal{z.Carbon, z.Price} {
			if s == nil {
				continue
			}
			b.Table.Header = append(b.Table.Header, column{z.Name + ", " + s.Unit, true})
			if i == 0 {
				b.Notes = append(b.Notes, note{s.Unit + ": " + s.provenance() + ".", s.Stale})
			}
		}
	}
	if len(m.Zones) > 0 {
		z := &m.Zones[0]
		if z.Carbon != nil {
			b.Sentence = z.Name + ": " + m.gridSentence(z.Carbon)
		}
		if z.Price != nil {
			b.Sentence += ". " + m.gridSentence(z.Price)
		}
		b.Sentence += "."
	}
	for _, t := range m.hours() {
		cells := []string{stamp(t)}
		for i := range m.Zones {
			for _, s := range []*Signal{m.Zones[i].Carbon, m.Zones[i].Price} {
				if s != nil {
					cells = append(cells, shown(s.At(t)))
				}
			}
		}
		b.Table.Rows = append(b.Table.Rows, row{Cells: cells})
	}
	p.exports(&b)
	return b
}

func shown(v float64, ok bool) string {
	if !ok {
		return "–"
	}
	return report.Significant(v)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func stampOf(t *time.Time) string {
	if t == nil {
		return "–"
	}
	return stamp(*t)
}

// hours are the instants that tables have rows for: whole hours, so many that a person may read them.
func (m *Model) hours() (all []time.Time) {
	step := time.Hour
	for m.To.Sub(m.From)/step > 100 {
		step *= 2
	}
	for t := m.From.Truncate(step); t.Before(m.To); t = t.Add(step) {
		if !t.Before(m.From) {
			all = append(all, t)
		}
	}
	return all
}

func (m *Model) powerBand(p *page) band {
	b := band{
		ID: "power", Name: "Watts", Plot: drawPower(m), Sentence: m.powerSentence(),
		Empty: "No node reports what it draws, and nothing was booked in this time.",
	}
	if !m.Past {
		b.copies("kubenergy top nodes", "sum(kubenergy_node_power_watts)", fmt.Sprintf(
			"ledger?groupBy=hour,kind&from=%s&to=%s", m.From.Format(time.RFC3339), m.To.Format(time.RFC3339)))
	}
	if m.Power == nil {
		return b
	}
	sums, used := m.Power.sums(m)
	for i, part := range parts {
		if sums[i] > 0 {
			b.Keys = append(b.Keys, keyed{part.name + " " + percent(sums[i]/used), part.class})
		}
	}
	if m.Power.Baseline != nil {
		b.Keys = append(b.Keys, keyed{m.Power.Instead, "k-instead"})
	}
	if m.Power.Estimated > 0 {
		b.Keys = append(b.Keys, keyed{"estimated " + percent(m.Power.Estimated), "k-guessed"})
	}
	b.Table = &table{
		Caption: "Watts of all machines, " + m.Power.Where,
		Header:  columns(1, "time (UTC)", "for work", "idle", "asleep", "unknown", "all", "estimated"),
	}
	if m.Power.Baseline != nil {
		b.Table.Header = append(b.Table.Header, column{m.Power.Instead, true})
	}
	for _, t := range m.hours() {
		w, ok := m.Power.at(t)
		if !ok {
			continue
		}
		cells := []string{stamp(t)}
		for _, v := range []float64{w.Dynamic, w.Idle, w.Asleep, w.Unknown, w.Total()} {
			cells = append(cells, report.Significant(v))
		}
		cells = append(cells, percent(w.Estimated))
		if m.Power.Baseline != nil {
			cells = append(cells, shown(m.Power.Baseline.At(t)))
		}
		b.Table.Rows = append(b.Table.Rows, row{Cells: cells})
	}
	p.exports(&b)
	return b
}

func (p *Power) at(t time.Time) (w Watts, ok bool) {
	for i := range p.Points {
		if !t.Before(p.Points[i].At) && t.Before(p.end(i)) {
			return p.Points[i], true
		}
	}
	return w, false
}

func (m *Model) workBand(p *page) band {
	all := m.heldJobs()
	jobs := m.within(all)
	b := band{
		ID: "work", Name: "Work", Plot: drawWork(m), Sentence: m.workSentence(), Empty: m.workSentence(),
		Table: &table{
			Caption: "Held Jobs, by planned start", Limit: 500,
			Header: columns(7, "Job", "team", "created", "planned start", "latest start", "started", "why"),
		},
	}
	if !m.Past {
		b.copies("kubenergy held -A", "sum by (namespace) (kubenergy_held_jobs)", "decisions?action=hold")
	}
	names, class := teams(jobs)
	for i, name := range names {
		if i == mostLines {
			b.Keys = append(b.Keys, keyed{"others", "t6"})
			break
		}
		b.Keys = append(b.Keys, keyed{shortened(name), class[name]})
	}
	switch {
	case len(jobs) > mostBars:
		b.Notes = append(b.Notes, note{"Starts planned in each interval.", false})
	case len(jobs) > 0:
		b.Notes = append(b.Notes, note{"Line: created to deadline. Bar: planned; solid: ran.", false})
	}
	b.Table.fill(len(jobs), p.whole, func(i int) row { return m.jobRow(jobs[i]) })
	p.exports(&b)
	return b
}

func (m *Model) jobRow(j *Job) row {
	return row{Links: map[int]string{0: jobLink(m, j)}, Cells: []string{
		j.path(), j.team(), stamp(j.Since), stampOf(j.PlannedStart), stampOf(j.LatestStart), stampOf(j.Started),
		because(j.Why),
	}}
}
