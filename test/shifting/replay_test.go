// Package shifting replays the PAI sample of GAIA on real grids, job by job and without capacity limits, to verify
// the known savings of start-time and suspend-resume policies.
package shifting

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

var shared = filepath.FromSlash("../../../shared/data")

// readRows reads a table with a header. The test is skipped if the file does not exist.
func readRows(t testing.TB, name string) [][]string {
	t.Helper()
	text, err := grid.ReadFile(filepath.Join(shared, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("data not found: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows[1:]
}

func number(t testing.TB, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// trace is an entry of GAIA's trace file.
type trace struct {
	submitted, length time.Duration
	cores             float64
}

func readTrace(t testing.TB) (jobs []trace) {
	t.Helper()
	for _, row := range readRows(t, "workload/gaia/pai_1k.csv.gz") {
		jobs = append(jobs, trace{
			submitted: time.Duration(number(t, row[0]) * float64(time.Second)),
			length:    time.Duration(number(t, row[1]) * float64(time.Second)), cores: number(t, row[2]),
		})
	}
	return jobs
}

// zones lists the grids that were used to develop shifting. Their carbon intensities are hourly.
var zones = []string{"CISO", "ERCO", "PJM", "DE", "ES", "NL", "PL", "SE"}

func readGrid(t testing.TB, zone string) *grid.Series {
	t.Helper()
	var values []float64
	var start time.Time
	for i, row := range readRows(t, "carbon/mix_weather/"+zone+"_lifecycle_emissions.csv.gz") {
		if i == 0 {
			at, err := time.Parse("2006-01-02 15:04", row[1][:len("2006-01-02 15:04")])
			if err != nil {
				at, err = time.Parse("2006-01-02 15:04",
					strings.Replace(row[1], " 0:", " 00:", 1)[:len("2006-01-02 15:04")])
			}
			if err != nil {
				t.Fatal(err)
			}
			start = at
		}
		values = append(values, number(t, row[2]))
	}
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	return series
}

// The published configuration. Jobs of two hours or more are submitted to the queue for long jobs, which has a
// longer waiting time.
const (
	longFrom  = 2 * time.Hour
	waitShort = 6 * time.Hour
	waitLong  = 24 * time.Hour
	year      = 8760 * time.Hour // the last year of each grid is replayed

	lastOffset = 8000
)

// offsets returns the starts of replays in hours of the last year of a grid.
func offsets(first, step int) (hours []int) {
	for h := first; h <= lastOffset; h += step {
		hours = append(hours, h)
	}
	return hours
}

// submitted returns the jobs of a trace that starts at the given time. Their Duration is the true run time.
func submitted(jobs []trace, at time.Time, interruptible bool, restart time.Duration) []sched.Job {
	all := make([]sched.Job, len(jobs))
	for i, row := range jobs {
		j := sched.Job{
			ID: strconv.Itoa(i), Submitted: at.Add(row.submitted), Duration: row.length, Queue: "short",
			AllowedDelay: waitShort,
			Request:      sched.Resources{MilliCPU: int64(1000 * row.cores)}, Interruptible: interruptible,
			RestartCost: restart,
		}
		if row.length >= longFrom {
			j.Queue, j.AllowedDelay = "long", waitLong
		}
		all[i] = j
	}
	return all
}

// foresight returns the signal that is available at the given time.
type foresight func(now time.Time) grid.Signal

func perfect(series *grid.Series) foresight {
	return func(time.Time) grid.Signal { return grid.Signal{Series: series} }
}

// outcome contains the totals of all jobs.
type outcome struct {
	carbon      float64 // intensity × cores × seconds
	wait        time.Duration
	suspensions int
	late        time.Duration // maximum excess over the allowed delay
}

// running is the state of a job in the replay.
type running struct {
	job    sched.Job // state passed to the strategy
	length time.Duration
	at     time.Time // time up to which the job has been simulated
	runs   bool
	begun  bool
	until  time.Time // time of the next decision, zero for none
	repeat time.Duration
}

// replay runs the jobs under a strategy. The learner is updated every hour. If it is nil, the true run times are
// used.
func replay(t testing.TB, strategy *strategy.Greedy, truth *grid.Series, ahead foresight, jobs []sched.Job,
	learner predict.Learner,
) (o outcome) {
	t.Helper()
	site := &sched.Site{Name: "site"}
	snapshot := &sched.Snapshot{Queue: make([]sched.Job, 1), Sites: []*sched.Site{site}}
	var active []*running
	next := 0
	for hour := jobs[0].Submitted.Truncate(time.Hour); next < len(jobs) || len(active) > 0; hour = hour.Add(time.Hour) {
		if learner != nil {
			learner.Refresh(hour, func(yield func(*sched.Job, time.Duration) bool) {
				for _, r := range active {
					if r.begun && !yield(&r.job, r.job.Done) {
						return
					}
				}
			})
		}
		end := hour.Add(time.Hour)
		for ; next < len(jobs) && jobs[next].Submitted.Before(end); next++ {
			j := jobs[next]
			r := &running{job: j, length: j.Duration, at: j.Submitted, until: j.Submitted}
			active = append(active, r)
		}
		site.Carbon = ahead(hour)
		left := active[:0]
		for _, r := range active {
			if !r.play(snapshot, strategy, truth, learner, end, &o) {
				left = append(left, r)
			}
		}
		active = left
	}
	return o
}

// play simulates a job until end and reports whether it has finished.
func (r *running) play(s *sched.Snapshot, strategy *strategy.Greedy, truth *grid.Series, learner predict.Learner,
	end time.Time, o *outcome,
) (done bool) {
	j := &r.job
	for r.at.Before(end) {
		if !r.until.IsZero() && !r.at.Before(r.until) {
			r.ask(s, strategy, learner, o)
		}
		to := end
		if !r.until.IsZero() && r.until.Before(to) {
			to = r.until
		}
		if r.runs {
			if finish := r.at.Add(r.repeat + r.length - j.Done); !finish.After(to) {
				to, done = finish, true
			}
			o.carbon += float64(j.Request.MilliCPU) / 1000 * truth.Integral(r.at, to)
			worked := to.Sub(r.at)
			again := min(worked, r.repeat)
			r.repeat -= again
			j.Done += worked - again
		}
		r.at = to
		if done {
			idle := to.Sub(j.Submitted) - r.length
			o.wait += idle
			o.late = max(o.late, idle-j.AllowedDelay)
			if learner != nil {
				learner.Ended(j, r.length)
			}
			return true
		}
	}
	return false
}

func (r *running) ask(s *sched.Snapshot, strategy *strategy.Greedy, learner predict.Learner, o *outcome) {
	j := &r.job
	j.Running = r.runs
	if learner != nil && !strategy.Clairvoyant() {
		learner.Expect(j)
	} else {
		j.Duration = r.length
	}
	s.Now, s.Queue[0] = r.at, *j
	d := strategy.Plan(s)[0]
	if d.Held(s.Now) && j.Slack(s.Now) > 0 {
		if r.runs {
			o.suspensions++
		}
		r.runs, r.until = false, d.Window.Start
		if d.Again.IsZero() { // the release is final
			j.Released = true
		} else if d.Again.Before(r.until) {
			r.until = d.Again
		}
		return
	}
	if !r.runs && r.begun {
		r.repeat += j.RestartCost
	}
	r.runs, r.begun, r.until = true, true, d.Again
}

// bestInterruptible and bestStart return the emissions of an optimal plan with perfect information.
func bestInterruptible(truth *grid.Series, j *sched.Job) float64 {
	type piece struct{ rate, seconds float64 }
	var pieces []piece
	from, until := j.Submitted, j.Submitted.Add(j.AllowedDelay+j.Duration)
	for t := range truth.Steps(from, until) {
		pieces = append(pieces, piece{truth.At(from), t.Sub(from).Seconds()})
		from = t
	}
	if from.Before(until) {
		pieces = append(pieces, piece{truth.At(from), until.Sub(from).Seconds()})
	}
	slices.SortFunc(pieces, func(a, b piece) int {
		if a.rate < b.rate {
			return -1
		}
		return 1
	})
	sum, left := 0.0, j.Duration.Seconds()
	for _, p := range pieces {
		used := min(left, p.seconds)
		sum += p.rate * used
		left -= used
	}
	return sum
}

func bestStart(truth *grid.Series, j *sched.Job) float64 {
	latest := j.Submitted.Add(j.AllowedDelay)
	least := min(truth.Integral(j.Submitted, j.Submitted.Add(j.Duration)),
		truth.Integral(latest, latest.Add(j.Duration)))
	for t := range truth.Steps(j.Submitted, latest) {
		least = min(least, truth.Integral(t, t.Add(j.Duration)))
	}
	for t := range truth.Steps(j.Submitted.Add(j.Duration), latest.Add(j.Duration)) {
		least = min(least, truth.Integral(t.Add(-j.Duration), t))
	}
	return least
}

// optima contains the emissions of jobs without shifting and with optimal plans.
type optima struct{ unshifted, interruptible, start float64 }

func optimaOf(truth *grid.Series, jobs []sched.Job) (o optima) {
	for i := range jobs {
		j := &jobs[i]
		cores := float64(j.Request.MilliCPU) / 1000
		o.unshifted += cores * truth.Integral(j.Submitted, j.Submitted.Add(j.Duration))
		o.interruptible += cores * bestInterruptible(truth, j)
		o.start += cores * bestStart(truth, j)
	}
	return o
}
