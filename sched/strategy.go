package sched

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Strategy decides. It must be deterministic: the same snapshot gives the same plan.
type Strategy interface {
	Plan(*Snapshot) Plan
}

// nodeCost returns the cost of running c.job on n now; the node of least cost is chosen, ties go by name. ok is false
// where the snapshot lacks what the cost depends on: then the strategy has no opinion, and c.why may say what is missing.
type nodeCost func(c *costing, n *Node) (cost float64, ok bool)

// startRule returns when a job should start. A start after s.Now holds it.
type startRule func(s *Snapshot, j *Job) (Window, Reason)

var (
	where = map[string]nodeCost{
		"carbon":          carbon,
		"energy":          leastEnergy,
		"exec":            exec,
		"hybrid":          hybrid,
		"hybrid-idle":     hybridIdle,
		"least-allocated": leastAllocated,
		"round-robin":     roundRobin,
	}
	when = map[string]startRule{
		"now":       startNow, // whoever asks for it does not wait, for a budget neither
		"threshold": unlessClosed(belowThreshold),
		"window":    unlessClosed(cheapestWindow),
	}
)

// readLive are the wheres that look at live watts. Their costs change from one job to the next.
var readLive = map[string]bool{"exec": true, "hybrid": true, "hybrid-idle": true}

// Names returns what [New] accepts on the left and on the right of its "+", sorted.
func Names() (wheres, whens []string) {
	for name := range where {
		wheres = append(wheres, name)
	}
	for name := range when {
		whens = append(whens, name)
	}
	slices.Sort(wheres)
	slices.Sort(whens)
	return wheres, whens
}

// When returns the when of a strategy's name, "now" where it names none.
func When(name string) string {
	if _, right, both := strings.Cut(name, "+"); both {
		return right
	}
	return "now"
}

// New returns the strategy of a name: a where, or where+when as in "carbon+window". Without a when, jobs start now.
func New(name string) (*Greedy, error) {
	left, _, _ := strings.Cut(name, "+")
	right := When(name)
	cost, okWhere := where[left]
	start, okWhen := when[right]
	if !okWhere || !okWhen {
		wheres, whens := Names()
		return nil, fmt.Errorf("unknown strategy %q: want one of %s, optionally followed by + and one of %s",
			name, strings.Join(wheres, ", "), strings.Join(whens, ", "))
	}
	return &Greedy{name: name, cost: cost, start: start, holds: right != "now", live: readLive[left]}, nil
}

// Greedy serves a queue job by job: a start rule says when, a cost over nodes says where.
type Greedy struct {
	name  string
	cost  nodeCost
	start startRule
	holds bool
	live  bool
}

// String returns the name that g was made from.
func (g *Greedy) String() string { return g.name }

// Holds reports whether g ever puts off a start.
func (g *Greedy) Holds() bool { return g.holds }

// ReadsLive reports whether g looks at what nodes draw just now.
func (g *Greedy) ReadsLive() bool { return g.live }

// Plan implements [Strategy]. Jobs are served by submission time and then ID, whatever their order in the queue.
func (g *Greedy) Plan(s *Snapshot) Plan {
	plan := make(Plan, len(s.Queue))
	if len(s.Queue) == 1 {
		plan[0] = g.decide(s, &s.Queue[0])
		return plan
	}
	order := make([]int, len(s.Queue))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := &s.Queue[a], &s.Queue[b]
		return cmp.Or(x.Submitted.Compare(y.Submitted), cmp.Compare(x.ID, y.ID))
	})
	// Decisions of this plan take room from later ones, so the nodes are copied before they change.
	work := *s
	nodes := make([]Node, len(s.Nodes))
	for i, n := range s.Nodes {
		nodes[i] = *n
	}
	feasible := make([]*Node, 0, len(nodes))
	for _, i := range order {
		job := &s.Queue[i]
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
			nodes[k].Provisional += nodes[k].Added(job)
			nodes[k] = nodes[k].Place(job.Request)
			work.Last = d.Node
		}
		plan[i] = d
	}
	return plan
}

// decide places one job on s.Nodes, all of which are taken as feasible, or holds it.
func (g *Greedy) decide(s *Snapshot, j *Job) Decision {
	window, reason := g.start(s, j)
	d := Decision{Job: j.ID, Window: window, Reason: reason}
	if d.Held(s.Now) {
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
