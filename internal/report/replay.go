package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Replay contains the decisions that other strategies make on recorded snapshots, with their consequences as
// estimated on the snapshot.
type Replay struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Records    int            `json:"records"` // number of records that could be read
	Strategies []Redecided    `json:"strategies"`
	Refused    []Refused      `json:"refused"`
	Quality    energy.Quality `json:"quality"`
}

// Redecided contains the decisions of one strategy.
type Redecided struct {
	Strategy  string       `json:"strategy"`
	Same      int          `json:"same"`
	OtherNode int          `json:"otherNode"`
	Held      int          `json:"heldInstead"`    // holds instead of recorded starts
	Started   int          `json:"startedInstead"` // starts instead of recorded holds
	OtherHold int          `json:"heldOtherwise"`  // holds until another time
	NoChoice  int          `json:"noChoice"`       // no preference, or no capacity
	Compared  int          `json:"compared"`       // decisions in the sums; both sides can be estimated
	Recorded  Sums         `json:"recorded"`
	Instead   Sums         `json:"instead"`
	Decisions []redecision `json:"decisions"` // decisions that differ
}

// Sums contains estimated sums of energy, emissions and cost.
type Sums struct {
	EnergyKWh float64 `json:"energyKWh"`
	Grams     float64 `json:"gramsCO2e"`
	Cost      float64 `json:"cost"`
}

func (s *Sums) add(e *sched.Estimate) {
	s.EnergyKWh += e.Energy.KWh()
	s.Grams += float64(e.Carbon)
	s.Cost += float64(e.Cost)
}

// redecision is a decision that differs from the recorded one.
type redecision struct {
	ID        string    `json:"id"`
	At        time.Time `json:"at"`
	Namespace string    `json:"namespace"`
	Owner     string    `json:"owner"`
	By        string    `json:"by"` // the recorded strategy
	Recorded  choice    `json:"recorded"`
	Instead   choice    `json:"instead"`
}

// choice is a recorded decision, or its replacement.
type choice struct {
	Node   string    `json:"node,omitempty"`
	Until  time.Time `json:"heldUntil,omitzero"`
	Reason string    `json:"reason,omitempty"`
	Sums   *Sums     `json:"estimated,omitempty"` // nil if the signals or profiles are unknown
}

// Refused is a record that cannot be replayed.
type Refused struct {
	ID  string `json:"id"`
	Why string `json:"why"`
}

// NewReplay repeats the decisions of records with each of the strategies.
func NewReplay(records []ledger.Record, strategies []string) (*Replay, error) {
	r := &Replay{APIVersion: document.APIVersion, Kind: "ReplayReport", Quality: energy.Estimated, Refused: []Refused{}}
	var planners []*strategy.Greedy
	for _, name := range strategies {
		g, err := strategy.New(name)
		if err != nil {
			return nil, err
		}
		planners = append(planners, g)
		r.Strategies = append(r.Strategies, Redecided{Strategy: name, Decisions: []redecision{}})
	}
	sorted := slices.Clone(records)
	slices.SortStableFunc(sorted, func(a, b ledger.Record) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID))
	})
	for _, record := range sorted {
		s, err := replayable(&record)
		if err != nil {
			r.Refused = append(r.Refused, Refused{record.ID, err.Error()})
			continue
		}
		r.Records++
		for k, g := range planners {
			r.Strategies[k].decide(&record, s, g)
		}
	}
	return r, nil
}

// replayable reads the snapshot of a record.
func replayable(r *ledger.Record) (*sched.Snapshot, error) {
	if len(r.Snapshot) == 0 {
		return nil, errors.New(leftNoSnapshot)
	}
	s, err := ReadSnapshot(r)
	if err != nil {
		return nil, err
	}
	if r.Node != "" && nodeNamed(s, r.Node) == nil {
		return nil, fmt.Errorf("node %q is not in the snapshot", r.Node)
	}
	return s, nil
}

func (d *Redecided) decide(r *ledger.Record, s *sched.Snapshot, g *strategy.Greedy) {
	decision := g.Plan(s)[0]
	recorded, instead := choice{Node: r.Node, Reason: r.Reason},
		choice{Node: decision.Node, Reason: decision.Reason.Kind.String()}
	start, other := s.Now, s.Now
	if r.Action == actionHold || r.Action == actionPause {
		recorded.Until, recorded.Node, start = r.Start, "", r.Start
	}
	if decision.Held(s.Now) {
		instead.Until, other = decision.Window.Start.UTC(), decision.Window.Start
	}
	differs := d.count(&recorded, &instead, len(s.Nodes) > 0)
	previous, known := estimated(s, recorded.Node, instead.Node, start)
	would, known2 := estimated(s, instead.Node, recorded.Node, other)
	if known && known2 {
		d.Compared++
		d.Recorded.add(&previous)
		d.Instead.add(&would)
		recorded.Sums, instead.Sums = new(Sums), new(Sums)
		recorded.Sums.add(&previous)
		instead.Sums.add(&would)
	}
	if differs {
		d.Decisions = append(d.Decisions, redecision{
			ID: r.ID, At: r.At.UTC(), Namespace: r.Namespace, Owner: r.OwnerName(), By: r.Strategy, Recorded: recorded,
			Instead: instead,
		})
	}
}

