package place

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// Deps is what the plugins of one process share.
type Deps struct {
	View  func() *kube.View // called once per scheduling cycle, must not wait
	Gate  Gate              // nil: nothing is held
	Clock func() time.Time  // nil: time.Now
	Log   *slog.Logger      // nil: silence

	Live     *live.Feed       // nil: only what is written on nodes is known
	Recorder *record.Recorder // nil: nothing is recorded

	// Go runs what goes on beside the scheduler until the context ends; nil: in a goroutine without an owner.
	Go func(ctx context.Context, name string, run func(context.Context) error)
}

// Factory builds a plugin for one profile of kube-scheduler. It runs once per profile, in standby replicas too.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factories of all plugins by name, ready for kube-scheduler's out-of-tree registry.
func New(d Deps) map[string]Factory {
	if d.View == nil {
		d.View = func() *kube.View { return &kube.View{} }
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	if d.Go == nil {
		d.Go = func(ctx context.Context, _ string, run func(context.Context) error) { go func() { _ = run(ctx) }() }
	}
	metrics.Register()
	common := &shared{}
	return map[string]Factory{
		EnergyName: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return d.newEnergy(ctx, args, handle, common)
		},
		HoldName: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			// One loop holds for all profiles of the process, so its options are the process's own.
			if given, ok := args.(*runtime.Unknown); ok && given != nil && len(given.Raw) > 0 {
				return nil, fmt.Errorf("building plugin %s: it takes no args, but the flags --kubenergy-*", HoldName)
			}
			return d.newHold(ctx, common, handle), nil
		},
	}
}

// NewLate is [New] for a process that learns only from kube-scheduler how to reach the API server: build is called
// once, with a configuration of its own, by the first factory that runs. The context ends with the scheduler.
func NewLate(build func(ctx context.Context, config *rest.Config) (Deps, error)) map[string]Factory {
	var (
		once  sync.Once
		built map[string]Factory
		err   error
	)
	late := func(name string) Factory {
		return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			once.Do(func() {
				var deps Deps
				if deps, err = build(ctx, rest.CopyConfig(handle.KubeConfig())); err == nil {
					built = New(deps)
				}
			})
			if err != nil {
				return nil, err
			}
			return built[name](ctx, args, handle)
		}
	}
	return map[string]Factory{EnergyName: late(EnergyName), HoldName: late(HoldName)}
}

// rescue keeps a panic of ours from taking kube-scheduler down: plugins run in its goroutines. It logs the first one
// with its stack; a panic that comes back with every pod must not fill the disk.
type rescue struct {
	log    *slog.Logger
	logged atomic.Bool
}

// from is called deferred. It ends a panic, and then answers as stock would, where there is an answer.
func (r *rescue) from(point string, stock func()) {
	panicked := recover()
	if panicked == nil {
		return
	}
	panics.Count("plugin")
	if !r.logged.Swap(true) {
		r.log.Error("panic in a plugin: going on as stock does; later ones are not logged",
			"point", point, "panic", panicked, "stack", string(debug.Stack()))
	}
	if stock != nil {
		stock()
	}
}
