// Package workloadtest makes traces for tests, and the one of the bundled demo.
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
	// Durations are lognormal around a median of 50 minutes, cut at both ends.
	demoMedian   = 50 * time.Minute
	demoSpread   = 0.9
	demoShortest = 5 * time.Minute
	demoLongest  = 3 * time.Hour
)

// Requests in thousandths of a core; small ones are common, as in published traces.
var demoCPU = []int64{500, 1000, 1000, 2000, 2000, 4000, 4000, 8000, 8000, 16000}

// Demo returns a synthetic trace of 280 jobs that arrive over twelve hours from start on. It imitates no real system:
// it is small, it fits the preset demo24, and its jobs differ in all that strategies look at. A third must start at
// once; the others may be put off by two to six hours. The same seed gives the same trace.
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
