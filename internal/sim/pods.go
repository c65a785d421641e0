package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// pods are virtual meters of jobs, which tell a learner what each of them draws beyond what its node draws anyway. As
// an agent does it on a real node, what the CPUs of a node draw beyond idle is divided among its jobs by the CPU time
// that they use; GPUs are read one by one. A nil *pods tells no learner anything.
//
// A job is read when it ends or is suspended, and while it runs: at the first instant after a period of the nodes'
// meters at which anything happens, whenever it has run for twice as long since, and once an hour in the end. So
// nothing is known before it was drawn, and what is new is known soon.
type pods struct {
	learner predict.PowerLearner
	start   time.Time
	every   time.Duration // 0: only what has ended is read
	next    time.Time

	jobs    []sched.Job // the scenario's
	use     *use
	nodes   []podNode
	of      []pod // by job
	running []int32
	job     sched.Job // as it is shown to the learner
	asked   sched.Job // as strategies are told of its power
}

// podNode is what the CPU time of one node costs. Between two changes that is constant.
type podNode struct {
	profile *energy.Profile
	at      time.Time
	rate    float64 // watts per busy thousandth of a core, beyond idle
	sum     float64 // joules per thousandth of a core since the start
}

// pod is the meter of one job.
type pod struct {
	node  int32
	place int32 // in pods.running
	begun time.Time
	since time.Time // when it was read last
	sum   float64   // podNode.sum then
}

// newPods returns nil where no learner is to be told what jobs draw.
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
	case p.every == 0: // an ideal meter need not be read at every instant
		p.every = livePeriod
	}
	for i := range p.nodes {
		p.nodes[i] = podNode{profile: s.Nodes[i].Profile, at: s.Start}
	}
	return p
}

// expect fills in what a job is expected to draw, as far as anything is known.
func (p *pods) expect(j *sched.Job) {
	if p == nil {
		return
	}
	j.Expected, j.HasExpected = 0, false
	p.learner.Expect(j)
}

// reported returns j as strategies are told of its power.
func (p *pods) reported(j *sched.Job) *sched.Job {
	if p == nil {
		return j
	}
	p.asked = *j
	p.asked.Duration, p.asked.Runtimes = 0, nil
	p.expect(&p.asked)
	return &p.asked
}

// begin notes that a job has been put on node i.
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

// changed notes what CPU time costs on node i from now on.
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

// slowestReading is how often at least a job is read that has run for long.
const slowestReading = time.Hour

// refresh reads the meters of jobs that run, if a period has passed.
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

// read tells what a job has drawn since it was read last. Its node stands at now.
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
	drew += (node.profile.GPUPower(j.GPUClass) - node.profile.GPUIdle) * energy.Watts(j.Request.GPU)
	m.since, m.sum = now, node.sum
	p.job = *j
	p.job.Duration, p.job.Runtimes = 0, nil
	p.learner.Measured(&p.job, drew, over, now)
}
