// Package workloadtest generates traces for tests, and the trace of the bundled demo.
package workloadtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

const (
	demoJobs = 280
	demoSpan = 12 * time.Hour
	// Durations have a lognormal distribution with a median of 50 minutes, truncated at both ends.
	demoMedian   = 50 * time.Minute
	demoSpread   = 0.9
	demoShortest = 5 * time.Minute
	demoLongest  = 3 * time.Hour
)

// demoCPU contains requests in millicores. Small requests are more frequent, as in published traces.
var demoCPU = []int64{500, 1000, 1000, 2000, 2000, 4000, 4000, 8000, 8000, 16000}

// Demo returns a synthetic trace of 280 jobs that arrive within twelve hours from start on. It does not model a
// real system, but is small, fits the preset demo24 and varies all properties considered by strategies. A third of
// the jobs must start immediately; the others may be delayed by two to six hours. The result is deterministic for a
// given seed.
func Demo(seed uint64, start time.Time) []sched.Job {
	random := rand.New(rand.NewPCG(seed, 0))
	jobs := make([]sched.Job, demoJobs)
	for i := range jobs {
		j := &jobs[i]
		j.Submitted = start.Add(time.Duration(random.Float64() * float64(demoSpan)).Round(time.Second))
		length := float64(demoMedian) * math.Exp(demoSpread*random.NormFloat64())
		j.Duration = min(max(time.Duration(length), demoShortest), demoLongest).Round(time.Second)
		j.Request.MilliCPU = demoCPU[random.IntN(len(demoCPU))]
		j.Request.Memory = j.Request.MilliCPU * (1 << 30) / 1000 * int64(1+random.IntN(4))
		if delay := random.IntN(5); i%3 != 0 {
			j.AllowedDelay = time.Duration(2+delay) * time.Hour
		}
	}
	slices.SortStableFunc(jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
	for i := range jobs {
		jobs[i].ID = fmt.Sprintf("demo-%03d", i)
	}
	return jobs
}
