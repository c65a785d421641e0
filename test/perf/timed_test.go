package perf

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// stopwatch accumulates the time spent at one extension point. It is safe for concurrent use.
type stopwatch struct{ nanos, calls atomic.Int64 }

func (w *stopwatch) since(start time.Time) {
	w.nanos.Add(int64(time.Since(start)))
	w.calls.Add(1)
}

func (w *stopwatch) spent() spent {
	return spent{time.Duration(w.nanos.Load()).Seconds(), uint64(w.calls.Load())}
}

// timed is the energy plugin with every call timed, as kube-scheduler does for sampled cycles. In other cycles
// kube-scheduler does not read the clock. To determine the overhead of the stopwatch, an empty call is timed
// alongside each call of Score.
type timed struct {
	*place.Energy
	nothing                                                                stopwatch
	sign, preFilter, filter, preScore, score, normalize, reserve, postBind stopwatch
}

var (
	_ fwk.PreFilterPlugin = &timed{}
	_ fwk.FilterPlugin    = &timed{}
	_ fwk.PreScorePlugin  = &timed{}
	_ fwk.ScorePlugin     = &timed{}
	_ fwk.ReservePlugin   = &timed{}
	_ fwk.PostBindPlugin  = &timed{}
	_ fwk.SignPlugin      = &timed{}
)

func (p *timed) SignPod(ctx context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	defer p.sign.since(time.Now())
	return p.Energy.SignPod(ctx, pod)
}

func (p *timed) PreFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	defer p.preFilter.since(time.Now())
	return p.Energy.PreFilter(ctx, state, pod, nodes)
}

func (p *timed) Filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) *fwk.Status {
	defer p.filter.since(time.Now())
	return p.Energy.Filter(ctx, state, pod, node)
}

func (p *timed) PreScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	defer p.preScore.since(time.Now())
	return p.Energy.PreScore(ctx, state, pod, nodes)
}

func (p *timed) Score(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node fwk.NodeInfo) (int64, *fwk.Status) {
	p.timeNothing()
	defer p.score.since(time.Now())
	return p.Energy.Score(ctx, state, pod, node)
}

func (p *timed) timeNothing() { defer p.nothing.since(time.Now()) }

func (p *timed) ScoreExtensions() fwk.ScoreExtensions { return p }

func (p *timed) NormalizeScore(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	scores fwk.NodeScoreList,
) *fwk.Status {
	defer p.normalize.since(time.Now())
	return p.Energy.NormalizeScore(ctx, state, pod, scores)
}

func (p *timed) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) *fwk.Status {
	defer p.reserve.since(time.Now())
	return p.Energy.Reserve(ctx, state, pod, node)
}

func (p *timed) PostBind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string) {
	defer p.postBind.since(time.Now())
	p.Energy.PostBind(ctx, state, pod, node)
}

// cost returns the cost so far.
func (p *timed) cost() pluginCost {
	c := pluginCost{}
	for point, w := range map[string]*stopwatch{
		metrics.Sign: &p.sign, metrics.PreFilter: &p.preFilter, metrics.Filter: &p.filter,
		metrics.PreScore: &p.preScore, metrics.Score: &p.score,
		metrics.ScoreExtensionNormalize: &p.normalize, metrics.Reserve: &p.reserve, metrics.PostBind: &p.postBind,
	} {
		if s := w.spent(); s.Calls > 0 {
			c[point] = s
		}
	}
	return c
}

// timedOurs returns the factories of the KubEnergy plugins. The energy plugin of the given profile is timed.
func timedOurs(t testing.TB, profile string) (frameworkruntime.Registry, *timed) {
	t.Helper()
	registry, watched := ours(t), &timed{}
	build := registry[place.EnergyName]
	registry[place.EnergyName] = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin,
		error,
	) {
		built, err := build(ctx, args, handle)
		if named, ok := handle.(interface{ ProfileName() string }); err == nil && ok && named.ProfileName() == profile {
			watched.Energy = built.(*place.Energy)
			return watched, nil
		}
		return built, err
	}
	return registry, watched
}
