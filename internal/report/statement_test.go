package report

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewriteStatements = flag.Bool("rewrite-statements", false,
	"rewrite the golden files of statements; read the diff before committing it")

// recorder is a strategy that records its decisions, as the scheduler does.
type recorder struct {
	t        *testing.T
	strategy *strategy.Greedy
	records  []ledger.Record
}

func (r *recorder) Plan(s *sched.Snapshot) sched.Plan {
	plan := r.strategy.Plan(s)
	d := &plan[0]
	action := actionPlace
	switch {
	case d.Held(s.Now):
		action = actionHold
	case d.Node == "":
		return plan // no capacity
	}
	one := record(r.t, action, d.Job, s.Now, d.Node, s)
	one.Strategy = "carbon"
	r.records = append(r.records, one)
	return plan
}

// The test converts the simulator's snapshots to records and its jobs to energy in a ledger, and reports on them.
// No energy must be lost, and savings must be the estimated ones, corrected by the meters.
func TestFromDecisionsToAReport(t *testing.T) {
	day := []float64{
		300, 280, 250, 240, 260, 320, 400, 450, 420, 350, 250, 180, 150, 140, 150, 200, 300, 400, 480, 500, 460, 420,
		380, 330,
	}
	series := func(shift int) *grid.Series {
		var values []float64
		for i := range 72 {
			values = append(values, day[(i+shift)%24])
		}
		s, err := grid.NewSeries(morning.Truncate(24*time.Hour), time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	sites := []*sched.Site{
		{Name: "north", PUE: 1.2, Carbon: grid.Signal{Series: series(0)}},
		{Name: "south", PUE: 1.5, Carbon: grid.Signal{Series: series(5)}},
	}
	scenario := &sim.Scenario{Start: morning, Sites: sites}
	for i := range 8 {
		room := sched.Resources{MilliCPU: 16000, Memory: 64 << 30}
		scenario.Nodes = append(scenario.Nodes, sched.Node{
			Name: fmt.Sprint("n", i), Site: sites[i%2], Capacity: room, Free: room,
			Profile: &energy.Profile{
				Idle: energy.Watts(60 + 10*i), Max: energy.Watts(200 + 60*i), Exponent: 1.2, Sleep: 20,
			},
		})
	}
	for i := range 60 {
		scenario.Jobs = append(scenario.Jobs, sched.Job{
			ID: fmt.Sprintf("j%02d", i), Submitted: morning.Add(time.Duration(i) * 5 * time.Minute),
			Duration:     time.Duration(20+i%5*25) * time.Minute,
			AllowedDelay: time.Duration(i%3) * 3 * time.Hour, Request: sched.Resources{
				MilliCPU: int64(1000 + i%4*1000), Memory: 1 << 30,
			},
		})
	}
	name, err := strategy.New("carbon+window")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{t: t, strategy: name}
	result, err := sim.Run(t.Context(), scenario, "carbon+window", r)
	if err != nil {
		t.Fatal(err)
	}
	var store ledgertest.Store
	const drawn = 1.25 // relative to the estimate
	var facility float64
	for i := range result.Outcomes {
		facility += bookJob(t, &store, scenario, &result.Outcomes[i], drawn)
	}
	late := result.End.Add(time.Hour) // later bookings show that the last job has finished
	_, errs, err := store.Book(t.Context(), []*ledger.Booking{{
		Batch: &batch.Batch{
			Version: 1, Stream: batch.Stream{Node: "n0", Boot: "b", Epoch: "e"}, First: 1, Last: 1, Start: late,
			End:          late.Add(time.Minute),
			EndSinceBoot: time.Minute, Source: "psys", Quality: energy.Measured, IdlePolicy: "apart", Measured: 60e6,
			Idle: 60e6,
		},
		Rates: ledger.Rates{Site: "north", PUE: 1.2, Carbon: math.NaN(), Price: math.NaN()},
	}})
	if err != nil || errs[0] != nil {
		t.Fatal(err, errs)
	}
	ask := func(q ledger.Query) *ledger.Answer {
		a, err := store.Query(t.Context(), &q)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	q := ledger.Query{From: morning, To: morning.Add(48 * time.Hour), GroupBy: []ledger.Dimension{ledger.ByStrategy}}
	uids, owners, bySites := Queries(&q)
	e := &Evidence{Records: r.records, UIDs: ask(uids), Owners: ask(owners), Sites: ask(bySites)}
	c, err := Compare(e, DefaultBaseline, q.From, 1)
	if err != nil {
		t.Fatal(err)
	}
	s := NewStatement(ask(q), e, c)
	if c.Jobs != 60 || len(c.Left) != 0 || c.Held == 0 {
		t.Fatalf("got %d compared jobs, %d held jobs, and %v without a comparison", c.Jobs, c.Held, c.Left)
	}
	const joule = 1 / 3.6e6
	if math.Abs(s.Rows[1].FacilityKWh-facility) > 60*joule ||
		math.Abs(c.Total.Energy.Used-s.Rows[1].FacilityKWh) > joule {
		t.Errorf("booked %v kWh, got %v in the statement and %v in the savings", facility, s.Rows[1].FacilityKWh,
			c.Total.Energy.Used)
	}
	if used := c.Total.Emissions["average"].Used; math.Abs(used-s.Total.EmissionsKg["average"]) > 1e-6 {
		t.Errorf("got %v kg in the savings, %v in the statement", used, s.Total.EmissionsKg["average"])
	}
	var estimate float64
	for i := range r.records {
		if r.records[i].Action == actionPlace {
			snapshot, err := ReadSnapshot(&r.records[i])
			if err != nil {
				t.Fatal(err)
			}
			plan, err := replay(snapshot, DefaultBaseline)
			if err != nil {
				t.Fatal(err)
			}
			estimate += plan[0].Cost.Energy.KWh()
		}
	}
	if got := c.Total.Energy.Baseline; math.Abs(got-drawn*estimate) > 1e-4*got {
		t.Errorf("the baseline used %v kWh, want %v", got, drawn*estimate)
	}
	if c.Total.Emissions["average"].Saved <= 0 || c.Total.Energy.Low == nil {
		t.Errorf("unexpected savings: %+v", c.Total)
	}
	if s.Total.Jobs != 60 || s.Rows[1].Jobs != 60 {
		t.Fatalf("got %d finished jobs in total, %d in the row", s.Total.Jobs, s.Rows[1].Jobs)
	}
	var turnaround time.Duration
	for i := range result.Outcomes {
		turnaround += result.Outcomes[i].Finish.Sub(scenario.Jobs[i].Submitted)
	}
	if want := turnaround.Hours() / 60; math.Abs(*s.Total.TurnaroundHours-want) > 0.01 {
		t.Errorf("got a turnaround of %v h, want %v", *s.Total.TurnaroundHours, want)
	}
	if s.Rows[1].Saved == nil || s.Rows[1].Key[0] != "carbon" {
		t.Errorf("unexpected row of the strategy: %+v", s.Rows[1])
	}
}

// bookJob books the energy of a job hour by hour at the intensity of its site. It returns the energy in kWh at the
// site's meter.
func bookJob(t *testing.T, store *ledgertest.Store, scenario *sim.Scenario, o *sim.Outcome, drawn float64) float64 {
	t.Helper()
	var node *sched.Node
	for i := range scenario.Nodes {
		if scenario.Nodes[i].Name == o.Placed.Node {
			node = &scenario.Nodes[i]
		}
	}
	id := scenario.Jobs[o.Job].ID
	total := float64(o.Placed.Cost.Energy) / node.Facility() * drawn * 1e6
	stream := batch.Stream{Node: node.Name, Boot: id, Epoch: id}
	number := uint64(0)
	for from := o.Start; from.Before(o.Finish); {
		to := from.Truncate(time.Hour).Add(time.Hour)
		if to.After(o.Finish) {
			to = o.Finish
		}
		share := energy.Microjoules(total * to.Sub(from).Seconds() / o.Finish.Sub(o.Start).Seconds())
		number++
		b := &ledger.Booking{
			Batch: &batch.Batch{
				Version: 1, Stream: stream, First: number, Last: number, Start: from, End: to,
				StartSinceBoot: from.Sub(o.Start), EndSinceBoot: to.Sub(o.Start), Source: "psys",
				Quality: energy.Measured, IdlePolicy: "apart",
				Measured: share, Shares: []energy.Share{{ID: "pod/pod-of-" + id, Dynamic: share}},
			},
			Received: to,
			Consumers: []*ledger.Consumer{{Key: "pod/pod-of-" + id, Pod: id, Account: ledger.Account{
				Kind: ledger.Workload, Namespace: "a", OwnerKind: "Job", Owner: id, Strategy: "carbon",
			}}},
			Rates: ledger.Rates{
				Site: node.Site.Name, PUE: node.Facility(), Carbon: node.Site.Carbon.Series.Mean(from, to),
				Signal: "average", Price: math.NaN(),
			},
		}
		_, errs, err := store.Book(context.Background(), []*ledger.Booking{b})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
		from = to
	}
	return float64(o.Placed.Cost.Energy.KWh()) * drawn
}

// statement returns a report with all features.
func statement(t *testing.T) *Statement {
	t.Helper()
	records = 0
	e := many(t, 12)
	for i := range e.Records {
		e.Records[i].Strategy = []string{"carbon", "energy"}[i%2]
	}
	e.Records = append(e.Records, record(t, actionPlace, "bare", morning, "thrifty", nil))
	c := compare(t, e, DefaultBaseline)
	a := answer([]ledger.Dimension{ledger.ByStrategy},
		booked([]string{""}, 10, 420, 0.3, morning.Add(11*time.Hour)),
		booked([]string{"carbon"}, 5.5, 400, 0.3, morning.Add(time.Hour)),
		booked([]string{"energy"}, 6.5, 400, 0.3, morning.Add(time.Hour)))
	a.Rows[0].Estimated = a.Rows[0].Dynamic / 2
	a.Rows[0].Uncharted = a.Rows[0].Facility / 10
	for i := range a.Rows {
		a.Total.Include(&a.Rows[i])
	}
	a.Total.Unmeasured = 3 * time.Minute
	s := NewStatement(a, e, c)
	s.Filters = map[string][]string{"namespace": {"a", "b"}}
	return s
}

func TestStatementFormats(t *testing.T) {
	s := statement(t)
	for _, format := range []string{"table", "wide", "csv", "json", "html"} {
		t.Run(format, func(t *testing.T) {
			var b bytes.Buffer
			if err := Write(&b, s, format, false); err != nil {
				t.Fatal(err)
			}
			kit.Golden(t, filepath.Join("testdata", "statement."+format), b.Bytes(), *rewriteStatements)
		})
	}
	if err := Write(io.Discard, s, "xml", false); err == nil {
		t.Error("Write() in an unknown format returned no error")
	}
}

func TestStatementPageIsSelfContained(t *testing.T) {
	s := statement(t)
	s.Rows[1].Key[0] = `<script>alert("x")</script>`
	s.Rows[2].Key[0] = "javascript:alert(1)"
	var b bytes.Buffer
	if err := Write(&b, s, "html", false); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	if m := regexp.MustCompile(`(?i)<script|src=|href=|url\(|https?://|@import|javascript:alert\(1\)"`).FindString(
		strings.ReplaceAll(page, `javascript:alert(1)<`, "<")); m != "" {
		t.Errorf("the page contains %q", m)
	}
	d := xml.NewDecoder(strings.NewReader(strings.Replace(page, "<!DOCTYPE html>", "", 1)))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	captions, headers := 0, 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			switch e.Name.Local {
			case "caption":
				captions++
			case "th":
				headers++
				if len(e.Attr) == 0 || e.Attr[0].Name.Local != "scope" {
					t.Error("a table header has no scope")
				}
			}
		}
	}
	if captions != 2 || headers == 0 {
		t.Errorf("got %d captions and %d headers", captions, headers)
	}
	for _, want := range []string{"least-allocated", "kWh", "estimated", "lang=\"en\""} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
}

// Rows that are grouped by a dimension and by time are drawn as a heat map of mean watts. The last hour only counts
// as far as it was booked.
func TestStatementHeatmap(t *testing.T) {
	a := answer([]ledger.Dimension{ledger.ByNode, ledger.ByHour},
		booked([]string{"small", stamp(morning)}, 1, 400, 0.3, morning),
		booked([]string{"big", stamp(morning)}, 2, 400, 0.3, morning),
		booked([]string{"big", stamp(morning.Add(2 * time.Hour))}, 0.5, 400, 0.3, morning),
		booked(nil, 9, 400, 0.3, morning))
	a.From, a.To, a.AsOf = morning, morning.Add(3*time.Hour), morning.Add(2*time.Hour+15*time.Minute)
	s := NewStatement(a, nil, nil)
	m, start, span := s.heatmap()
	want := &heatmap{title: "Mean power by node (W)", what: "node", slot: 3600, rows: []heatRow{
		{"big", []heat{{2000, false}, {0, true}, {2000, false}}}, {"small", []heat{{1000, false}, {0, true}, {0, true}}},
	}}
	if diff := cmp.Diff(want, m, cmp.AllowUnexported(heatmap{}, heatRow{}, heat{}), nearly); diff != "" ||
		!start.Equal(morning) || span != 2*time.Hour+15*time.Minute {
		t.Errorf("heat map from %v for %v (-want +got):\n%s", start, span, diff)
	}
	day := *s // starts at 20:00; the first day has four hours, and the second one ends at 02:00
	day.GroupBy, day.AsOf = []string{"node", "day"}, time.Time{}
	day.From, day.To = morning.Add(12*time.Hour), morning.Add(18*time.Hour)
	midnight := morning.Truncate(24 * time.Hour)
	day.Rows = []StatementRow{
		{Key: []string{"n", stamp(midnight)}, EnergyKWh: 0.4},
		{Key: []string{"n", stamp(midnight.Add(24 * time.Hour))}, EnergyKWh: 0.2},
	}
	m, _, _ = day.heatmap()
	for _, c := range m.rows[0].cells {
		if math.Abs(c.value-100) > 1e-9 {
			t.Errorf("unexpected cells for 100 W: %+v", m.rows[0].cells)
		}
	}
	var b bytes.Buffer
	if err := s.HTML(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">Mean power by node (W)<", ">no booked energy<", ">big<"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the page does not contain %q", want)
		}
	}
	for _, by := range [][]string{{"hour"}, {"hour", "day"}, {"node", "namespace"}, {"node", "hour", "kind"}} {
		s.GroupBy = by
		if m, _, _ := s.heatmap(); m != nil {
			t.Errorf("unexpected heat map of rows by %v", by)
		}
	}
}

