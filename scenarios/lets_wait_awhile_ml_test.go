package scenarios_test

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/test/kit"
)

const slotOfTraining = 30 * time.Minute

// trainings returns jobs with the distribution of scenario II of Let's Wait Awhile. They start at a random half
// hour between 9:00 and 16:30 on a working day of 2020 and run for 4 to 90 hours. The random generator differs from
// the one of the authors, so the jobs are not identical.
func trainings(seed uint64) []sched.Job {
	const jobs = 3387
	r := rand.New(rand.NewPCG(seed, jobs))
	var days []time.Time
	for day := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() == 2020; day = day.AddDate(0, 0, 1) {
		if day.Weekday() != time.Saturday && day.Weekday() != time.Sunday {
			days = append(days, day)
		}
	}
	list := make([]sched.Job, jobs)
	for i := range list {
		list[i] = sched.Job{
			ID: strconv.Itoa(i), Submitted: days[r.IntN(len(days))].Add(9*time.Hour +
				time.Duration(r.IntN(16))*slotOfTraining),
			Duration: 4*time.Hour + time.Duration(r.IntN(172))*slotOfTraining, Request: sched.Resources{MilliCPU: 1000},
		}
	}
	return list
}

// semiWeekly returns the time from end until the next Monday or Thursday at 9:00, which is the maximum delay.
func semiWeekly(end time.Time) time.Duration {
	for day := end.Truncate(24 * time.Hour); ; day = day.AddDate(0, 0, 1) {
		at := day.Add(9 * time.Hour)
		if (day.Weekday() == time.Monday || day.Weekday() == time.Thursday) && !at.Before(end) {
			return at.Sub(end)
		}
	}
}

// TestLetsWaitAwhileTrainings reproduces scenario II of Let's Wait Awhile with results due on Mondays and Thursdays
// and full knowledge of the future. The savings must be within one percentage point of a reproduction of the
// authors' procedure.
func TestLetsWaitAwhileTrainings(t *testing.T) {
	data := kit.Data(t, "lets-wait-awhile/ger_ci.csv", "lets-wait-awhile/fr_ci.csv")
	for _, c := range []struct {
		file            string
		once, suspended float64
	}{
		{"lets-wait-awhile/ger_ci.csv", 13.54, 17.85},
		{"lets-wait-awhile/fr_ci.csv", 10.87, 13.57},
	} {
		signal, _, err := grid.ReadCSV(filepath.Join(data, c.file), grid.CSVOptions{Every: slotOfTraining})
		if err != nil {
			t.Fatal(err)
		}
		var now, once, suspended float64
		for _, j := range trainings(1) {
			end := j.Submitted.Add(j.Duration)
			j.AllowedDelay = semiWeekly(end)
			if latest := signal.Series.End().Sub(end); j.AllowedDelay > latest {
				j.AllowedDelay = latest
			}
			now += signal.Series.Integral(j.Submitted, end)
			_, cost := oracle.NonPreemptive(signal.Series, &j)
			once += cost
			suspended += oracle.Interruptible(signal.Series, &j)
		}
		gotOnce, gotSuspended := 100*(1-once/now), 100*(1-suspended/now)
		t.Logf("%s: saves %.2f %% without suspending jobs (want %.2f), %.2f %% with suspending (want %.2f)", c.file,
			gotOnce, c.once, gotSuspended, c.suspended)
		if math.Abs(gotOnce-c.once) > 1 || math.Abs(gotSuspended-c.suspended) > 1 {
			t.Errorf("%s saves %.2f and %.2f %%, want %.2f and %.2f", c.file, gotOnce, gotSuspended, c.once,
				c.suspended)
		}
	}
}
