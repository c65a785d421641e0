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
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Limits configures the cost of planning and the lifetime of plans.
type Limits struct {
	// TimeLimit is the maximum time to improve a plan. The rest of the queue is then placed pod by pod with the
	// same cost function.
	TimeLimit metav1.Duration `json:"timeLimit"`
	// Gather is the time that new pods of Jobs are kept out of the queue, in order to plan them together with others.
	// 0 disables gathering.
	Gather metav1.Duration `json:"gather"`
	// MinPods is the minimum number of waiting pods that are not part of a plan, below which a scheduling cycle
	// requests no plan. It does not apply to gathered pods.
	MinPods  int             `json:"leastPods"`
	MaxPods  int             `json:"mostPods"` // max number of pods per plan; 0 disables planning
	Believed metav1.Duration `json:"believed"` // lifetime of a plan, starting when the nodes are copied
	Options  int             `json:"options"`  // number of alternative nodes per pod
}

// Strategy is a planning strategy, see [strategy.Greedy].
type Strategy interface {
	PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality)
	Options(s *sched.Snapshot, plan sched.Plan, most int) [][]string
}

// Config configures a Planner.
type Config struct {
	Limits
	Profile    string              // profile of kube-scheduler, for metrics
	Strategies map[string]Strategy // strategies that plan a whole queue, by name
	Policy     sched.Policy        // of all pods, except for the weights
	View       func() *kube.View   // returns the current view
	// Read reads a pod with the current view. It returns false if the pod must not be planned.
	Read func(pod *v1.Pod) (p Pod, ok bool)
	Held func(pod *v1.Pod) bool // reports whether a pod is held; must not block
	Log  *slog.Logger
}

// Planner makes plans and returns them step by step. It is safe for concurrent use.
type Planner struct {
	c      Config
	asked  chan *Question // buffered for the single question that busy permits
	busy   atomic.Bool    // nodes are being copied or a plan is being made
	logged bool           // accessed only by Run
	gathering

	mu        sync.Mutex
	pods      map[types.UID]*waiter
	arrivals  uint64
	number    uint64 // number of the current plan, or of the period without a plan
	plan      bool   // whether there is a plan
	until     time.Time
	notBefore time.Time // earliest time of the next plan
	unplanned int       // number of waiters that are not part of a plan, see [waiter.unplanned]
	unused    int       // number of waiters with an unused step of the current plan
	beyond    int       // number of waiters that exceeded the size of the current plan
}

// New returns a planner.
func New(c Config) *Planner {
	metrics.Register()
	return &Planner{
		c: c, asked: make(chan *Question, 1), pods: map[types.UID]*waiter{}, number: 1,
		gathering: gathering{closed: make(chan *group, maxClosedGroups), groups: lru.New(maxRemembered)},
	}
}

// Question is the cluster as observed by a scheduling cycle. It is owned by the planner.
type Question struct {
	View    *kube.View
	At      time.Time // by the clock of the scheduler's decisions
	Nodes   []sched.Node
	Objects []*v1.Node // API objects of the nodes, which are immutable
	Slots   []int      // number of further pods that each node may run, regardless of resources

	asked time.Time
}

// Step is the part of a plan for a single pod.
type Step struct {
	Node string
	Next []string // alternative nodes, best first; shared between steps
	Of   int      // number of planned pods
}

// Ask passes the nodes to the planner. It must be called if [Planner.Turn] returned wanted, with nil if the nodes
// could not be copied. It does not block.
func (p *Planner) Ask(q *Question) {
	if q == nil {
		p.pause()
		p.busy.Store(false)
		return
	}
	q.asked = time.Now()
	p.asked <- q
}

// Run makes plans until the context is done.
func (p *Planner) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-p.asked:
			p.answer(ctx, q)
			p.busy.Store(false)
		case g := <-p.closed:
			p.answerGroup(ctx, g)
		}
	}
}

// answer makes a plan. If that fails, the previous plan remains in use until it expires, and no other plan is
// requested in the meantime, because the cause is likely to persist.
func (p *Planner) answer(ctx context.Context, q *Question) {
	outcome := failed
	begun := time.Now()
	defer func() {
		if panicked := recover(); panicked != nil {
			panics.Count("batch")
			if !p.logged {
				p.c.Log.Error("Planning a batch panicked, further panics are not logged", "panic",
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
	if outcome = whole; !solution.whole {
		outcome = cut
	}
	p.adopt(q, intake, solution)
	solution.found(p.c.Profile)
}

// adopt makes a solution the current plan.
func (p *Planner) adopt(q *Question, in *intake, s *solution) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.number++
	p.plan, p.until = true, q.asked.Add(p.c.Believed.Duration)
	p.beyond = in.beyond
	for _, w := range p.pods {
		if w.seq <= in.arrivals && !w.away { // otherwise its cycle started in the meantime
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

// pause prevents new plans for the lifetime of a plan.
func (p *Planner) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notBefore = time.Now().Add(p.c.Believed.Duration)
}
