package scores

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
)

// secondNames lists the scheduler names in the configuration of the second scheduler.
var secondNames = []string{"kubenergy", "compute-gardener-scheduler", "my-energy-scheduler"}

// A silence is a reason why KubEnergy has no opinion on a pod.
type silence struct {
	name string
	view func(testing.TB) *kube.View
	mark func(*v1.Pod) *v1.Pod // by default, the pod requests the strategy carbon

	panicAt   int  // number of the call of the view in a cycle that panics; 0 for none
	open      bool // open the circuit breaker
	inCluster bool // documented guarantee, tested for all pods and on a real control plane
}

// marked returns the pod with the annotations of the silence.
func (s *silence) marked(pod *v1.Pod) *v1.Pod {
	if s.mark != nil {
		return s.mark(pod)
	}
	return marked(pod, "carbon")
}

func unmarked(pod *v1.Pod) *v1.Pod {
	// The scheduler name compute-gardener-scheduler already opts a pod in, and the annotation skip overrides it.
	if pod.Spec.SchedulerName == "compute-gardener-scheduler" {
		pod.Annotations = map[string]string{v1alpha1.AnnotationSkip: "true"}
	}
	return pod
}

func withMode(mode v1alpha1.Mode) func(testing.TB) *kube.View {
	return func(t testing.TB) *kube.View {
		return changed(t, func(c *kube.Contents) { c.Defaults.Mode = mode })
	}
}

// stale sets the age of the signals of the first n sites to three hours, which exceeds maxSignalAge.
func stale(n int) func(testing.TB) *kube.View {
	return func(t testing.TB) *kube.View {
		return changed(t, func(c *kube.Contents) {
			for _, s := range c.Sites[:n] {
				s.Carbon.AsOf = noon.Add(-2 * time.Hour)
			}
		})
	}
}

// silences contains all reasons, including modes without effect and internal errors.
var silences = []silence{
	{name: "shadow", view: withMode(v1alpha1.ModeShadow), inCluster: true},
	{name: "advise", view: withMode(v1alpha1.ModeAdvise)},
	{name: "off", view: withMode(v1alpha1.ModeOff)},
	{name: "unmarked", view: knowledge, mark: unmarked, inCluster: true},
	{name: "unknown nodes", inCluster: true, view: func(t testing.TB) *kube.View {
		return changed(t, func(c *kube.Contents) { c.Profiles = c.Profiles[:1] })
	}},
	{name: "no zone", inCluster: true, view: func(t testing.TB) *kube.View {
		return changed(t, func(c *kube.Contents) { c.Sites = nil })
	}},
	{name: "stale zone", view: stale(1), inCluster: true},
	// No process writes signals or responds to requests for live power.
	{name: "controller gone", view: stale(2), inCluster: true},
	{name: "no signals", view: func(t testing.TB) *kube.View {
		return changed(t, func(c *kube.Contents) {
			for _, s := range c.Sites {
				s.Carbon = grid.Signal{}
			}
		})
	}},
	{name: "nothing known", view: func(testing.TB) *kube.View { return &kube.View{} }},
	{name: "policies not received yet", view: func(testing.TB) *kube.View { return kube.Unsettled() }},
	{name: "nonsense", view: knowledge, mark: func(p *v1.Pod) *v1.Pod { return marked(p, "99999h") }},
	{name: "panic in PreFilter", view: knowledge, panicAt: 1},
	{name: "panic in PreScore", view: knowledge, panicAt: 2},
	{name: "panic in NormalizeScore", view: knowledge, panicAt: 3},
	{name: "circuit open", view: knowledge, open: true},
}

// knower provides the view of a scheduler, which tests can change while it runs.
type knower struct {
	view  *kube.View
	left  int // remaining calls until a panic; 0 for none
	calls int
}

func (k *knower) View() *kube.View {
	if k.calls++; k.calls == k.left {
		panic("planted")
	}
	return k.view
}

// prepare configures the next cycle for the silence.
func (s *silence) prepare(k *knower, pod *v1.Pod) *v1.Pod {
	panics.Reset()
	for range 3 {
		if s.open {
			panics.Count("test")
		}
	}
	k.calls, k.left = 0, s.panicAt
	return s.marked(pod)
}

// deadFeed returns a feed of live power from a controller that does not respond.
func deadFeed(t testing.TB) *live.Feed {
	t.Helper()
	feed, err := live.New(apiclient.Options{URL: "http://127.0.0.1:1"}, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if feed.Ask(context.Background()) {
		t.Fatal("request to the unavailable controller succeeded")
	}
	return feed
}

// TestStockScores verifies guarantee P2. For a pod on which KubEnergy has no opinion, every node has the same total
// score as in kube-scheduler, so the pod is bound to a node with the maximum score of kube-scheduler.
func TestStockScores(t *testing.T) {
	const nodeCount, podCount = 50, 500
	t.Cleanup(panics.Reset)
	w := newWorld(1)
	nodes := w.nodes(nodeCount)
	running := w.running(300, nodes)
	stock := newHarness(t, stockConfig, "default-scheduler", knowing(&kube.View{}), nodes, running)
	pods, want := make([]*v1.Pod, podCount), make([]total, podCount)
	ties := 0
	for i := range pods {
		pods[i] = w.pod(fmt.Sprintf("pod-%03d", i))
		var err error
		if want[i], _, err = stock.play(t.Context(), pods[i]); err != nil {
			t.Fatal(err)
		}
		if _, unique := want[i].binding(); !unique {
			ties++
		}
	}
	t.Logf("%d pods, including %d with several nodes that have the maximum score of kube-scheduler", podCount, ties)
	for _, profile := range append([]string{"default-scheduler"}, secondNames...) {
		text := second
		if profile == "default-scheduler" {
			text = inPlace
		}
		t.Run(profile, func(t *testing.T) {
			k := &knower{}
			deps := knowing(nil)
			deps.View, deps.Live = k.View, deadFeed(t)
			ours := newHarness(t, text, profile, deps, nodes, running)
			count := func(t *testing.T, s *silence, pods []*v1.Pod) (differing int) {
				k.view = s.view(t)
				for i, pod := range pods {
					pod = pod.DeepCopy()
					pod.Spec.SchedulerName = profile
					got, _, err := ours.play(t.Context(), s.prepare(k, pod))
					if err != nil {
						t.Fatal(err)
					}
					if k.calls < s.panicAt {
						t.Fatalf("call %d of the view should panic, but there were only %d calls", s.panicAt, k.calls)
					}
					node, _ := got.binding()
					if most, _ := want[i].binding(); want[i][node] != want[i][most] || !cmp.Equal(want[i], got) {
						if differing++; differing == 1 {
							t.Logf("pod %s: got node %s, want %s (-want,+got):\n%s",
								pod.Name, node, most, cmp.Diff(want[i], got))
						}
					}
				}
				return differing
			}
			for _, s := range silences {
				t.Run(s.name, func(t *testing.T) {
					some := pods
					if !s.inCluster {
						some = pods[:100]
					}
					if n := count(t, &s, some); n > 0 {
						t.Errorf("scores of %d of %d pods differ from kube-scheduler", n, len(some))
					}
				})
			}
			// Verify that the scores can differ.
			if n := count(t, &silence{view: knowledge}, pods[:100]); n != 100 {
				t.Errorf("scores of only %d of 100 pods with an opinion differ from kube-scheduler, want all", n)
			}
		})
	}
}
