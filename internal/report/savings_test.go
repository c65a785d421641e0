package report

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/test/kit"
)

var morning = time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)

// cluster returns a snapshot with an efficient node that is half full, which least-allocated would not choose, and
// an inefficient empty node. Five cores for an hour use 1 kWh on the first and 1.5 kWh on the second node. The
// forecast is 400 g/kWh and 0.30 per kWh.
func cluster(t testing.TB, now time.Time, otherSite string) *sched.Snapshot {
	t.Helper()
	constant := func(v float64) grid.Signal {
		series, err := grid.Constant(morning.Add(-24*time.Hour), 96*time.Hour, v)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: series}
	}
	sites := []*sched.Site{{Name: "here", Carbon: constant(400), Price: constant(0.3)}}
	if otherSite != "here" {
		sites = append(sites, &sched.Site{Name: otherSite, Carbon: constant(800), Price: constant(0.1)})
	}
	ten := sched.Resources{MilliCPU: 10000, Memory: 64 << 30}
	return &sched.Snapshot{
		Now: now, Sites: sites,
		Nodes: []*sched.Node{
			{
				Name: "thrifty", Site: sites[0], Jobs: 1, Capacity: ten,
				Free:    sched.Resources{MilliCPU: 5000, Memory: 32 << 30},
				Profile: &energy.Profile{Idle: 100, Max: 2100, Sleep: 100},
			},
			{
				Name: "wasteful", Site: sites[len(sites)-1], Jobs: 1, Capacity: ten, Free: ten,
				Profile: &energy.Profile{Idle: 100, Max: 3100, Sleep: 100},
			},
		},
		Queue: []sched.Job{{
			ID: "a/j", Submitted: now.Add(-time.Minute), Duration: time.Hour,
			Request: sched.Resources{MilliCPU: 5000, Memory: 1 << 30},
		}},
	}
}

var records = 0

func record(t testing.TB, action, name string, at time.Time, node string, s *sched.Snapshot) ledger.Record {
	t.Helper()
	records++
	r := ledger.Record{
		ID: fmt.Sprint("r", records), At: at, Action: action, Namespace: "a", OwnerKind: "Job", Owner: name,
		UID: "pod-of-" + name, Strategy: "energy", Node: node,
	}
	if s == nil {
		return r
	}
	data, err := codec.Encode(s)
	if err != nil {
		t.Fatal(err)
	}
	r.Snapshot, r.Digest = kit.Gzip(data), codec.Digest(data)
	return r
}

const microjoulesPerKWh = 3.6e12

// booked returns a row of the ledger with the given energy and rates.
func booked(key []string, facility, intensity, price float64, last time.Time) ledger.Row {
	r := ledger.Row{Key: key, Amount: ledger.Amount{
		Dynamic:  energy.Microjoules(facility * microjoulesPerKWh),
		Facility: energy.Microjoules(facility * microjoulesPerKWh),
	}, First: last.Add(-time.Hour), Last: last}
	r.Emit("average", ledger.Micrograms(facility*intensity*1e6))
	r.Charge("EUR", ledger.Nanos(facility*price*1e9))
	return r
}

func siteRow(site string, hour time.Time, intensity, price float64) ledger.Row {
	return booked([]string{site, hour.Format(time.RFC3339)}, 10, intensity, price, hour.Add(time.Hour))
}

func answer(by []ledger.Dimension, rows ...ledger.Row) *ledger.Answer {
	return &ledger.Answer{
		From: morning, To: morning.Add(24 * time.Hour), AsOf: morning.Add(12 * time.Hour), GroupBy: by, Rows: rows,
	}
}

func byUID(rows ...ledger.Row) *ledger.Answer {
	return answer([]ledger.Dimension{ledger.ByUID}, rows...)
}

func bySite(rows ...ledger.Row) *ledger.Answer {
	return answer([]ledger.Dimension{ledger.BySite, ledger.ByHour}, rows...)
}

