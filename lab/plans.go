package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// plansFile is what the plans of a replay are recorded in, in its folder.
const plansFile = "plans.jsonl"

// plan reports whether the hold loop is to plan jobs together.
func plan(trials []Trial) bool {
	return slices.ContainsFunc(trials, func(t Trial) bool { return sched.When(t.Strategy) == planRule })
}

// planRecord is a file that takes whole lines until it is closed: the last plan may end after the loop that began it.
type planRecord struct {
	mu   sync.Mutex
	file *os.File
}

// recordPlans has the scheduler record its plans, if it is to make some.
func (s *Scheduling) recordPlans(trials []Trial) (*planRecord, error) {
	if !plan(trials) {
		return &planRecord{}, nil
	}
	file, err := os.Create(filepath.Join(s.Dir, plansFile))
	r := &planRecord{file: file}
	s.recordPlan = policy.RecordPlans(r, s.Log)
	return r, err
}

func (r *planRecord) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.file.Write(line) // once it is closed, an error
}

func (r *planRecord) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.file.Close() // of none, an error
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
