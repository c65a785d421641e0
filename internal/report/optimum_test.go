package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// actual contains the booked intensities from 8:00 on: the best hour is 11:00, and 14:00 is even better.
var actual = []float64{400, 300, 350, 100, 200, 500, 50, 60, 70, 80, 90, 100}

// waiting returns the snapshot of a hold at 8:00 of a job that may start until 12:00. The forecast of an hour is the
// given value, and its expected run time is an hour.
func waiting(t *testing.T, forecast ...float64) *sched.Snapshot {
	t.Helper()
	series, err := grid.NewSeries(morning, time.Hour, forecast)
	if err != nil {
		t.Fatal(err)
	}
	return &sched.Snapshot{
		Now: morning, Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
		Queue: []sched.Job{{
			ID: "a/j", Submitted: morning, Duration: time.Hour, AllowedDelay: 4 * time.Hour,
			Request: sched.Resources{MilliCPU: 1000},
		}},
	}
}

// holding returns the record of a hold with a planned start.
func holding(t *testing.T, name string, at, start time.Time, s *sched.Snapshot) ledger.Record {
	t.Helper()
	r := record(t, "hold", name, at, "", s)
	r.Strategy, r.Start = "carbon+window", start
	return r
}

// finished returns the row of a job that used 1 kWh.
func finished(name string, first time.Time, took time.Duration) ledger.Row {
	row := booked([]string{"pod-of-" + name}, 1, 1, 1, first.Add(took))
	row.First = first
	return row
}

func bookedHours() *ledger.Answer {
	var rows []ledger.Row
	for i, v := range actual {
		rows = append(rows, siteRow("here", morning.Add(time.Duration(i)*time.Hour), v, 0.3))
	}
	return bySite(rows...)
}

func TestOptimum(t *testing.T) {
	hour := func(h float64) time.Time { return morning.Add(time.Duration(h * float64(time.Hour))) }
	// The forecast expected 9:00 to be the best hour, other jobs made the plan choose 10:00, and the job started at
	// 12:00. It ran for two hours instead of one.
	e := &Evidence{
		Records: []ledger.Record{
			holding(t, "x", hour(0), hour(2), waiting(t, 400, 200, 300, 350, 350, 400, 400)),
			record(t, "release", "x", hour(4), "", nil),
			// Holds that cannot be compared.
			holding(t, "unmeasured", hour(0), hour(2), waiting(t, 400, 200, 300, 350, 350, 400, 400)),
			record(t, "release", "unmeasured", hour(4), "", nil),
			holding(t, "unfinished", hour(8), hour(9), waiting(t, 400, 200)),
			record(t, "release", "unfinished", hour(9), "", nil),
			holding(t, "no-snapshot", hour(0), hour(2), nil),
			record(t, "release", "no-snapshot", hour(4), "", nil),
			holding(t, "reused", hour(0), hour(2), waiting(t, 400, 200)),
			record(t, "release", "reused", hour(4), "", nil),
			holding(t, "reused", hour(5), hour(6), waiting(t, 400, 200)),
			holding(t, "before", hour(-1), hour(2), waiting(t, 400, 200)),
			record(t, "release", "before", hour(4), "", nil),
		},
		UIDs:  byUID(finished("x", hour(4), 2*time.Hour), finished("unfinished", hour(9), time.Hour)),
		Sites: bookedHours(),
	}
	for i := range e.Records {
		if r := &e.Records[i]; r.Owner == "reused" && r.At.Equal(hour(5)) {
			r.UID = "another"
		}
		if e.Records[i].Owner == "unfinished" && e.Records[i].Action == "hold" {
			s := waiting(t, 400, 200)
			s.Now, s.Queue[0].Submitted = hour(8), hour(8)
			e.Records[i] = holding(t, "unfinished", hour(8), hour(9), s)
		}
	}
	o := FindOptimum(e, morning, morning.AddDate(0, 0, 1))
	mean := func(a, b float64) float64 { return (a + b) / 2 / 1000 }
	parts := map[string]float64{
		"Start":    mean(200, 500) - mean(350, 100), // 12:00 instead of 10:00
		"Room":     mean(350, 100) - mean(300, 350), // a gain: the forecast was wrong
		"Forecast": mean(300, 350) - mean(100, 200), // 11:00 would have been chosen
		"Run time": 0,
		"Rest":     0,
	}
	got := map[string]float64{}
	for _, p := range o.Parts {
		got[p.Name] = math.Round(p.Value*1e9) / 1e9
		parts[p.Name] = math.Round(parts[p.Name]*1e9) / 1e9
	}
	if diff := cmp.Diff(parts, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	near(t, "immediate", o.Immediate, mean(400, 300))
	near(t, "actual", o.Actual, mean(200, 500))
	near(t, "best", o.Best, mean(100, 200))
	near(t, "efficiency", *o.Efficiency, (350.-350)/(350-150))
	near(t, "one more hour", o.Longer, 0)
	want := map[string]int{leftUnmeasured: 1, leftUnfinished: 1, leftNoSnapshot: 1, leftReused: 1}
	if diff := cmp.Diff(want, o.Left); diff != "" || o.Jobs != 1 || o.Signal != "average" {
		t.Errorf("%d jobs with %s; left (-want +got):\n%s", o.Jobs, o.Signal, diff)
	}
	text := o.Text(false, false)
	for _, part := range []string{"1 held job with average", "η = 0.00", "  forecast", "no snapshot was recorded"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
}

// TestOptimumOfRunTimes checks the parts of a job with a correct forecast but an unknown run time, and the value of
// another hour.
func TestOptimumOfRunTimes(t *testing.T) {
	hour := func(h int) time.Time { return morning.Add(time.Duration(h) * time.Hour) }
	e := &Evidence{
		Records: []ledger.Record{
			holding(t, "x", hour(0), hour(3), waiting(t, actual...)),
			record(t, "release", "x", hour(3), "", nil),
		},
		UIDs:  byUID(finished("x", hour(3), 3*time.Hour)), // 100, 200, 500; at 10:00 350, 100, 200
		Sites: bookedHours(),
	}
	o := FindOptimum(e, morning, morning.AddDate(0, 0, 1))
	if o.Jobs != 1 {
		t.Fatalf("left: %v", o.Left)
	}
	for _, p := range o.Parts {
		want := 0.0
		if p.Name == "Run time" {
			want = (800. - 650) / 3000
		}
		near(t, p.Name, p.Value, want)
	}
	near(t, "efficiency", *o.Efficiency, (1050.-800)/(1050-650))
	near(t, "one more hour", o.Longer, (650.-610)/3000) // from 13:00: 500, 50, 60
	// An expected run time that is much longer than the actual one is not a wrong forecast.
	long := waiting(t, actual...)
	long.Queue[0].Duration = 5 * time.Hour
	e.Records[0] = holding(t, "x", hour(0), hour(4), long) // the mean of five hours is lowest from 12:00
	e.UIDs = byUID(finished("x", hour(4), 30*time.Minute))
	o = FindOptimum(e, morning, morning.AddDate(0, 0, 1))
	for _, p := range o.Parts {
		want := 0.0
		if p.Name == "Run time" {
			want = (200. - 100) / 1000 // 12:00 instead of 11:00
		}
		near(t, p.Name, p.Value, want)
	}
	if none := FindOptimum(&Evidence{}, morning, morning); none.Jobs != 0 || none.Efficiency != nil ||
		!strings.HasPrefix(none.Text(false, false), "No held job") {
		t.Errorf("optimum without decisions: %+v", none)
	}
}
