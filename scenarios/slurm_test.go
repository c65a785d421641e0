package scenarios_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// shared returns the path of a file in ../shared/data, or skips the test if it is missing.
func shared(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "data", filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is missing in ../shared/data", name)
	}
	return path
}

// TestSlurmOnTraces compares stock Slurm with kubenergy-slurm on traces of two HPC clusters, using the backfill
// model of the simulator. Every second job may be delayed for twelve hours. docs/measurements/slurm.md contains the
// results.
func TestSlurmOnTraces(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates several weeks")
	}
	nl, _, err := grid.ReadFiles(grid.CSVOptions{Column: "ci_g_per_kwh"}, shared(t, "carbon/opendc/NL_2021-2023.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	lisa := time.Date(2022, 10, 6, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, file, format string
		start              time.Time
		nodes              int
		cores              int64
		limit              float64 // time limit relative to the duration, if the trace contains no limit
	}{
		{"SURF Lisa", "workload/surf_lisa_2022_week_tasks.csv.gz", "surf", lisa, 130, 16, 2},
		{"SURF Lisa, a larger cluster", "workload/surf_lisa_2022_week_tasks.csv.gz", "surf", lisa, 200, 16, 2},
		// Its jobs use up to 240 cores, which are modelled as one node.
		{"HPC2N Seth", "workload/swf/hpc2n_first3171.swf.gz", "swf", lisa, 1, 240, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			trace, err := workload.Load(shared(t, c.file), c.format, c.start)
			if err != nil {
				t.Fatal(err)
			}
			site := &sched.Site{Name: "NL", Zone: "NL", PUE: 1.2, Carbon: nl}
			s := &sim.Scenario{
				Name: c.name, Start: c.start, Sites: []*sched.Site{site}, Jobs: trace.Jobs,
				Queue: sim.QueueRules{Backfill: 30 * time.Second},
			}
			machine := &energy.Profile{ // scaled from a server of 2012 with 16 cores
				Name: "server", Idle: energy.Watts(54.1 * float64(c.cores) / 16), Max: energy.Watts(243 * float64(c.cores) / 16),
			}
			for n := range c.nodes {
				has := sched.Resources{MilliCPU: 1000 * c.cores, Memory: 1 << 50}
				s.Nodes = append(s.Nodes, sched.Node{
					Name: string(rune('a'+n/26)) + string(rune('a'+n%26)), Site: site, Capacity: has, Free: has, Profile: machine,
				})
			}
			for i := range s.Jobs {
				j := &s.Jobs[i]
				j.AllowedDelay = time.Duration(i%2) * 12 * time.Hour
				if j.TimeLimit == 0 {
					j.TimeLimit = time.Duration(c.limit * float64(j.Duration))
				}
			}
			var emitted [2]energy.Grams
			var others [2]float64
			for k, name := range []string{"fcfs", "fcfs+window"} {
				r := runNamed(t, s, name)
				var waits, slowdowns [2]float64 // of jobs without and with an allowed delay
				var all [2][]float64
				for i, o := range r.Outcomes {
					j := &s.Jobs[i]
					wait := o.Start.Sub(j.Submitted).Seconds()
					waits[i%2] += wait / float64(len(s.Jobs)/2)
					all[i%2] = append(all[i%2], wait)
					slowdowns[i%2] += sim.BoundedSlowdown(j, &o) / float64(len(s.Jobs)/2)
					if o.Overdue(j) > 0 {
						t.Errorf("%s: job %s is late by %v", name, j.ID, o.Overdue(j))
					}
				}
				emitted[k], others[k] = r.Carbon, waits[0]
				t.Logf("%-12s %8.1f MWh %8.2f t; wait: fixed %6.0f s (p95 %6.0f, slowdown %.1f), flexible %6.0f s (%.1f)",
					name, r.Energy.KWh()/1000, r.Carbon.Kg()/1000, waits[0], report.Quantile(all[0], 0.95), slowdowns[0],
					waits[1], slowdowns[1])
			}
			if most := 1.15*others[0] + 10; others[1] > most {
				t.Errorf("inflexible jobs wait for %.0f s, and for %.0f s with stock Slurm", others[1], others[0])
			}
			if share := float64(emitted[1] / emitted[0]); share > 1.002 || share > 1 && others[0] < 10 {
				t.Errorf("emissions are %v g, and %v g with stock Slurm", emitted[1], emitted[0])
			}
		})
	}
}