func compare(t *testing.T, e *Evidence, baseline string) *Comparison {
	t.Helper()
	c, err := Compare(e, baseline, morning, 1)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*max(1, math.Abs(want)) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// The node used twice the estimated energy. The other node is assumed to have the same error, at the same
// intensity.
func TestAnotherNode(t *testing.T) {
	e := &Evidence{
		Records: []ledger.Record{record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "here"))},
		UIDs:    byUID(booked([]string{"pod-of-j"}, 2, 350, 0.25, morning.Add(time.Hour))),
	}
	c := compare(t, e, DefaultBaseline)
	if c.Jobs != 1 || len(c.Left) != 0 || c.Forecast != 0 || c.Baseline != "least-allocated" {
		t.Fatalf("%+v", c)
	}
	j := c.PerJob[0]
	if diff := cmp.Diff([]string{"thrifty", "wasteful"}, append(j.Nodes, j.Instead...)); diff != "" {
		t.Error(diff)
	}
	near(t, "measured by estimated", j.Ratio, 2)
	near(t, "the baseline's energy", j.Energy.Baseline, 3)
	near(t, "saved energy", c.Total.Energy.Saved, 1)
	near(t, "saved emissions", c.Total.Emissions["average"].Saved, 0.35)
	near(t, "saved cost", c.Total.Costs["EUR"].Saved, 0.25)
	near(t, "saved by energy", c.ByStrategy["energy"].Energy.Saved, 1)
	for i, want := range []float64{500, 500, 0} {
		near(t, "watts that the baseline would have drawn more", c.Moved(morning.Add(-30*time.Minute), 3)[i], want)
	}
	if j.Energy.Low != nil || c.Total.Energy.Low != nil {
		t.Error("a single job has an interval")
	}
}

// A pod that failed to bind is placed again. It counts once, on the node of its last placement.
func TestAFailedBindingCountsOnce(t *testing.T) {
	first := record(t, actionPlace, "j", morning, "wasteful", cluster(t, morning, "here"))
	second := record(t, actionPlace, "j", morning.Add(time.Minute), "thrifty",
		cluster(t, morning.Add(time.Minute), "here"))
	first.ID, second.ID = "first", "second"
	e := &Evidence{
		Records: []ledger.Record{second, first},
		UIDs:    byUID(booked([]string{"pod-of-j"}, 2, 350, 0.25, morning.Add(time.Hour))),
	}
	c := compare(t, e, DefaultBaseline)
	if c.Jobs != 1 || len(c.Left) != 0 {
		t.Fatalf("%+v", c)
	}
	near(t, "used", c.Total.Energy.Used, 2)
	near(t, "measured by estimated", c.PerJob[0].Ratio, 2)
	near(t, "saved energy", c.Total.Energy.Saved, 1)
	if diff := cmp.Diff([]string{"thrifty"}, c.PerJob[0].Nodes); diff != "" {
		t.Error(diff)
	}
	// Pods without a UID are different pods.
	first.UID, second.UID = "", ""
	if jobs := group([]ledger.Record{first, second}); len(jobs) != 1 || len(jobs[0].places) != 2 {
		t.Errorf("%+v", jobs)
	}
	// The job waits since its first placement if its creation time is unknown.
	first.UID, second.UID = "pod-of-j", "pod-of-j"
	first.Snapshot, second.Snapshot = nil, nil
	j := group([]ledger.Record{first, second})[0]
	if took, _, ok := j.turnaround(e.index()); !ok || took != time.Hour {
		t.Errorf("turnaround() = %v, %v", took, ok)
	}
}

// A held job is rated at the actual intensities, not at the forecast ones or at the one of its end.
func TestHeldJobs(t *testing.T) {
	later := morning.Add(4 * time.Hour)
	for _, c := range []struct {
		name      string
		then, now float64 // intensity at the baseline's start, and at the actual start
		saved     float64
	}{
		{"saved", 600, 200, 0.4},
		{"lost", 300, 500, -0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			hold := record(t, actionHold, "j", morning, "", cluster(t, morning, "here"))
			hold.UID = "the-job"
			e := &Evidence{
				Records: []ledger.Record{
					record(t, actionPlace, "j", later, "wasteful", cluster(t, later, "here")), hold,
				},
				UIDs:  byUID(booked([]string{"pod-of-j"}, 1, c.now, 0.3, later.Add(time.Hour))),
				Sites: bySite(siteRow("here", morning, c.then, 0.2), siteRow("here", later, c.now, 0.3)),
			}
			got := compare(t, e, DefaultBaseline)
			if got.Jobs != 1 || got.Held != 1 || got.Forecast != 0 {
				t.Fatalf("%+v", got)
			}
			near(t, "saved energy", got.Total.Energy.Saved, 0)
			near(t, "saved emissions", got.Total.Emissions["average"].Saved, c.saved)
			near(t, "saved cost", got.Total.Costs["EUR"].Saved, -0.1)
			near(t, "held for", got.PerJob[0].Held, 4*3600)
			if moved := got.Moved(morning, 6); math.Round(moved[0]) != 1000 || math.Round(moved[4]) != -1000 || moved[2] != 0 {
				t.Errorf("Moved() = %v", moved)
			}
			emissions := got.Total.Emissions["average"].Difference
			if text := emissions.String(); (c.saved < 0) != strings.HasPrefix(text, "-") {
				t.Errorf("unexpected text %s", text)
			}
		})
	}
}