// Names from users must not be interpreted as formulas or terminal escape sequences.
func TestNamesDoNoHarm(t *testing.T) {
	s := statement(t)
	s.Rows[1].Key[0], s.Rows[2].Key[0] = "=HYPERLINK(1)", "a\x1b[2Jb"
	var b bytes.Buffer
	if err := Write(&b, s, "csv", false); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || rows[2][0] != "'=HYPERLINK(1)" {
		t.Errorf("got cell %v, error %v", rows[2][0], err)
	}
	b.Reset()
	if err := Write(&b, s, "table", false); err != nil || strings.Contains(b.String(), "\x1b") {
		t.Errorf("error %v:\n%q", err, b.String())
	}
}

func TestStatementJSON(t *testing.T) {
	var b bytes.Buffer
	if err := Write(&b, statement(t), "json", false); err != nil {
		t.Fatal(err)
	}
	var back Statement
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.Kind != "EnergyReport" || back.Savings.Baseline != DefaultBaseline || len(back.Rows) != 3 ||
		back.Total.Saved == nil {
		t.Errorf("%+v", back)
	}
}

// A statement of a period that begins before the first booking contains a note.
func TestBeginningOfTheBooks(t *testing.T) {
	from := time.Date(2026, 6, 1, 13, 0, 0, 0, time.UTC)
	for late, want := range map[time.Duration]bool{0: false, 4 * time.Minute: false, 29 * time.Minute: true} {
		s := NewStatement(&ledger.Answer{From: from, To: from.Add(time.Hour), Rows: []ledger.Row{{}}, Total: ledger.Row{
			First: from.Add(late), Last: from.Add(time.Hour),
		}}, nil, nil)
		notes := strings.Join(s.Notes, "\n")
		if strings.Contains(notes, "booked at 2026-06-01T13:29:00Z") != want || strings.Contains(notes, "booked at") != want {
			t.Errorf("%v: %s", late, notes)
		}
	}
}

