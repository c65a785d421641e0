package batch

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// gatherer is a world that gathers pods. Its scheduling queue contains the activated pods.
type gatherer struct {
	*world
	t *testing.T

	mu  sync.Mutex
	now activations

	stuck  chan struct{} // if not nil, copying the nodes takes until it is closed
	broken bool          // the nodes cannot be copied
}

// activations contains the scheduling queue and its history.
type activations struct {
	queue   []string
	batches []int     // numbers of pods that were activated together
	at      time.Time // time of the last activation
	plans   []int     // sizes of the plans
}

// seen returns the activations so far.
func (g *gatherer) seen() activations {
	g.mu.Lock()
	defer g.mu.Unlock()
	return activations{slices.Clone(g.now.queue), slices.Clone(g.now.batches), g.now.at, slices.Clone(g.now.plans)}
}

const window = 800 * time.Millisecond

func newGatherer(t *testing.T) *gatherer {
	g := &gatherer{t: t}
	dp, err := strategy.New("ecsched-dp")
	if err != nil {
		t.Fatal(err)
	}
	g.world = newWorld(func(c *Config) {
		c.MinPods, c.Gather = 16, metav1.Duration{Duration: window}
		c.Strategies["ecsched-dp"] = counted{dp, g}
	})
	for i := range 6 {
		g.node(fmt.Sprint("n", i), 8, nil)
	}
	g.GatherWith(func() *Question {
		if g.stuck != nil {
			<-g.stuck
		}
		if g.broken {
			return nil
		}
		return g.question()
	}, func(pods map[string]*v1.Pod) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for _, pod := range pods {
			g.now.queue = append(g.now.queue, pod.Name)
		}
		g.now.batches, g.now.at = append(g.now.batches, len(pods)), time.Now()
	})
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return g
}

// counted records the sizes of plans.
type counted struct {
	Strategy
	g *gatherer
}

func (c counted) PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality) {
	c.g.mu.Lock()
	c.g.now.plans = append(c.g.now.plans, len(s.Queue))
	c.g.mu.Unlock()
	return c.Strategy.PlanWithin(s, stop)
}

// arrive creates a pod like the informer and the queue do.
func (g *gatherer) arrive(name string) types.UID {
	g.t.Helper()
	uid := g.pod(name, "ecsched-dp", 1, nil)
	if !g.Gather(g.pods[uid].pod.Object) {
		g.t.Errorf("%s is not kept out of the queue", name)
	}
	return uid
}

// TestGatheredPodsArePlannedTogether verifies that pods that arrive within the window are in one plan and enter the
// queue together with its steps, although a cycle only requests plans for more pods.
func TestGatheredPodsArePlannedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(t)
		first := g.arrive("a")
		bubble.Advance(window - 1)
		second := g.arrive("b")
		if kept, known := g.Kept(first); !kept || !known || len(g.seen().queue) > 0 {
			t.Fatalf("kept = %v, known = %v, queue = %v in the window", kept, known, g.seen().queue)
		}
		bubble.Advance(1)
		if !slices.Equal(g.seen().batches, []int{2}) || !slices.Equal(g.seen().plans, []int{2}) {
			t.Fatalf("activations of %v pods, plans for %v pods, want 2 and 2", g.seen().batches, g.seen().plans)
		}
		for _, uid := range []types.UID{first, second} {
			if kept, known := g.Kept(uid); kept || !known {
				t.Errorf("%s: kept = %v, known = %v after the plan", uid, kept, known)
			}
			if _, planned, wanted := g.Turn(uid); !planned || wanted {
				t.Errorf("%s: planned = %v, wanted = %v", uid, planned, wanted)
			}
		}
		bubble.Advance(time.Minute)
		if len(g.seen().batches) != 1 {
			t.Errorf("pods were activated again: %v", g.seen().batches)
		}
	})
}

