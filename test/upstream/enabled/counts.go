package enabled

import (
	"context"
	"fmt"
	"os"
	"sync"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// Counts verify that the KubEnergy plugins were called. Otherwise a test binary without the plugins would pass as
// well.
type Counts struct {
	Asked  int `json:"asked"`  // number of PreEnqueue calls of the hold plugin
	Cycles int `json:"cycles"` // number of scheduling cycles with a PreFilter call of the energy plugin
	Scored int `json:"scored"` // number of these cycles in which the energy plugin scored nodes
}

// CountsVariable is the environment variable with the path of the file to which a test binary writes its [Counts].
const CountsVariable = "KUBENERGY_UPSTREAM_COUNTS"

// ReadCounts reads the file written by a test binary. If the file does not exist, no plugin was called.
func ReadCounts(path string) (c Counts, err error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return c, nil
	}
	if err == nil {
		_, err = fmt.Sscan(string(text), &c.Asked, &c.Cycles, &c.Scored)
	}
	if err != nil {
		return c, fmt.Errorf("reading counts: %w", err)
	}
	return c, nil
}

// counter contains the counts of this process. Every change is written immediately, because the process is not
// notified when the tests end.
var counter struct {
	mu   sync.Mutex
	open sync.Once
	file *os.File
	Counts
}

func count(f func(*Counts)) {
	counter.mu.Lock()
	defer counter.mu.Unlock()
	counter.open.Do(func() {
		var err error
		if counter.file, err = os.Create(os.Getenv(CountsVariable)); err != nil {
			panic(fmt.Sprintf("creating the file in %s: %v", CountsVariable, err))
		}
	})
	f(&counter.Counts)
	line := fmt.Sprintln(counter.Asked, counter.Cycles, counter.Scored)
	if _, err := counter.file.WriteAt([]byte(line), 0); err != nil {
		panic(fmt.Sprintf("writing counts: %v", err))
	}
}

type countedHold struct{ *place.Hold }

func (h countedHold) PreEnqueue(ctx context.Context, pod *v1.Pod) *fwk.Status {
	count(func(c *Counts) { c.Asked++ })
	return h.Hold.PreEnqueue(ctx, pod)
}

type countedEnergy struct{ *place.Energy }

func (e countedEnergy) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	count(func(c *Counts) { c.Cycles++ })
	return e.Energy.PreFilter(ctx, state, pod, nodes)
}

func (e countedEnergy) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) *fwk.Status {
	status := e.Energy.PreScore(ctx, state, pod, nodes)
	if status.IsSuccess() {
		count(func(c *Counts) { c.Scored++ })
	}
	return status
}