// An empty statement is valid.
func TestEmptyStatement(t *testing.T) {
	for _, by := range [][]ledger.Dimension{nil, {ledger.ByNode}} {
		a := answer(by)
		if by == nil {
			a.Rows = []ledger.Row{{Key: []string{}}}
		}
		s := NewStatement(a, &Evidence{}, nil)
		for _, format := range []string{"table", "wide", "csv", "json", "html"} {
			if err := Write(io.Discard, s, format, true); err != nil {
				t.Errorf("%s: %v", format, err)
			}
		}
	}
}

// A period without records has no table.
func TestNothingRecorded(t *testing.T) {
	s := NewStatement(&ledger.Answer{GroupBy: []ledger.Dimension{ledger.ByNode}}, nil, nil)
	if text := s.Text(false, false); !strings.HasSuffix(text, "UTC\nNo energy is recorded in this period yet.\n") {
		t.Errorf("unexpected text: %s", text)
	}
}

// replay plans a snapshot with the named strategy.
func replay(s *sched.Snapshot, name string) (sched.Plan, error) {
	g, err := strategy.New(name)
	if err != nil {
		return nil, err
	}
	return g.Plan(s), nil
}

// The energy of GPUs has a column only if there is any.
func TestStatementOfGPUs(t *testing.T) {
	a := answer([]ledger.Dimension{ledger.ByStrategy},
		booked([]string{"carbon"}, 5.5, 400, 0.3, morning), booked([]string{"energy"}, 6.5, 400, 0.3, morning))
	for _, gpu := range []energy.Microjoules{0, 9e12} { // 2.5 kWh
		a.Rows[0].GPU = gpu
		a.Total = ledger.Row{}
		for i := range a.Rows {
			a.Total.Include(&a.Rows[i])
		}
		var b bytes.Buffer
		if err := Write(&b, NewStatement(a, nil, nil), "csv", false); err != nil {
			t.Fatal(err)
		}
		if shown := strings.Contains(b.String(), ",gpu_kwh,") && strings.Contains(b.String(), ",2.5,"); shown != (gpu > 0) {
			t.Errorf("unexpected table for %v of GPUs: %s", gpu, b.String())
		}
	}
}

