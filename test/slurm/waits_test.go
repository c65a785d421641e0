package slurm

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/test/kit"
)

// row is a job of a trace. All times, including the intervals in slurm.conf, are ten times shorter than in a real
// cluster.
type row struct {
	at      time.Duration // time since the submission of the previous job
	seconds int
	cores   int64
	comment string
	limit   int // in minutes
}

func trace(seed uint64) (rows []row) {
	const jobs = 300
	r := rand.New(rand.NewPCG(24, seed))
	for range jobs {
		one := row{
			at: time.Duration(2.2 * r.ExpFloat64() * float64(time.Second)), comment: "plain", limit: 1 + r.IntN(2),
			seconds: int(min(max(8*math.Exp(0.8*r.NormFloat64()), 2), 55)),
			cores:   []int64{1, 1, 1, 1, 2, 2, 2, 4, 4, 8}[r.IntN(10)],
		}
		if r.IntN(2) == 0 {
			one.comment = fmt.Sprintf("kubenergy:allowed-delay=%ds,expected-duration=%ds", 120+r.IntN(120), one.seconds)
		}
		rows = append(rows, one)
	}
	return rows
}

// turnaround measures the idle time of a node between two queued jobs that use the complete node, which consists of
// the epilog and the time to start the next job.
func (s *stage) turnaround() time.Duration {
	const chain, nodes, seconds = 20, 2, 2
	var ids []int64
	for range chain * nodes {
		id, _ := s.submit(seconds, "plain", "--time=1", "--cpus-per-task=8")
		ids = append(ids, id)
	}
	s.drained()
	all := s.jobs()
	first, last, worked := all[ids[0]].start, all[ids[0]].end, time.Duration(0)
	for _, id := range ids {
		last = timeutil.Later(last, all[id].end)
		worked += all[id].end.Sub(all[id].start)
	}
	return max(0, (nodes*last.Sub(first)-worked)/(chain*nodes))
}

// drained waits until all jobs have run and slurmdbd has been updated.
func (s *stage) drained() {
	s.t.Helper()
	kit.Eventually(s.t, 10*time.Minute, "all jobs have completed", func() bool {
		text, _ := s.output("squeue", "-h")
		return strings.TrimSpace(text) == ""
	})
	time.Sleep(5 * time.Second)
}

// played is the result of running a trace.
type played struct {
	jobs       []job // in the order of the trace
	turnaround time.Duration
}

// play runs a trace on a new Slurm cluster.
func play(t *testing.T, rows []row, ours bool) (ran played) {
	s := newStage(t)
	s.token(operator)
	if ours {
		p := s.ours()
		defer func() { p.End(t) }()
	} else {
		ran.turnaround = s.turnaround()
	}
	var ids []int64
	next := time.Now()
	for _, r := range rows {
		next = next.Add(r.at)
		time.Sleep(time.Until(next))
		comment := r.comment
		if !ours {
			comment = "plain" // job_submit.lua delays other jobs regardless of kubenergy-slurm
		}
		id, _ := s.submit(r.seconds, comment, fmt.Sprintf("--time=%d", r.limit), fmt.Sprintf("--cpus-per-task=%d", r.cores))
		ids = append(ids, id)
	}
	s.drained()
	all := s.jobs()
	for _, id := range ids {
		if all[id].state != "COMPLETED" {
			t.Errorf("job %d: state %s, want COMPLETED", id, all[id].state)
		}
		ran.jobs = append(ran.jobs, all[id])
	}
	return ran
}

// waits returns the waiting times in seconds of jobs without an allowed delay.
func waits(rows []row, ran []job) (seconds []float64) {
	for i, r := range rows {
		if r.comment == "plain" {
			seconds = append(seconds, ran[i].start.Sub(ran[i].submit).Seconds())
		}
	}
	return seconds
}

func mean(values []float64) (sum float64) {
	for _, v := range values {
		sum += v / float64(len(values))
	}
	return sum
}