// A held Job that another scheduler placed is compared with the same energy at the beginning of its hold.
func TestHeldJobsOfAnotherScheduler(t *testing.T) {
	later := morning.Add(4 * time.Hour)
	evidence := func(snapshot *sched.Snapshot) *Evidence {
		hold := record(t, actionHold, "j", morning, "", snapshot)
		release := record(t, actionRelease, "j", later, "", nil)
		hold.UID, release.UID = "the-job", "the-job"
		return &Evidence{
			Records: []ledger.Record{release, hold},
			Owners: answer([]ledger.Dimension{ledger.ByNamespace, ledger.ByOwner},
				booked([]string{"a", "Job/j"}, 1, 200, 0.3, later.Add(time.Hour))),
			Sites: bySite(siteRow("here", morning, 600, 0.2), siteRow("here", later, 200, 0.3)),
		}
	}
	e := evidence(cluster(t, morning, "here"))
	c := compare(t, e, DefaultBaseline)
	if c.Jobs != 1 || c.Held != 1 || c.Forecast != 0 || len(c.Left) != 0 || len(c.PerJob[0].Nodes) != 0 {
		t.Fatalf("%+v", c)
	}
	near(t, "saved energy", c.Total.Energy.Saved, 0)
	near(t, "saved emissions", c.Total.Emissions["average"].Saved, 0.4)
	near(t, "saved cost", c.ByStrategy[""].Costs["EUR"].Saved, -0.1)
	near(t, "held for", c.PerJob[0].Held, 4*3600)
	e.Owners = nil
	if c := compare(t, e, DefaultBaseline); c.Jobs != 0 || c.Left[leftUnmeasured] != 1 {
		t.Errorf("without energy: %+v", c)
	}
	if c := compare(t, evidence(cluster(t, morning, "elsewhere")), DefaultBaseline); c.Left[leftUnknownSite] != 1 {
		t.Errorf("with two sites: %+v", c)
	}
	again := evidence(cluster(t, morning, "here"))
	again.Owners.Rows[0].First = morning
	if c := compare(t, again, DefaultBaseline); c.Left[leftEarlier] != 1 {
		t.Errorf("with an earlier Job of the same name: %+v", c)
	}
	if c := compare(t, evidence(nil), DefaultBaseline); c.Left[leftNoSnapshot] != 1 {
		t.Errorf("without a snapshot: %+v", c)
	}
	held := e.Records[1:]
	if jobs := group(held); len(jobs) != 0 {
		t.Errorf("a Job that is still held is compared: %+v", jobs)
	}
}

// TestPausedJobs verifies that the energy of a paused Job is compared with that of an uninterrupted run of the same
// length, regardless of the scheduler of its pods and of a hold before its first run.
func TestPausedJobs(t *testing.T) {
	at := func(hours int) time.Time { return morning.Add(time.Duration(hours) * time.Hour) }
	pause := record(t, actionPause, "j", at(1), "", cluster(t, at(1), "here"))
	again := record(t, actionHold, "j", at(2), "", cluster(t, at(2), "here")) // planned again while it was paused
	resumed := record(t, actionRelease, "j", at(3), "", nil)
	hold := record(t, actionHold, "j", at(-2), "", cluster(t, at(-2), "here"))
	start := record(t, actionRelease, "j", morning, "", nil)
	for _, r := range []*ledger.Record{&pause, &again, &resumed, &hold, &start} {
		r.UID = "the-job"
	}
	first := record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "here"))
	second := record(t, actionPlace, "j", at(3), "thrifty", cluster(t, at(3), "here"))
	row := booked([]string{"a", "Job/j"}, 2, 200, 0.3, at(4)) // ran from 0 to 1 and from 3 to 4
	row.First = morning
	sites := bySite(siteRow("here", morning, 200, 0.3), siteRow("here", at(1), 600, 0.3), siteRow("here", at(3), 200, 0.3))
	for name, records := range map[string][]ledger.Record{
		"placed by another scheduler": {pause, again, resumed},
		"placed by KubEnergy":         {first, pause, again, resumed, second},
	} {
		e := &Evidence{
			Records: records, Owners: answer([]ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}, row), Sites: sites,
		}
		c := compare(t, e, DefaultBaseline)
		if c.Jobs != 1 || c.Held != 1 || len(c.Left) != 0 {
			t.Fatalf("%s: %+v", name, c)
		}
		near(t, name+": saved energy", c.Total.Energy.Saved, 0)
		near(t, name+": saved emissions", c.Total.Emissions["average"].Saved, 2*(0.4-0.2))
		near(t, name+": paused for", c.PerJob[0].Held, 2*3600)
	}
	c := compare(t, &Evidence{
		Records: []ledger.Record{hold, start, pause, again, resumed},
		Owners:  answer([]ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}, row),
		Sites:   bySite(siteRow("here", at(-2), 500, 0.3), siteRow("here", at(-1), 700, 0.3)),
	}, DefaultBaseline)
	near(t, "held before: saved emissions", c.Total.Emissions["average"].Saved, 2*(0.6-0.2))
	near(t, "held before: waited for", c.PerJob[0].Held, 4*3600)
}