// The savings of Jobs are in the row of their energy, even if another scheduler placed all of them.
func TestSavingsOfRows(t *testing.T) {
	e := many(t, 2)
	later := morning.Add(4 * time.Hour)
	hold := record(t, actionHold, "held", morning, "", cluster(t, morning, "here"))
	release := record(t, actionRelease, "held", later, "", nil)
	hold.Namespace, release.Namespace, hold.Strategy, release.Strategy = "b", "b", "energy+guarded", "energy+guarded"
	e.Owners = answer([]ledger.Dimension{ledger.ByNamespace, ledger.ByOwner},
		booked([]string{"b", "Job/held"}, 1, 200, 0.3, later.Add(time.Hour)))
	e.Sites = bySite(siteRow("here", morning, 600, 0.2), siteRow("here", later, 200, 0.3))
	foreign := &Evidence{Records: []ledger.Record{hold, release}, Owners: e.Owners, Sites: e.Sites}
	e.Records = append(e.Records, hold, release)
	for _, c := range []struct {
		e    *Evidence
		by   []ledger.Dimension
		key  []string
		jobs int // -1 if the row has no savings
		kg   float64
	}{
		{e, []ledger.Dimension{ledger.ByNamespace}, []string{"a"}, 2, 0.4},
		{e, []ledger.Dimension{ledger.ByNamespace}, []string{"b"}, 1, 0.4},
		{e, []ledger.Dimension{ledger.ByOwner, ledger.ByNamespace}, []string{"Job/held", "b"}, 1, 0.4},
		{e, []ledger.Dimension{ledger.ByStrategy}, []string{"energy"}, 2, 0.4},
		{e, []ledger.Dimension{ledger.ByStrategy}, []string{""}, 1, 0.4},
		{foreign, []ledger.Dimension{ledger.ByStrategy}, []string{""}, 1, 0.4},
		{e, []ledger.Dimension{ledger.ByNamespace, ledger.ByStrategy}, []string{"b", ""}, 1, 0.4},
		{e, []ledger.Dimension{ledger.ByNamespace}, []string{"c"}, -1, 0},
		{e, []ledger.Dimension{ledger.ByTeam}, []string{""}, -1, 0},
		{e, []ledger.Dimension{ledger.ByDay}, []string{"2026-06-01T00:00:00Z"}, -1, 0},
	} {
		row := booked(c.key, 3, 400, 0.3, later)
		s := NewStatement(answer(c.by, row), c.e, compare(t, c.e, DefaultBaseline))
		if saved := s.Rows[0].Saved; c.jobs < 0 {
			if saved != nil || !strings.Contains(strings.Join(s.Notes, "\n"), "only contain savings if grouped by") {
				t.Errorf("by %v, row %q: unexpected savings %+v or notes %q", c.by, c.key, saved, s.Notes)
			}
		} else if saved == nil || saved.Jobs != c.jobs {
			t.Errorf("by %v, row %q: savings are %+v, want those of %d jobs", c.by, c.key, saved, c.jobs)
		} else {
			near(t, fmt.Sprint("kg saved by ", c.key), saved.Emissions["average"].Saved, c.kg)
		}
	}
}
