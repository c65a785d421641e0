package predict

import (
	"iter"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Grid of [Survival], and its prior for unknown classes of jobs.
const (
	survivalStep = 3 * time.Minute
	survivalBins = int(130 * time.Hour / survivalStep)

	priorJobs     = 5
	priorShortest = time.Minute
	priorLongest  = 72 * time.Hour
)

// Survival estimates the run-time distribution of every wait class as a discrete Kaplan–Meier estimate. The
// fraction h_b of the jobs that have run for b steps finishes within the next one:
//
//	h_b = (e_b + n₀·(P_b − P_b+1)) / (R_b − c_b/2 + n₀·P_b),   S_b+1 = S_b·(1 − h_b)
//
// where e_b is the number of jobs that finished in step b, c_b the number of unfinished jobs with an elapsed run
// time in step b, R_b the number of jobs that ran at least b steps, and P the survival function of the n₀ = 5 jobs
// of the prior with a log-uniform distribution of run times between one minute and three days. Unfinished jobs
// count with their elapsed run time, because statistics of finished jobs only are biased towards short ones.
type Survival struct {
	prior   []float64 // P at the start of every step and at the end of the last one
	unknown *sched.Runtimes
	classes map[string]*class // by [sched.Job].Queue
}

// class contains the observations for one queue.
type class struct {
	ended    []int32 // by step
	going    []int32
	isGoing  int // total of going
	changed  bool
	runtimes *sched.Runtimes
}

// NewSurvival returns a learner without observations.
func NewSurvival() *Survival {
	s := &Survival{prior: make([]float64, survivalBins+1), classes: map[string]*class{}}
	for b := range s.prior {
		s.prior[b] = logUniform(time.Duration(b) * survivalStep)
	}
	s.unknown = s.estimate(&class{ended: make([]int32, survivalBins), going: make([]int32, survivalBins)})
	return s
}

// logUniform returns the fraction of the prior's jobs that run longer than d.
func logUniform(d time.Duration) float64 {
	switch {
	case d <= priorShortest:
		return 1
	case d >= priorLongest:
		return 0
	}
	return 1 - math.Log(float64(d)/float64(priorShortest))/math.Log(float64(priorLongest)/float64(priorShortest))
}

// Every implements [Learner].
func (s *Survival) Every() time.Duration { return time.Hour }

// Ended implements [Learner]. It takes effect at the next Refresh.
func (s *Survival) Ended(j *sched.Job, ran time.Duration) {
	c := s.class(j)
	c.ended[stepOf(ran)]++
	c.changed = true
}

// Refresh implements [Learner].
func (s *Survival) Refresh(_ time.Time, unfinished iter.Seq2[*sched.Job, time.Duration]) {
	for _, c := range s.classes {
		if c.isGoing > 0 {
			clear(c.going)
			c.isGoing, c.changed = 0, true
		}
	}
	for j, ran := range unfinished {
		c := s.class(j)
		c.going[stepOf(ran)]++
		c.isGoing++
		c.changed = true
	}
	for _, c := range s.classes {
		if c.changed {
			c.runtimes, c.changed = s.estimate(c), false
		}
	}
}

// Expect implements [Learner]. All jobs of a queue share their Runtimes until the next Refresh.
func (s *Survival) Expect(j *sched.Job) {
	j.Runtimes = s.unknown
	if c, ok := s.classes[j.Queue]; ok {
		j.Runtimes = c.runtimes
	}
	j.Duration = j.Runtimes.Mean()
}

func (s *Survival) class(j *sched.Job) *class {
	c, ok := s.classes[j.Queue]
	if !ok {
		c = &class{ended: make([]int32, survivalBins), going: make([]int32, survivalBins), runtimes: s.unknown}
		s.classes[j.Queue] = c
	}
	return c
}

// stepOf returns the step that contains the given run time. Longer run times than the grid are assigned to its last
// step.
func stepOf(ran time.Duration) int {
	return min(int(max(0, ran)/survivalStep), survivalBins-1)
}

func (s *Survival) estimate(c *class) *sched.Runtimes {
	atRisk := 0
	for b, n := range c.ended {
		atRisk += int(n + c.going[b])
	}
	survival := make([]float64, survivalBins+1)
	survival[0] = 1
	for b, ended := range c.ended {
		going := c.going[b]
		exposure := float64(atRisk) - float64(going)/2 + priorJobs*s.prior[b]
		// If neither jobs nor the prior provide information, a job continues for its elapsed run time again with a
		// probability of one half.
		hazard := 1 / float64(b+1)
		if exposure > 0 {
			hazard = (float64(ended) + priorJobs*(s.prior[b]-s.prior[b+1])) / exposure
		}
		survival[b+1] = survival[b] * (1 - min(1, hazard))
		atRisk -= int(ended + going)
	}
	runtimes, err := sched.NewRuntimes(survivalStep, survival)
	if err != nil {
		panic(err) // hazards are between 0 and 1, so survival is valid and does not increase
	}
	return runtimes
}
