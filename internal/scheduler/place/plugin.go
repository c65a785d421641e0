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
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// Deps contains the dependencies that the plugins of a process share.
type Deps struct {
	View  func() *kube.View // called once per scheduling cycle, must not block
	Gate  Gate              // nil if no pods are held
	Clock func() time.Time  // defaults to time.Now
	Log   *slog.Logger      // nil disables logging

	Live     *live.Feed       // nil if only the power in node annotations is available
	Recorder *record.Recorder // nil disables recording

	MaxShift time.Duration // bound of the order "aging"; defaults to that of package sched

	// Go runs a background task until the context is done. It defaults to starting a goroutine without waiting for
	// it.
	Go func(ctx context.Context, name string, run func(context.Context) error)
}

// Factory creates a plugin for a profile of kube-scheduler. It is called once per profile, also in standby
// replicas.
type Factory = func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error)

// New returns the factories of all plugins by name, as expected by the out-of-tree registry of kube-scheduler.
func New(d Deps) map[string]Factory {
	if d.View == nil {
		d.View = func() *kube.View { return &kube.View{} }
	}
	if d.Clock == nil {
		d.Clock = time.Now
	}
	d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	d.MaxShift = cmp.Or(d.MaxShift, sched.MaxShift)
	if d.Go == nil {
		d.Go = func(ctx context.Context, _ string, run func(context.Context) error) { go func() { _ = run(ctx) }() }
	}
	metrics.Register()
	common := &shared{energies: map[string]*Energy{}, turns: turns{view: d.View, bound: d.MaxShift}}
	return map[string]Factory{
		EnergyName: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			return d.newEnergy(ctx, args, handle, common)
		},
		HoldName: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			// All profiles of the process share a hold loop, which is configured by flags.
			if err := noArgs(HoldName, args); err != nil {
				return nil, err
			}
			return d.newHold(ctx, common, handle), nil
		},
		SortName: func(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
			if err := noArgs(SortName, args); err != nil {
				return nil, err
			}
			return &Sort{turns: &common.turns}, nil
		},
	}
}

// noArgs returns an error if a plugin without options has arguments.
func noArgs(plugin string, args runtime.Object) error {
	if given, ok := args.(*runtime.Unknown); ok && given != nil && len(given.Raw) > 0 {
		return fmt.Errorf("building plugin %s: want no args; use the flags --kubenergy-*", plugin)
	}
	return nil
}

// NewLate is like [New], but the dependencies are built when the first factory is called, because the connection to
// the API server is configured by kube-scheduler. build is called once with a copy of that configuration. Its
// context is canceled when the scheduler stops.
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
	return map[string]Factory{EnergyName: late(EnergyName), HoldName: late(HoldName), SortName: late(SortName)}
}

// rescue recovers from panics in plugins, which would otherwise terminate kube-scheduler. Only the first panic is
// logged with its stack, so that a panic in every cycle does not fill the disk.
type rescue struct {
	log    *slog.Logger
	logged atomic.Bool
}

// from recovers from a panic. It must be called directly by a defer statement. If stock is not nil, it is called to
// produce the result of an unmodified kube-scheduler.
func (r *rescue) from(point string, stock func()) {
	panicked := recover()
	if panicked == nil {
		return
	}
	panics.Count("plugin")
	if !r.logged.Swap(true) {
		r.log.Error("Recovered from a panic in a plugin, further panics are not logged",
			"point", point, "panic", panicked, "stack", string(debug.Stack()))
	}
	if stock != nil {
		stock()
	}
}
