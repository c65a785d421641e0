package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
)

// PlanTogether plans several jobs jointly with a rule such as "guarded" until stop returns true. looks is the number
// of calls of stop up to that point, or 0 if the plan was completed. There is no opinion on the jobs if the rule does
// not plan jointly.
func PlanTogether(rule string, s *sched.Snapshot, nodes []sched.Node, stop func() bool) (plan sched.Plan, looks int) {
	for i := range nodes {
		s.Nodes = append(s.Nodes, &nodes[i])
	}
	if !sched.StartRules[rule].Together {
		return make(sched.Plan, len(s.Queue)), 0
	}
	asked := 0
	plan, _ = strategies()["carbon+"+rule].PlanWithin(s, func() bool {
		if asked++; looks == 0 && stop() {
			looks = asked
		}
		return looks > 0
	})
	return plan, looks
}

// RecordedPlan is a joint plan with all of its inputs. It is a line in the output of [RecordPlans].
type RecordedPlan struct {
	Rule     string          `json:"rule,omitempty"` // if empty, "plan"
	Snapshot json.RawMessage `json:"snapshot"`       // encoded by [codec.Encode]
	// Looks is the number of calls of stop until the plan was stopped; 0 if it was completed.
	Looks     int       `json:"looks,omitempty"`
	Decisions []Planned `json:"decisions"` // in queue order of the snapshot
}

// Planned is the decision on a job. It is comparable with decisions made at other times.
type Planned struct {
	Job    string    `json:"job"`
	Node   string    `json:"node,omitempty"`
	Start  time.Time `json:"start,omitzero"` // zero if the job starts immediately
	Reason string    `json:"reason"`
	Saving float64   `json:"saving,omitempty"`
}

// String returns a human-readable description.
func (p Planned) String() string {
	start := "now"
	if !p.Start.IsZero() {
		start = "at " + p.Start.Format(time.RFC3339Nano)
	}
	return fmt.Sprintf("job %q starts %s on %q: %s, saving %v", p.Job, start, p.Node, p.Reason, p.Saving)
}

func planned(now time.Time, plan sched.Plan) []Planned {
	all := make([]Planned, len(plan))
	for i := range plan {
		d := &plan[i]
		all[i] = Planned{Job: d.Job, Node: d.Node, Reason: d.Reason.Kind.String(), Saving: d.Reason.Saving}
		if d.Held(now) {
			all[i].Start = d.Window.Start.UTC().Round(0) // strip the monotonic clock reading
		}
	}
	return all
}

// RecordPlans returns a function that writes plans of [PlanTogether] to w as lines of JSON. A plan is only written
// if its decisions differ from those of the previous one. A plan that is too large for [codec.Decode] is not
// written, which is logged.
func RecordPlans(
	w io.Writer, log *slog.Logger,
) func(rule string, s *sched.Snapshot, plan sched.Plan, looks int) {
	var last []Planned
	return func(rule string, s *sched.Snapshot, plan sched.Plan, looks int) {
		decisions := planned(s.Now, plan)
		if slices.Equal(last, decisions) {
			return
		}
		last = decisions
		snapshot, err := codec.Encode(s)
		if err == nil {
			_, err = codec.Decode(snapshot)
		}
		if err == nil {
			err = json.NewEncoder(w).Encode(RecordedPlan{rule, snapshot, looks, decisions})
		}
		if err != nil {
			log.Warn("Failed to record a plan", "jobs", len(plan), "error", err)
		}
	}
}

// Again makes the plan again from its snapshot. It returns an error that describes the first difference, if any.
func (r *RecordedPlan) Again() error {
	s, err := codec.Decode(r.Snapshot)
	if err != nil {
		return err
	}
	asked := 0
	plan, looks := PlanTogether(cmp.Or(r.Rule, "plan"), s, nil, func() bool { asked++; return asked == r.Looks })
	again, at := planned(s.Now, plan), "the plan of "+s.Now.Format(time.RFC3339Nano)
	switch {
	case len(again) != len(r.Decisions):
		return fmt.Errorf("replaying %s yields %d jobs, want %d", at, len(again), len(r.Decisions))
	case looks != r.Looks:
		return fmt.Errorf("replaying %s checks the clock %d times, want a stop at check %d", at, asked, r.Looks)
	}
	for i, previous := range r.Decisions {
		if again[i] != previous {
			return fmt.Errorf("%s differs: replayed %v, recorded %v", at, again[i], previous)
		}
	}
	return nil
}

// ReplayPlans makes all recorded plans again. It returns the number of plans before the first one that differs.
func ReplayPlans(from io.Reader) (same int, err error) {
	for lines := json.NewDecoder(from); ; same++ {
		var r RecordedPlan
		if err = lines.Decode(&r); errors.Is(err, io.EOF) {
			return same, nil
		}
		if err == nil {
			err = r.Again()
		}
		if err != nil {
			return same, fmt.Errorf("replaying plan %d: %w", same+1, err)
		}
	}
}
