package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// plansFile is what the plans of a replay are recorded in, in its folder.
const plansFile = "plans.jsonl"

// plan reports whether the hold loop is to plan jobs together.
func plan(trials []Trial) bool {
	return slices.ContainsFunc(trials, func(t Trial) bool { return strategy.When(t.Strategy) == planRule })
}

// recordPlans has the scheduler record its plans, if it is to make some. The last plan may end after the loop that
// began it, when the record is closed.
func (s *Scheduling) recordPlans(trials []Trial) (*sink, error) {
	if !plan(trials) {
		return &sink{}, nil
	}
	file, err := os.Create(filepath.Join(s.Dir, plansFile))
	r := &sink{file: file, late: os.ErrClosed}
	s.recordPlan = policy.RecordPlans(r, s.Log)
	return r, err
}

// plansAgain makes the plans of a replay again from their snapshots, and says how many there were.
func plansAgain(dir string, stderr io.Writer) error {
	file, err := os.Open(filepath.Join(dir, plansFile))
	if err != nil {
		return err
	}
	defer file.Close()
	quiet := sayThatItLives(stderr, "plans are being made again")
	same, err := policy.ReplayPlans(file)
	quiet()
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	fmt.Fprintf(stderr, "%d plans were made again from their snapshots (%s): all the same\n", same, file.Name())
	return nil
}