// count counts how two choices differ and reports whether they do. Snapshots of decisions to hold have no nodes, so
// if neither choice holds the job, neither has a node and they are the same.
func (d *Redecided) count(recorded, instead *choice, nodes bool) (differs bool) {
	switch held, holds := !recorded.Until.IsZero(), !instead.Until.IsZero(); {
	case held && holds && recorded.Until.Equal(instead.Until), !held && !holds && recorded.Node == instead.Node:
		d.Same++
		return false
	case held && holds:
		d.OtherHold++
	case held:
		d.Started++
	case holds:
		d.Held++
	case instead.Node == "" && nodes:
		d.NoChoice++
	default:
		d.OtherNode++
	}
	return true
}

// estimated returns the consumption that the job of a snapshot adds on a node from a start time. If one of the two
// choices has no node, both are estimated at the nominal power of the request. Otherwise, the power of the other
// choice's node would bias the comparison with a hold.
func estimated(s *sched.Snapshot, node, other string, start time.Time) (e sched.Estimate, ok bool) {
	j := &s.Queue[0]
	covers := func(site *sched.Site, w sched.Window) bool {
		return site != nil && (site.Carbon.Series == nil || site.Carbon.Series.Covers(w.Start, w.End)) &&
			(site.Price.Series == nil || site.Price.Series.Covers(w.Start, w.End))
	}
	if node != "" && other != "" {
		n := nodeNamed(s, node)
		w := sched.Window{Start: start, End: start.Add(n.Runtime(j))}
		if n.Profile == nil || !covers(n.Site, w) {
			return e, false
		}
		return s.Estimate(j, n, w), true
	}
	w := sched.Window{Start: start, End: start.Add(j.Duration)}
	var site *sched.Site
	if n := nodeNamed(s, cmp.Or(node, other)); n != nil {
		site = n.Site
	} else if len(s.Sites) > 0 {
		site = s.Sites[0]
	}
	if j.Duration <= 0 || !covers(site, w) {
		return e, false
	}
	return site.Account(j.Nominal(), 0, w), true
}

// Sheet returns a table with one row per decision that differs.
func (r *Replay) Sheet() *Table {
	t := Sheet("strategy", "id", "at", "namespace", "owner", "by", "recordedNode", "recordedUntil", "recordedReason",
		"recordedKWh", "recordedGrams", "recordedCost", "insteadNode", "insteadUntil", "insteadReason", "insteadKWh",
		"insteadGrams", "insteadCost")
	cells := func(c *choice) []any {
		if c.Sums == nil {
			return []any{c.Node, c.Until, c.Reason, nil, nil, nil}
		}
		return []any{c.Node, c.Until, c.Reason, c.Sums.EnergyKWh, c.Sums.Grams, c.Sums.Cost}
	}
	for i := range r.Strategies {
		for _, d := range r.Strategies[i].Decisions {
			row := []any{r.Strategies[i].Strategy, d.ID, d.At, d.Namespace, d.Owner, d.By}
			t.Add(slices.Concat(row, cells(&d.Recorded), cells(&d.Instead))...)
		}
	}
	return t
}

// Text returns the totals of each strategy and the first decisions that differ.
func (r *Replay) Text(_, colours bool) string {
	t := Heads(1, "strategy", "same", "other\nnode", "held\ninstead", "started\ninstead", "held\notherwise",
		"no\nchoice", "compared\n", "energy\nkWh", "emissions\ngCO2e", "cost\n")
	signed := func(v float64) string {
		if v > 0 {
			return "+" + humanize.Significant(v)
		}
		return humanize.Significant(v)
	}
	for _, s := range r.Strategies {
		t.Add(s.Strategy, s.Same, s.OtherNode, s.Held, s.Started, s.OtherHold, s.NoChoice, s.Compared,
			signed(s.Instead.EnergyKWh-s.Recorded.EnergyKWh), signed(s.Instead.Grams-s.Recorded.Grams),
			signed(s.Instead.Cost-s.Recorded.Cost))
	}
	lines := []string{
		fmt.Sprintf("%d recorded decisions with %d strategies. Energy, emissions and cost: estimated difference from "+
			"recorded decisions", r.Records, len(r.Strategies)),
		t.Framed(false, colours),
	}
	for i := range r.Strategies {
		lines = append(lines, r.Strategies[i].table(colours)...)
	}
	for _, refused := range r.Refused {
		lines = append(lines, fmt.Sprintf("Not replayed: record %s: %s", refused.ID, refused.Why))
	}
	return strings.Join(lines, "\n") + "\n"
}

// table lists the first decisions that differ.
func (d *Redecided) table(colours bool) (lines []string) {
	if len(d.Decisions) == 0 {
		return nil
	}
	const most = 20
	t := Heads(7, "record", "at", "owner", "by", "recorded", d.Strategy, "gCO2e")
	for i := range d.Decisions[:min(most, len(d.Decisions))] {
		r := &d.Decisions[i]
		grams := "–"
		if r.Instead.Sums != nil {
			grams = fmt.Sprintf("%+.3g", r.Instead.Sums.Grams-r.Recorded.Sums.Grams)
		}
		t.Add(r.ID, r.At.Format("2006-01-02 15:04:05"), r.Namespace+"/"+r.Owner, r.By, r.Recorded.shown(),
			r.Instead.shown(), grams)
	}
	lines = append(lines, t.Framed(false, colours))
	if left := len(d.Decisions) - most; left > 0 {
		lines = append(lines, fmt.Sprintf("and %d more, see -o csv or -o json", left))
	}
	return lines
}

// shown describes a choice in a few words.
func (c *choice) shown() string {
	switch {
	case !c.Until.IsZero():
		return "held until " + c.Until.UTC().Format("2006-01-02 15:04")
	case c.Node != "":
		return c.Node
	}
	return "no hold"
}
