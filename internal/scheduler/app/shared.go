package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/otlp"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// shared contains the components that exist once per process, regardless of the number of profiles: the source of
// views and the hold loop.
//
// The components are started by the first plugin that kube-scheduler builds, because the flags have been parsed and
// the client configuration is known by then. Plugins are built before the leader election, so standbys also enforce
// deadlines.
type shared struct {
	options options
	log     *slog.Logger

	running sync.WaitGroup
}

// start starts the components. It is called once, with a context that is canceled when the scheduler stops.
func (s *shared) start(ctx context.Context, config *rest.Config) (place.Deps, error) {
	knowledge, run, errKnowledge := s.knowledge(ctx, config)
	feed, errFeed := s.options.controller.feed(s.log)
	recorder, errRecorder := s.options.controller.recorder(s.log)
	client, errClient := hold.NewClient(config)
	if err := errors.Join(errKnowledge, errFeed, errRecorder, errClient); err != nil {
		return place.Deps{}, err
	}
	holds := hold.Config{
		Client: client, View: knowledge, Namespace: v1alpha1.SystemNamespace, MaxPods: s.options.maxPods, Pauses: true,
		ReleaseRate: s.options.releaseRate, MaxRamp: energy.Watts(s.options.maxRamp),
		Stuck: func() { klog.FlushAndExit(klog.ExitFlushTimeout, 1) }, // the kubelet restarts the container
	}
	if recorder.Enabled() {
		holds.Record = recorder.Record
	}
	if name := s.options.recordPlans; name != "" {
		file, err := kube.AppendTo(name)
		if err != nil {
			return place.Deps{}, fmt.Errorf("--kubenergy-record-plans: %w", err)
		}
		holds.RecordPlan = policy.RecordPlans(file, s.log)
	}
	loop := hold.New(holds)
	s.run(ctx, "knowledge", run)
	s.run(ctx, "hold loop", loop.Run)
	s.run(ctx, "recorder", recorder.Run)
	s.run(ctx, "live watts", feed.Run)
	s.run(ctx, "push of metrics", func(ctx context.Context) error {
		return otlp.Run(ctx, "kubenergy-scheduler", legacyregistry.DefaultGatherer, s.log)
	})
	awaitSettled(ctx, knowledge)
	return place.Deps{
		View: knowledge, Gate: loop, Clock: loop.Now, Log: s.log, Live: feed, Recorder: recorder, Go: s.run,
	}, nil
}

// knowledge returns the function that provides the current view, and the one that keeps it up to date. Views are
// built from files if these are configured, and otherwise from the objects of the API server that the controller
// maintains.
func (s *shared) knowledge(ctx context.Context,
	config *rest.Config,
) (func() *kube.View, func(context.Context) error, error) {
	defaults, found := policy.AliasEnvironment(policy.SchedulerProgram, os.Environ(), os.ReadFile, s.options.defaults)
	for _, f := range found {
		s.log.WarnContext(ctx, "Found a problem in the environment", "warning", f.String())
	}
	if s.options.signals != "" || s.options.profiles != "" {
		defaults.Mode = v1alpha1.ModeEnforce // files do not contain the mode
		files := &kube.Files{
			SignalsFile: s.options.signals, ProfilesFile: s.options.profiles, Defaults: defaults, Log: s.log,
		}
		files.Refresh()
		return files.View, files.Run, nil
	}
	objects, err := kube.NewObjects(rest.AddUserAgent(rest.CopyConfig(config), "kubenergy-knowledge"), s.log)
	if err != nil {
		return nil, nil, err
	}
	objects.Defaults = defaults
	return objects.View, objects.Run, nil
}

// awaitSettled waits briefly for the policies to be loaded before the first pods arrive, because without policies
// no pod is held, and a release is final. Scheduling is not delayed any further.
func awaitSettled(ctx context.Context, view func() *kube.View) {
	const moment = 6 * time.Second // missing custom resource definitions are detected after five seconds
	_ = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, moment, true, func(context.Context) (bool, error) {
		return view().Settled(), nil
	})
}

func (s *shared) run(ctx context.Context, name string, run func(context.Context) error) {
	s.running.Go(func() {
		if err := run(ctx); err != nil {
			// The scheduler continues without the component. Held pods are admitted after their deadline when the
			// queue checks them, which it does every 30 seconds. Held Jobs are released by another replica.
			s.log.Error("Component stopped", "part", name, "error", err)
		}
	})
}

// wait waits for all components to stop. It must be called after the scheduler has stopped and before
// kube-scheduler exits, see lastUpdate.
func (s *shared) wait() { s.running.Wait() }
