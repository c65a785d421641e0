package policy

import (
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

// PlanTogether decides on several jobs at once, as the when "plan" does, until stop says that there is no more time.
// looks is how often it asked stop until that said so; 0: there was time for all.
func PlanTogether(s *sched.Snapshot, nodes []sched.Node, stop func() bool) (plan sched.Plan, looks int) {
	for i := range nodes {
		s.Nodes = append(s.Nodes, &nodes[i])
	}
	asked := 0
	plan, _ = strategies()["carbon+plan"].PlanWithin(s, func() bool {
		if asked++; looks == 0 && stop() {
			looks = asked
		}
		return looks > 0
	})
	return plan, looks
}

// RecordedPlan is a plan over several jobs with all that it depended on: a line of what [RecordPlans] writes.
type RecordedPlan struct {
	Snapshot  json.RawMessage `json:"snapshot"`        // as [codec.Encode] writes it
	Looks     int             `json:"looks,omitempty"` // at the clock, until time was up; 0: it was not
	Decisions []Planned       `json:"decisions"`       // in the order of the snapshot's queue
}

// Planned is what a plan says of a job. Two of the same mean the same, also at different times.
type Planned struct {
	Job    string    `json:"job"`
	Node   string    `json:"node,omitempty"`
	Start  time.Time `json:"start,omitzero"` // zero: now
	Reason string    `json:"reason"`
	Saving float64   `json:"saving,omitempty"`
}

// String tells people.
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
			all[i].Start = d.Window.Start.UTC().Round(0) // without the reading of a monotonic clock
		}
	}
	return all
}

// RecordPlans returns what writes plans of [PlanTogether] to w, as a line of JSON each that differs from the one before
// it. What [codec.Decode] would not read, as it is too large, is not written, and log is told.
func RecordPlans(w io.Writer, log *slog.Logger) func(s *sched.Snapshot, plan sched.Plan, looks int) {
	var last []Planned
	return func(s *sched.Snapshot, plan sched.Plan, looks int) {
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
			err = json.NewEncoder(w).Encode(RecordedPlan{snapshot, looks, decisions})
		}
		if err != nil {
			log.Warn("a plan is not recorded", "jobs", len(plan), "error", err)
		}
	}
}

// Again makes the plan again from its snapshot. The error names the first decision that is another one.
func (r *RecordedPlan) Again() error {
	s, err := codec.Decode(r.Snapshot)
	if err != nil {
		return err
	}
	asked := 0
	plan, looks := PlanTogether(s, nil, func() bool { asked++; return asked == r.Looks })
	again, at := planned(s.Now, plan), "the plan of "+s.Now.Format(time.RFC3339Nano)
	switch {
	case len(again) != len(r.Decisions):
		return fmt.Errorf("%s is of %d jobs again, and was of %d", at, len(again), len(r.Decisions))
	case looks != r.Looks:
		return fmt.Errorf("%s looks at the clock %d times again, and was stopped at look %d", at, asked, r.Looks)
	}
	for i, previous := range r.Decisions {
		if again[i] != previous {
			return fmt.Errorf("%s differs: again, %v; recorded, %v", at, again[i], previous)
		}
	}
	return nil
}

// ReplayPlans makes all plans of a record again, and returns how many are the same before the first that is not.
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
			return same, fmt.Errorf("making plan %d again: %w", same+1, err)
		}
	}
}
