package predict

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// powerShrinkage is the number of measurements of a group with the same weight as the wider groups.
const powerShrinkage = 2

// powerMemory is the time after which the weight of a measurement has decreased to 1/e.
const powerMemory = 24 * time.Hour

// Power predicts the power of a job, without idle power, from measurements of similar jobs: jobs of the same owner
// and request class, of the owner, of the class, and all jobs. A group with few measurements is shrunk towards the
// wider ones, and all jobs towards the nominal power of requests. Groups are [energy.Smoothed], so measurements may
// arrive at any time and have any length, and older ones count less. Wide groups contain jobs of different sizes,
// therefore they store the power per core.
type Power struct {
	groups [levels]map[groupKey]*energy.Smoothed
}

// NewPower returns a predictor without measurements.
func NewPower() *Power {
	p := &Power{}
	for level := range p.groups {
		p.groups[level] = map[groupKey]*energy.Smoothed{}
	}
	return p
}

// Measured records the mean power of j over an interval that ends at the given time.
func (p *Power) Measured(j *sched.Job, drew energy.Watts, over time.Duration, end time.Time) {
	for level, key := range groupsOf(j) {
		of(p.groups[level], key).Add(drew/perCore(j), over, end, powerMemory)
	}
}

// perCore returns the divisor that normalizes the power of j.
func perCore(j *sched.Job) energy.Watts { return energy.Watts(max(1, j.Request.MilliCPU)) / 1000 }

// Expect sets the expected power of j if there are measurements of similar jobs.
func (p *Power) Expect(j *sched.Job) {
	mean, known := j.Nominal()/perCore(j), false
	for level, key := range groupsOf(j) {
		if s := p.groups[level][key]; s != nil && s.Samples() > 0 {
			mean, known = energy.Shrink(s.Mean(), float64(s.Samples()), mean, powerShrinkage), true
		}
	}
	if known {
		j.Expected, j.HasExpected = mean*perCore(j), true
	}
}