// If no energy was booked at the baseline's site and time, the forecast is used and the result contains a note.
func TestForecastStandsIn(t *testing.T) {
	e := &Evidence{
		Records: []ledger.Record{record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "elsewhere"))},
		UIDs:    byUID(booked([]string{"pod-of-j"}, 1, 400, 0.3, morning.Add(time.Hour))),
		Sites:   bySite(siteRow("here", morning, 400, 0.3)),
	}
	c := compare(t, e, DefaultBaseline)
	if c.Jobs != 1 || c.Forecast != 1 {
		t.Fatalf("%+v", c)
	}
	near(t, "saved emissions", c.Total.Emissions["average"].Saved, 1.5*0.8-0.4)
	near(t, "saved cost", c.Total.Costs["EUR"].Saved, 1.5*0.1-0.3)
	e.Sites = bySite(siteRow("here", morning, 400, 0.3), siteRow("elsewhere", morning, 500, 0.2))
	c = compare(t, e, DefaultBaseline)
	near(t, "saved emissions", c.Total.Emissions["average"].Saved, 1.5*0.5-0.4)
	if c.Forecast != 0 {
		t.Error("unexpected note on forecasts")
	}
}

func TestTheBaselineItselfSavesNothing(t *testing.T) {
	e := &Evidence{
		Records: []ledger.Record{record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "here"))},
		UIDs:    byUID(booked([]string{"pod-of-j"}, 2, 350, 0.25, morning.Add(time.Hour))),
	}
	c := compare(t, e, "energy")
	if c.Jobs != 1 || c.Total.Energy.Saved != 0 || c.Total.Emissions["average"].Saved != 0 {
		t.Errorf("%+v", c.Total)
	}
	if _, err := Compare(e, "best", morning, 1); err == nil || !strings.Contains(err.Error(), "unknown strategy") {
		t.Errorf("Compare() with an unknown baseline returned error %v", err)
	}
}

func TestJobsThatCannotBeCompared(t *testing.T) {
	damaged := record(t, actionPlace, "damaged", morning, "thrifty", cluster(t, morning, "here"))
	damaged.Digest = strings.Repeat("0", 64)
	blind := cluster(t, morning, "here")
	blind.Nodes[1].Profile = nil
	before := record(t, actionPlace, "before", morning.Add(-time.Hour), "thrifty", cluster(t, morning, "here"))
	held := record(t, actionHold, "still-held", morning, "", cluster(t, morning, "here"))
	no := booked([]string{"pod-of-uncharted"}, 1, 350, 0.25, morning)
	no.Uncharted = no.Facility / 2
	two := booked([]string{"pod-of-two"}, 1, 350, 0.25, morning)
	two.Emit("marginal", 5)
	two.Charge("USD", 5)
	e := &Evidence{
		Records: []ledger.Record{
			damaged, before, held,
			record(t, actionPlace, "bare", morning, "thrifty", nil),
			record(t, actionPlace, "blind", morning, "thrifty", blind),
			record(t, actionPlace, "unmeasured", morning, "thrifty", cluster(t, morning, "here")),
			record(t, actionPlace, "uncharted", morning, "thrifty", cluster(t, morning, "here")),
			record(t, actionPlace, "two", morning, "thrifty", cluster(t, morning, "here")),
		},
		UIDs: byUID(no, two),
	}
	c := compare(t, e, DefaultBaseline)
	want := map[string]int{leftDamaged: 1, leftNoSnapshot: 1, leftNoEstimate: 1, leftUnmeasured: 1}
	if diff := cmp.Diff(want, c.Left); diff != "" {
		t.Error(diff)
	}
	if c.Jobs != 2 || c.NoCarbon != 2 || c.NoCost != 1 || len(c.Total.Emissions) != 0 {
		t.Errorf("%+v", c)
	}
	near(t, "saved energy", c.Total.Energy.Saved, 1)
	notes := strings.Join(c.notes(), "\n")
	for _, why := range []string{
		leftDamaged, leftNoSnapshot, "least-allocated", "2 jobs emissions are not compared", "at least 10 jobs",
	} {
		if !strings.Contains(notes, why) {
			t.Errorf("the notes do not contain %q:\n%s", why, notes)
		}
	}
}