func TestAPodAloneIsNotPlanned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(t)
		g.arrive("a")
		bubble.Advance(window)
		if !slices.Equal(g.seen().queue, []string{"a"}) || len(g.seen().plans) > 0 {
			t.Errorf("queue = %v, plans = %v, want the pod without a plan", g.seen().queue, g.seen().plans)
		}
	})
}

// TestLaterPodsFormAnotherGroup verifies that pods that arrive after the window are planned with the next group, and
// that cycles request no plan while pods are gathered.
func TestLaterPodsFormAnotherGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(t)
		for i := range 20 {
			g.arrive(fmt.Sprint("a", i))
		}
		if _, _, wanted := g.Turn("unknown"); wanted {
			t.Error("a cycle requests a plan while pods are gathered")
		}
		bubble.Advance(window)
		for i := range 3 {
			g.arrive(fmt.Sprint("b", i))
		}
		bubble.Advance(window)
		// The second plan includes the pods of the first one, because none of them has been scheduled.
		if !slices.Equal(g.seen().batches, []int{20, 3}) || !slices.Equal(g.seen().plans, []int{20, 23}) {
			t.Errorf("activations of %v pods, plans for %v pods, want 20 and 3, 20 and 23", g.seen().batches, g.seen().plans)
		}
		if g.kept != 0 {
			t.Errorf("%d groups remain", g.kept)
		}
	})
}

// TestPodsAreKeptForASecond verifies that a planner that is slow or cannot plan does not delay pods any longer.
func TestPodsAreKeptForASecond(t *testing.T) {
	for name, tc := range map[string]struct {
		stuck, broken bool
		within        time.Duration
	}{
		"stuck": {stuck: true, within: MaxKept}, "without nodes": {broken: true, within: window},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGatherer(t)
				if g.broken = tc.broken; tc.stuck {
					g.stuck = make(chan struct{})
				}
				began := time.Now()
				var uids []types.UID
				for i := range 3 {
					uids = append(uids, g.arrive(fmt.Sprint("a", i)))
				}
				bubble.Advance(MaxKept)
				if seen := g.seen(); !slices.Equal(seen.batches, []int{3}) || seen.at.Sub(began) != tc.within {
					t.Errorf("%v pods were activated after %v, want 3 after %v", seen.batches, seen.at.Sub(began), tc.within)
				}
				for _, uid := range uids {
					if kept, _ := g.Kept(uid); kept {
						t.Errorf("%s is kept out of the queue for more than %v", uid, MaxKept)
					}
				}
				if tc.stuck {
					close(g.stuck)
				}
				bubble.Advance(time.Minute)
				if len(g.seen().batches) != 1 {
					t.Errorf("pods were activated again: %v", g.seen().batches)
				}
			})
		})
	}
}

// TestTimersSwap verifies that pods are gathered after a group was released before it was complete, because the
// process was not running for a moment.
func TestTimersSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(t)
		pod := func(name string) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name, UID: types.UID(name)}}
		}
		if !g.Gather(pod("a")) || !g.Gather(pod("b")) {
			t.Fatal("pods are not gathered")
		}
		first := g.open
		g.release(first)
		if !g.Gather(pod("c")) || !g.Gather(pod("d")) {
			t.Error("later pods are not gathered")
		}
		g.complete(first)
		bubble.Advance(MaxKept)
		if want := []int{2, 2}; !slices.Equal(g.seen().batches, want) {
			t.Errorf("activated %v pods, want %v", g.seen().batches, want)
		}
	})
}

// TestNothingIsGatheredAfterAFailure verifies that pods are not delayed while no plans are made.
func TestNothingIsGatheredAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGatherer(t)
		g.pause()
		uid := g.pod("a", "ecsched-dp", 1, nil)
		if g.Gather(g.pods[uid].pod.Object) {
			t.Error("a pod is kept out of the queue after a failure")
		}
		bubble.Advance(limits.Believed.Duration)
		g.arrive("b")
		bubble.Advance(window)
	})
}
