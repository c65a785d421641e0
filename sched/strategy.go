package sched

import (
	"math"
	"slices"
	"strings"
)

// Strategy decides. It must be deterministic: the same snapshot gives the same plan.
type Strategy interface {
	Plan(*Snapshot) Plan
}

// nodeCost returns the cost of running c.job on n now; the node of least cost is chosen, ties go by name. ok is false
// where the snapshot lacks what the cost depends on: then the strategy has no opinion, and c.why may say what is
// missing.
type nodeCost func(c *costing, n *Node) (cost float64, ok bool)

var where = map[string]nodeCost{
	"balanced":        balanced,
	"carbon":          carbon,
	"ecsched-dp":      dotProduct,
	"ecsched-k8s":     authorsStock,
	"ecsched-ml":      mostLoaded,
	"energy":          leastEnergy,
	"exec":            exec,
	"fcfs":            firstFit,
	"hybrid":          hybrid,
	"hybrid-idle":     hybridIdle,
	"least-allocated": leastAllocated,
	"max-min":         soonest,
	"min-min":         soonest,
	"most-allocated":  mostAllocated,
	"peaks":           peaks,
	"profile":         profile,
	"random":          random,
	"round-robin":     roundRobin,
}

// readLive are the wheres that look at live watts. Their costs change from one job to the next.
var readLive = map[string]bool{"exec": true, "hybrid": true, "hybrid-idle": true}

// Names returns what [New] accepts on the left and on the right of its "+", sorted.
func Names() (wheres, whens []string) {
	for name := range where {
		wheres = append(wheres, name)
	}
	for name := range matchers {
		if where[name] == nil {
			wheres = append(wheres, name)
		}
	}
	for name := range when {
		whens = append(whens, name)
	}
	slices.Sort(wheres)
	slices.Sort(whens)
	return wheres, whens
}

// When returns the when of a strategy's name, "now" where it names none. Whether a strategy ever puts off a start is
// what [Holds] says: one that is throttled does under every when.
func When(name string) string {
	_, when, _ := parts(name)
	return when
}

// parts takes a strategy's name apart: where+when/order.
func parts(name string) (where, when, order string) {
	where, when, both := strings.Cut(name, "+")
	if !both {
		return where, "now", ""
	}
	when, order, ordered := strings.Cut(when, "/")
	if ordered && order == "" {
		order = "/" // nothing is called that
	}
	return where, when, order
}

// New returns the strategy of a name: a where, or where+when as in "carbon+window". Without a when, jobs start now.
// After a when there may be the order in which a queue is served, as in "balanced+now/shortest"; without one, jobs
// are served as they come.
func New(name string) (*Greedy, error) {
	left, right, last := parts(name)
	whole, matches := matchers[left]
	if !matches {
		whole.cost = left
	}
	cost, okWhere := where[whole.cost]
	rule, okWhen := when[right]
	order, okOrder := orders[last]
	if !okWhere || !okWhen || last != "" && !okOrder {
		return nil, unknown(name)
	}
	if matches && order != nil {
		return nil, unordered(name, left)
	}
	return &Greedy{name: name, cost: cost, when: rule, live: readLive[left], match: whole.match, order: order}, nil
}

// Greedy serves a queue job by job: a start rule says when, a cost over nodes says where. A few wheres match a queue
// with the nodes as a whole instead.
type Greedy struct {
	name  string
	cost  nodeCost
	when  rule
	live  bool
	match func(b *batch) // nil: job by job
	order queueOrder     // nil: as they come
}

// String returns the name that g was made from.
func (g *Greedy) String() string { return g.name }

// ReadsLive reports whether g looks at what nodes draw just now.
func (g *Greedy) ReadsLive() bool { return g.live }

// Plan implements [Strategy]. Jobs are served by submission time and then ID, or as g's order says, whatever their
// order in the queue.
func (g *Greedy) Plan(s *Snapshot) Plan {
	if len(s.Queue) == 1 {
		return Plan{g.decide(s, &s.Queue[0])}
	}
	plan, _ := g.PlanWithin(s, never)
	return plan
}

// planInOrder decides on one job after the other.
func (g *Greedy) planInOrder(s *Snapshot, stop func() bool) (Plan, Optimality) {
	plan := make(Plan, len(s.Queue))
	proof := Optimality{Whole: true}
	// Decisions of this plan take room from later ones, so the nodes are copied before they change.
	work := *s
	nodes := make([]Node, len(s.Nodes))
	for i, n := range s.Nodes {
		nodes[i] = *n
	}
	feasible := make([]*Node, 0, len(nodes))
	for _, i := range s.inOrder(g.order) {
		job := &s.Queue[i]
		if proof.Whole = proof.Whole && !stop(); !proof.Whole {
			plan[i].Job = job.ID
			continue
		}
		feasible = feasible[:0]
		for k := range nodes {
			if job.Fits(&nodes[k]) {
				feasible = append(feasible, &nodes[k])
			}
		}
		work.Nodes = feasible
		d := g.decide(&work, job)
		if d.Node != "" {
			k := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == d.Node })
			sized := job.On(d.Replicas)
			nodes[k].Provisional += nodes[k].Added(&sized)
			nodes[k] = nodes[k].Place(sized.Request)
			work.Last = d.Node
		}
		plan[i] = d
	}
	return plan, proof
}

// decide places one job on s.Nodes, all of which are taken as feasible, or holds it.
func (g *Greedy) decide(s *Snapshot, j *Job) Decision {
	if g.chooses(j) {
		return g.decideScaled(s, j)
	}
	window, reason, again := g.when.ask(s, j)
	d := Decision{Job: j.ID, Window: window, Again: again, Reason: reason}
	if d.Held(s.Now) || j.Running { // what runs stays where it is
		return d
	}
	best, why, ok := g.cheapest(s, j)
	switch {
	case !ok:
		d.Reason = Reason{Kind: why}
	case best == nil:
		if reason.Kind == Cheapest {
			d.Reason.Kind = NoRoom // otherwise the start rule's reason says more
		}
	default:
		d.Node = best.Name
		d.Window.End = s.Now.Add(best.Runtime(j))
		d.Cost = s.Estimate(j, best, d.Window)
	}
	return d
}

// cheapest returns the node of least cost, nil if there is none to choose from. ok is false where there is no opinion,
// and why says what is missing.
func (g *Greedy) cheapest(s *Snapshot, j *Job) (best *Node, why ReasonKind, ok bool) {
	least := math.Inf(1)
	costing := newCosting(s, j)
	for _, n := range s.Nodes {
		c, known := g.cost(&costing, n)
		if !known {
			return nil, costing.why, false
		}
		if best == nil || c < least || c == least && n.Name < best.Name {
			best, least = n, c
		}
	}
	return best, NoOpinion, true
}

// Costs returns what each of s.Nodes costs the job, for scorers and explanations; dst is reused if it is long enough.
// ok is false if there is no opinion.
func (g *Greedy) Costs(s *Snapshot, j *Job, dst []float64) (costs []float64, ok bool) {
	costs = dst[:0]
	costing := newCosting(s, j)
	for _, n := range s.Nodes {
		c, known := g.cost(&costing, n)
		if !known {
			return nil, false
		}
		costs = append(costs, c)
	}
	return costs, true
}
