package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// pods contains virtual meters of jobs, which inform a learner of the power of each job in addition to idle power.
// Like an agent on a real node, it divides the power of a node's CPUs beyond idle among its jobs by CPU time. The
// power of GPUs is read separately. A nil *pods does not inform a learner.
//
// The meter of a job is read when the job ends or is suspended, and while it runs: at the first event after a
// metering period once the job has run for twice as long as at the previous reading, and at least once an hour.
// Power is therefore never known in advance, and new jobs are measured soon.
type pods struct {
	learner predict.PowerLearner
	start   time.Time
	every   time.Duration // 0 if only ended jobs are read
	next    time.Time

	jobs    []sched.Job // of the scenario
	use     *use
	nodes   []podNode
	of      []pod // per job
	running []int32
	job     sched.Job // as passed to the learner
	asked   sched.Job // as passed to strategies
}

// podNode contains the power per CPU time of one node. It is constant between two changes.
type podNode struct {
	profile *energy.Profile
	at      time.Time
	rate    float64 // watts per busy millicore, beyond idle
	sum     float64 // joules per millicore since the start
}

// pod is the meter of one job.
type pod struct {
	node  int32
	place int32 // index in pods.running
	begun time.Time
	since time.Time // time of the last reading
	sum   float64   // podNode.sum at the last reading
}

// newPods returns nil if there is no learner of the power of jobs.
func newPods(s *Scenario, strategy strategy.Strategy, u *use) *pods {
	if s.Power == nil || strategy == nil {
		return nil
	}
	p := &pods{
		learner: s.Power(), start: s.Start, every: s.Live.Period, next: s.Start, jobs: s.Jobs, use: u,
		nodes: make([]podNode, len(s.Nodes)), of: make([]pod, len(s.Jobs)),
	}
	switch {
	case s.Live.Off:
		p.every = 0
	case p.every == 0: // an ideal meter is not read at every event
		p.every = livePeriod
	}
	for i := range p.nodes {
		p.nodes[i] = podNode{profile: s.Nodes[i].Profile, at: s.Start}
	}
	return p
}

// expect sets the expected power of a job, if any is known.
func (p *pods) expect(j *sched.Job) {
	if p == nil {
		return
	}
	j.Expected, j.HasExpected = 0, false
	p.learner.Expect(j)
}

// reported returns j as passed to strategies for its expected power.
func (p *pods) reported(j *sched.Job) *sched.Job {
	if p == nil {
		return j
	}
	p.asked = *j
	p.asked.Duration, p.asked.Runtimes = 0, nil
	p.expect(&p.asked)
	return &p.asked
}

// begin records that a job was placed on node i.
func (p *pods) begin(i int, n *sched.Node, job int, now time.Time) {
	if p == nil {
		return
	}
	node := p.changed(i, n, now)
	p.of[job] = pod{node: int32(i), place: int32(len(p.running)), begun: now, since: now, sum: node.sum}
	p.running = append(p.running, int32(job))
}

// end reads the meter of a job that has left node i.
func (p *pods) end(i int, n *sched.Node, job int, now time.Time) {
	if p == nil {
		return
	}
	p.changed(i, n, now)
	p.read(job, now)
	at, last := p.of[job].place, len(p.running)-1
	moved := p.running[last]
	p.running[at], p.of[moved].place = moved, at
	p.running = p.running[:last]
}

// changed updates the power per CPU time of node i.
func (p *pods) changed(i int, n *sched.Node, now time.Time) *podNode {
	node := p.advance(i, now)
	node.rate = 0
	if busy := p.use.busy(i, n); busy > 0 {
		idle := node.profile.Power(0)
		node.rate = float64(node.profile.Power(float64(busy)/float64(n.Capacity.MilliCPU))-idle) / float64(busy)
	}
	return node
}

func (p *pods) advance(i int, now time.Time) *podNode {
	n := &p.nodes[i]
	n.sum += n.rate * now.Sub(n.at).Seconds()
	n.at = now
	return n
}

// slowestReading is the maximum interval between readings of a long-running job.
const slowestReading = time.Hour

// refresh reads the meters of running jobs that are due for a reading, at most once per period.
func (p *pods) refresh(now time.Time) {
	if p == nil || p.every == 0 || now.Before(p.next) {
		return
	}
	p.next = now.Add(p.every - now.Sub(p.start)%p.every)
	for _, job := range p.running {
		if m := &p.of[job]; now.Sub(m.since) < min(m.since.Sub(m.begun), slowestReading) {
			continue
		}
		p.advance(int(p.of[job].node), now)
		p.read(int(job), now)
	}
}

// read reports the power of a job since its last reading to the learner. The node must be advanced to now.
func (p *pods) read(job int, now time.Time) {
	m, j := &p.of[job], &p.jobs[job]
	over := now.Sub(m.since)
	if over <= 0 {
		return
	}
	node := &p.nodes[m.node]
	cpu := j.Request.MilliCPU
	if p.use != nil {
		cpu = p.use.of[job]
	}
	drew := energy.Watts(float64(cpu) * (node.sum - m.sum) / over.Seconds())
	drew += (node.profile.GPUPower(j.GPUClass) - node.profile.GPUIdle) * energy.Watts(j.Request.Devices())
	m.since, m.sum = now, node.sum
	p.job = *j
	p.job.Duration, p.job.Runtimes = 0, nil
	p.learner.Measured(&p.job, drew, over, now)
}