// All pods of a job are counted, whether the ledger contains the pods or only their owner. Duplicate records are
// counted once.
func TestJobsOfSeveralPods(t *testing.T) {
	one := record(t, actionPlace, "j", morning, "thrifty", cluster(t, morning, "here"))
	two := record(t, actionPlace, "j", morning.Add(time.Minute), "wasteful", cluster(t, morning, "here"))
	one.UID, two.UID = "1", "2"
	for _, e := range []*Evidence{
		{Records: []ledger.Record{two, one, one}, UIDs: byUID(booked([]string{"1"}, 1, 300, 0.2, morning),
			booked([]string{"2"}, 1.5, 300, 0.2, morning))},
		{Records: []ledger.Record{one, two}, Owners: answer([]ledger.Dimension{ledger.ByNamespace, ledger.ByOwner},
			booked([]string{"a", "Job/j"}, 2.5, 300, 0.2, morning))},
	} {
		c := compare(t, e, DefaultBaseline)
		if c.Jobs != 1 {
			t.Fatalf("%+v", c)
		}
		near(t, "saved energy", c.Total.Energy.Saved, 0.5)
		near(t, "saved emissions", c.Total.Emissions["average"].Saved, 0.15)
	}
}

// many returns jobs on nodes that draw between 0.8 and 1.2 times the estimate.
func many(t *testing.T, n int) *Evidence {
	t.Helper()
	e := &Evidence{UIDs: byUID()}
	for i := range n {
		name := fmt.Sprint("j", i)
		e.Records = append(e.Records, record(t, actionPlace, name, morning, "thrifty", cluster(t, morning, "here")))
		e.UIDs.Rows = append(e.UIDs.Rows, booked([]string{"pod-of-" + name}, 0.8+0.4*float64(i)/float64(n-1), 400, 0.3,
			morning))
	}
	return e
}

func TestIntervals(t *testing.T) {
	e := many(t, 41)
	c := compare(t, e, DefaultBaseline)
	d := c.Total.Energy
	near(t, "saved energy", d.Saved, 20.5)
	if d.Low == nil || *d.Low >= d.Saved || *d.High <= d.Saved || *d.High-*d.Low > 3 {
		t.Errorf("unexpected interval %s", d.String())
	}
	// The sum of 41 draws with a standard deviation of 0.0592 each has an interval of ±1.96 standard deviations.
	if half := (*d.High - *d.Low) / 2 / 1.96 / math.Sqrt(41); half < 0.055 || half > 0.063 {
		t.Errorf("the interval corresponds to a deviation of %v, want 0.0592", half)
	}
	j := c.PerJob[20]
	near(t, "the lower end of a job", *j.Energy.Low, j.Energy.Baseline*c.Ratio["p2.5"]/c.Ratio["p50"]-j.Energy.Used)
	near(t, "the upper end of a job", *j.Energy.High, j.Energy.Baseline*c.Ratio["p97.5"]/c.Ratio["p50"]-j.Energy.Used)
	near(t, "the upper end of its emissions", *j.Emissions.High, 0.4**j.Energy.High)
	near(t, "the median ratio", c.Ratio["p50"], 1)

	again := compare(t, e, DefaultBaseline)
	if *again.Total.Energy.Low != *d.Low || *again.Total.Energy.High != *d.High {
		t.Error("the interval differs with the same seed")
	}
	other, err := Compare(e, DefaultBaseline, morning, 2)
	if err != nil || *other.Total.Energy.Low == *d.Low {
		t.Errorf("the interval does not depend on the seed: %v", err)
	}
	// If baseline and choice are the same, there is no uncertainty.
	same := compare(t, e, "energy")
	if s := same.PerJob[3].Energy; s.Saved != 0 || *s.Low != 0 || *s.High != 0 {
		t.Errorf("%+v", s)
	}
}