// TestWaits runs five traces, each on two plain Slurm clusters and on one with kubenergy-slurm. Jobs without an
// allowed delay must not wait longer because of delayed jobs. It also verifies the backfill model of the simulator
// against the plain clusters.
func TestWaits(t *testing.T) {
	long(t)
	const rounds = 5
	names := []string{"stock", "ours", "stock again"}
	var rows [rounds][]row
	var ran [rounds][3]played
	var waited, model float64 // total waiting times on plain clusters
	for round := range rounds {
		rows[round] = trace(uint64(round + 1))
		// The clusters of a round share the load of the machine. More than three would overload two cores.
		t.Run(fmt.Sprint("round ", round+1), func(t *testing.T) {
			for arm, name := range names {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ran[round][arm] = play(t, rows[round], name == "ours")
				})
			}
		})
	}
	if t.Failed() {
		return
	}
	var all [3][]float64
	for round := range rounds {
		for arm, name := range names {
			w := waits(rows[round], ran[round][arm].jobs)
			all[arm] = append(all[arm], w...)
			t.Logf("round %d, %s: mean wait %.2f s, p95 %.0f s", round+1, name, mean(w), report.Quantile(w, 0.95))
			if name != "ours" {
				current, ought := modelled(t, rows[round], ran[round][arm])
				waited, model = waited+current, model+ought
			}
		}
	}
	t.Logf("ratio of modeled and actual mean waits: %.3f", model/waited)
	if off := model/waited - 1; math.Abs(off) > 0.1 {
		t.Errorf("modeled mean waits deviate by %.0f %%, want at most 10 %%", 100*off)
	}
	for arm, name := range names[1:] {
		means := mean(all[arm+1]) / mean(all[0])
		p95 := report.Quantile(all[arm+1], 0.95) / report.Quantile(all[0], 0.95)
		t.Logf("ratio of %s to stock: mean wait %.3f, p95 %.3f", name, means, p95)
		if name == "ours" && (means > 1.05 || p95 > 1.10) {
			t.Error("jobs without an allowed delay wait longer than on plain clusters")
		}
	}
}

// modelled compares a run with that of the simulator and returns the mean waiting times of both in seconds.
func modelled(t *testing.T, rows []row, played played) (current, ought float64) {
	t.Helper()
	ran := played.jobs
	start := ran[0].submit
	series, err := grid.NewSeries(start, time.Hour, []float64{400, 400, 400})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Zone: "DE", Carbon: grid.Signal{Series: series}}
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{site}, Queue: sim.QueueRules{
		Backfill: 3 * time.Second, Epilog: played.turnaround,
	}}
	for _, name := range []string{"n1", "n2"} {
		has := sched.Resources{MilliCPU: 8000}
		s.Nodes = append(s.Nodes, sched.Node{
			Name: name, Site: site, Capacity: has, Free: has, Profile: &energy.Profile{Idle: 100, Max: 200},
		})
	}
	for i, r := range rows {
		s.Jobs = append(s.Jobs, sched.Job{
			ID: strconv.Itoa(i), Submitted: ran[i].submit, Duration: max(ran[i].end.Sub(ran[i].start), time.Second),
			TimeLimit: time.Duration(r.limit) * time.Minute, Request: sched.Resources{MilliCPU: 1000 * r.cores},
		})
	}
	strategy, err := strategy.New("fcfs")
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(t.Context(), s, "fcfs", strategy)
	if err != nil {
		t.Fatal(err)
	}
	var waited, model []float64
	pairs, same := 0, 0
	for i := range ran {
		waited = append(waited, ran[i].start.Sub(ran[i].submit).Seconds())
		model = append(model, result.Outcomes[i].Start.Sub(ran[i].submit).Seconds())
		for k := range i {
			current, ought := ran[i].start.Compare(ran[k].start), result.Outcomes[i].Start.Compare(result.Outcomes[k].Start)
			if current != 0 {
				pairs++
				if current == cmp.Or(ought, current) {
					same++
				}
			}
		}
	}
	share := float64(same) / float64(pairs)
	t.Logf("all jobs: mean wait %.2f s, modeled %.2f s; %.1f %% of all pairs start in the same order; turnaround %v",
		mean(waited), mean(model), 100*share, played.turnaround)
	if share < 0.9 {
		t.Error("less than 90 %% of all pairs start in the same order as in the model")
	}
	return mean(waited), mean(model)
}
