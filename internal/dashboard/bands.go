package dashboard

import (
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// copies adds equivalents of the band: a command, a Prometheus query, and a request to the controller's HTTP API as
// documented in docs/reference/api.md.
func (b *band) copies(command, promQL, path string) {
	b.Copies = []copied{{"CLI", command}, {"PromQL", promQL}, {"curl", "curl --cacert ca.crt --connect-to " +
		"kubenergy-controller.kubenergy-system.svc:9443:localhost:9443 -H \"Authorization: Bearer $(kubectl -n " +
		"kubenergy-system create token kubenergy-viewer --audience kubenergy)\" " +
		"'https://kubenergy-controller.kubenergy-system.svc:9443/api/v1/" + path + "'"}}
}

func (m *Model) gridBand() band {
	b := band{
		ID: "grid", Name: "Grid", Empty: "No carbon intensity or price is available.", Sentence: "unknown",
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
		Caption: "Grid: carbon intensity and price, means of each interval",
		Header:  columns(1, "from (UTC)"),
	}
	for i, z := range m.Zones {
		if i < maxLines {
			b.Keys = append(b.Keys, keyed{z.Name, fmt.Sprintf("k-c%d", i)})
		}
		for _, s := range z.signals() {
			b.Table.Header = append(b.Table.Header, column{z.Name + ", " + s.Unit, true})
			if i == 0 {
				b.Notes = append(b.Notes, note{s.Unit + ": " + s.provenance() + ".", s.Stale})
			}
		}
	}
	if len(m.Zones) > 0 {
		z := &m.Zones[0]
		said := sliceutil.Map(z.signals(), func(q quantity) string { return m.gridSentence(q.Signal) })
		b.Sentence = z.Name + ": " + strings.Join(said, ". ") + "."
	}
	for from, to := range m.slots() {
		cells := []string{stamp(from)}
		for i := range m.Zones {
			for _, s := range m.Zones[i].signals() {
				cells = append(cells, shown(s.Mean(from, to)))
			}
		}
		b.Table.Rows = append(b.Table.Rows, row{Cells: cells})
	}
	return b
}

func shown(v float64, ok bool) string {
	if !ok {
		return "–"
	}
	return humanize.Significant(v)
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

func stampOf(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "–"
	}
	return stamp(*t)
}

// slots returns the intervals of the table rows, which are whole minutes, hours, days or weeks. Their number is
// limited so that people can read the table. The first and the last interval are cut to the time range of the page.
func (m *Model) slots() iter.Seq2[time.Time, time.Time] {
	const most = 100
	step := time.Minute
	for _, longer := range []time.Duration{
		5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour,
	} {
		if m.To.Sub(m.From)/step > most {
			step = longer
		}
	}
	return func(yield func(from, to time.Time) bool) {
		for t := m.From.Truncate(step); t.Before(m.To); t = t.Add(step) {
			if !yield(timeutil.Later(t, m.From), timeutil.Earlier(t.Add(step), m.To)) {
				return
			}
		}
	}
}

func (m *Model) powerBand() band {
	b := band{
		ID: "power", Name: "Watts", Plot: drawPower(m), Sentence: m.powerSentence(),
		Empty: "No node reports its power, and no energy was booked in this period.",
	}
	if !m.Past {
		b.copies("kubenergy top nodes", "sum(kubenergy_node_power_watts)", fmt.Sprintf(
			"ledger?groupBy=hour,kind&from=%s&to=%s", m.From.Format(time.RFC3339), m.To.Format(time.RFC3339)))
	}
	if m.Power == nil {
		return b
	}
	lines := m.Power.lines()
	used, _ := lines[allParts].kWh(m.From, m.To)
	for i, part := range parts {
		if sum, _ := lines[i].kWh(m.From, m.To); sum > 0 {
			b.Keys = append(b.Keys, keyed{part.name + " " + percent(sum/used), part.class})
		}
	}
	if m.Power.Baseline != nil {
		b.Keys = append(b.Keys, keyed{m.Power.Instead, "k-instead"})
	}
	if m.Power.Estimated > 0 {
		b.Keys = append(b.Keys, keyed{"estimated " + percent(m.Power.Estimated), "k-guessed"})
	}
	b.Table = &table{
		Caption: "Power of all machines, " + m.Power.Where + ", means of each interval",
		Header: columns(1, "from (UTC)", "for work, W", "idle, W", "asleep, W", "unknown, W", "all, W",
			"estimated, W"),
	}
	if m.Power.Baseline != nil {
		b.Table.Header = append(b.Table.Header, column{m.Power.Instead, true})
	}
	for from, to := range m.slots() {
		if _, seconds := lines[allParts].mean(from, to); seconds == 0 {
			continue
		}
		cells := []string{stamp(from)}
		for _, k := range []int{2, 1, 0, 3, allParts, estimated} { // the parts from top to bottom
			mean, _ := lines[k].mean(from, to)
			cells = append(cells, humanize.Significant(mean))
		}
		if m.Power.Baseline != nil {
			cells = append(cells, shown(m.Power.Baseline.Mean(from, to)))
		}
		b.Table.Rows = append(b.Table.Rows, row{Cells: cells})
	}
	return b
}

func (m *Model) workBand(whole bool) band {
	jobs := m.within(m.heldJobs())
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
		if i == maxLines {
			b.Keys = append(b.Keys, keyed{"others", "t6"})
			break
		}
		b.Keys = append(b.Keys, keyed{shortened(name), class[name]})
	}
	switch {
	case len(jobs) > maxBars:
		b.Notes = append(b.Notes, note{"Planned starts per interval.", false})
	case len(jobs) > 0:
		b.Notes = append(b.Notes, note{"Line: creation to deadline. Bar: planned run. Solid bar: actual run.", false})
	}
	b.Table.fill(len(jobs), whole, func(i int) row { return m.jobRow(jobs[i]) })
	return b
}

func (m *Model) jobRow(j *Job) row {
	return row{Links: map[int]string{0: jobLink(m, j)}, Cells: []string{
		j.path(), j.team(), stamp(j.Since), stampOf(j.PlannedStart), stampOf(j.LatestStart), stampOf(j.Started),
		humanize.Plain(Briefly(j.Why), m.Now),
	}}
}
