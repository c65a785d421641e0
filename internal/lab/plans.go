package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// plansFile is the name of the file with the recorded plans of a replay.
const plansFile = "plans.jsonl"

// plan reports whether the hold loop plans jobs together.
func plan(trials []Trial) bool {
	return slices.ContainsFunc(trials, func(t Trial) bool { return plansJointly(t.Strategy) })
}

// plansJointly reports whether a strategy plans all held jobs jointly.
func plansJointly(name string) bool { return sched.StartRules[strategy.When(name)].Together }

// recordPlans configures the scheduler to record its plans, if it makes any. The last plan may complete after the
// loop that started it, when the record is already closed.
func (s *Scheduling) recordPlans(trials []Trial) (*sink, error) {
	if !plan(trials) {
		return &sink{}, nil
	}
	file, err := os.Create(filepath.Join(s.Dir, plansFile))
	r := &sink{file: file, late: os.ErrClosed}
	s.recordPlan = policy.RecordPlans(r, s.Log)
	return r, err
}

// plansAgain recomputes the plans of a replay from their snapshots, compares them, and reports their number.
func plansAgain(dir string, stderr io.Writer) error {
	file, err := os.Open(filepath.Join(dir, plansFile))
	if err != nil {
		return err
	}
	defer file.Close()
	quiet := sayThatItLives(stderr, "plans are being recomputed")
	same, err := policy.ReplayPlans(file)
	quiet()
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	fmt.Fprintf(stderr, "recomputed %d plans from their snapshots (%s): all identical\n", same, file.Name())
	return nil
}
