package predict

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// powerShrinkage is how many measurements of a group outweigh the wider ones.
const powerShrinkage = 2

// powerMemory is after how long a measurement weighs 1/e of a new one.
const powerMemory = 24 * time.Hour

// Power predicts what a job draws, idle power left out, from what its likes were measured to draw: those of the same
// owner and request class, the owner's, the class's and all, each one shrunk to the wider ones where it has seen
// little, and all of them to the nominal power of requests. Groups are [energy.Smoothed], so that measurements may
// come at any time and be of any length, and what is older counts less. Wide groups mix jobs of all sizes: what they
// know is per core.
type Power struct {
	groups [levels]map[groupKey]*energy.Smoothed
}

// NewPower returns a predictor that has seen no measurement.
func NewPower() *Power {
	p := &Power{}
	for level := range p.groups {
		p.groups[level] = map[groupKey]*energy.Smoothed{}
	}
	return p
}

// Measured takes notice of what j drew on average over a time that ends at an instant.
func (p *Power) Measured(j *sched.Job, drew energy.Watts, over time.Duration, end time.Time) {
	for level, key := range groupsOf(j) {
		of(p.groups[level], key).Add(drew/perCore(j), over, end, powerMemory)
	}
}

// perCore is what the power of j is divided by.
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
