package batch

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Limits bound what planning may cost, and how long a plan counts.
type Limits struct {
	// for a solution; the rest of the queue is then placed pod by pod at the same cost
	TimeLimit metav1.Duration `json:"timeLimit"`
	MinPods   int             `json:"leastPods"` // that wait and are in no plan: for fewer none is made
	MaxPods   int             `json:"mostPods"`  // in a plan; 0: none is made
	Believed  metav1.Duration `json:"believed"`  // how long a plan counts, from when the nodes were copied
	Options   int             `json:"options"`   // nodes that a pod may go to beside its planned one
}

// Strategy is what plans; see [strategy.Greedy].
type Strategy interface {
	PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality)
	Options(s *sched.Snapshot, plan sched.Plan, most int) [][]string
}

// Config is what a Planner needs.
type Config struct {
	Limits
	Profile    string                             // of kube-scheduler, for metrics
	Strategies map[string]Strategy                // that look at a whole queue, by name
	Policy     sched.Policy                       // of all pods; their weights are their own
	View       func() *kube.View                  // what is known now
	Read       func(pod *v1.Pod) (p Pod, ok bool) // under what is known now; not ok: it is not to be planned
	Held       func(pod *v1.Pod) bool             // reports whether a pod is kept from the scheduler; returns at once
	Log        *slog.Logger
}

// Planner makes plans and hands them out pod by pod.
type Planner struct {
	c      Config
	asked  chan *Question // has room for the one that busy allows
	busy   atomic.Bool    // a cycle copies the nodes, or a plan is being made
	logged bool           // belongs to Run

	mu        sync.Mutex
	pods      map[types.UID]*waiter
	arrivals  uint64
	number    uint64 // of the plan in force, or of none
	plan      bool   // there is one
	until     time.Time
	notBefore time.Time // the next plan
	unplanned int       // waiters that are, see [waiter.unplanned]
	unused    int       // waiters with a step of the plan in force that is still to be taken
	beyond    int       // waiters for which the plan in force had no place
}

// New returns a planner.
func New(c Config) *Planner {
	metrics.Register()
	return &Planner{c: c, asked: make(chan *Question, 1), pods: map[types.UID]*waiter{}, number: 1}
}

// Question is the cluster as a scheduling cycle has seen it. The planner owns it.
type Question struct {
	View    *kube.View
	At      time.Time // by the clock that decisions go by
	Nodes   []sched.Node
	Objects []*v1.Node // of the same nodes; what they point to never changes
	Slots   []int      // for how many pods more a node has room, whatever they ask for

	asked time.Time
}

// Step is what a plan has for one pod.
type Step struct {
	Node string
	Next []string // where it may go instead, the best first; shared
	Of   int      // pods in the plan
}

// Ask hands over the nodes, after [Planner.Turn] has said that they are wanted; nil if they could not be copied. It
// does not wait.
func (p *Planner) Ask(q *Question) {
	if q == nil {
		p.pause()
		p.busy.Store(false)
		return
	}
	q.asked = time.Now()
	p.asked <- q
}

// Run makes plans until the context ends.
func (p *Planner) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-p.asked:
			p.answer(ctx, q)
			p.busy.Store(false)
		}
	}
}

// answer makes a plan. Where that fails, the one before stays in force for its time, and no other is asked for in the
// meantime: the cause is probably there to stay.
func (p *Planner) answer(ctx context.Context, q *Question) {
	outcome := failed
	begun := time.Now()
	defer func() {
		if panicked := recover(); panicked != nil {
			panics.Count("batch")
			if !p.logged {
				p.c.Log.Error("planning a batch panicked: going on pod by pod; later ones are not logged", "panic",
					panicked, "stack", string(debug.Stack()))
			}
			p.logged = true
		}
		if outcome == failed || outcome == late {
			p.pause()
		}
		plans.WithLabelValues(p.c.Profile, outcome).Inc()
		planSeconds.WithLabelValues(p.c.Profile).Observe(time.Since(begun).Seconds())
	}()
	intake := p.intake()
	solution := p.solve(q, intake.queue, func() bool {
		return ctx.Err() != nil || time.Since(begun) > p.c.TimeLimit.Duration
	})
	if time.Since(q.asked) > p.c.Believed.Duration {
		outcome = late
		return
	}
	outcome = whole
	if !solution.whole {
		outcome = cut
	}
	p.adopt(q, intake, solution)
	solution.found(p.c.Profile)
}

// adopt puts a solution in force.
func (p *Planner) adopt(q *Question, in *intake, s *solution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	p.plan, p.until = true, q.asked.Add(p.c.Believed.Duration)
	p.beyond = in.beyond
	for _, w := range p.pods {
		if w.seq <= in.arrivals && !w.away { // or its turn came while we were solving
			w.decided, w.step, w.planned = p.number, Step{}, false
		}
	}
	for _, uid := range in.held {
		if w := p.pods[uid]; w != nil {
			w.held = true
		}
	}
	for i := range in.queue {
		if w := p.pods[in.queue[i].pod.Object.UID]; w != nil && !w.away {
			w.step = s.steps[i]
			w.planned = w.step.Node != ""
		}
	}
	p.recount()
}

// pause asks for no plan for as long as one would be believed.
func (p *Planner) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notBefore = time.Now().Add(p.c.Believed.Duration)
}
