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

// shared is what exists once in the process, whatever the number of profiles: what is known, and the hold loop.
//
// It starts with the first of our plugins that kube-scheduler builds. Only then are its flags parsed and its client
// configuration known; and plugins are built before the election, so deadlines are kept by standbys too.
type shared struct {
	options options
	log     *slog.Logger

	running sync.WaitGroup
}

// start is called once; its context ends with the scheduler.
func (s *shared) start(ctx context.Context, config *rest.Config) (place.Deps, error) {
	knowledge, run, errKnowledge := s.knowledge(ctx, config)
	feed, errFeed := s.options.controller.feed(s.log)
	recorder, errRecorder := s.options.controller.recorder(s.log)
	client, errClient := hold.NewClient(config)
	if err := errors.Join(errKnowledge, errFeed, errRecorder, errClient); err != nil {
		return place.Deps{}, err
	}
	holds := hold.Config{
		Client: client, View: knowledge, Namespace: v1alpha1.SystemNamespace, MaxPods: s.options.maxPods,
		ReleaseRate: s.options.releaseRate, MaxRamp: energy.Watts(s.options.maxRamp),
		Stuck: func() { klog.FlushAndExit(klog.ExitFlushTimeout, 1) }, // the kubelet starts it anew
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

// knowledge returns what tells the present view, and what keeps it up to date: files where they are named, else the
// objects that the controller fills.
func (s *shared) knowledge(ctx context.Context,
	config *rest.Config,
) (func() *kube.View, func(context.Context) error, error) {
	defaults, found := policy.AliasEnvironment(policy.SchedulerProgram, os.Environ(), os.ReadFile, s.options.defaults)
	for _, f := range found {
		s.log.WarnContext(ctx, "reading the environment", "warning", f.String())
	}
	if s.options.signals != "" || s.options.profiles != "" {
		defaults.Mode = v1alpha1.ModeEnforce // a file cannot tell it
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

// awaitSettled gives policies a moment to arrive before the first pods do: without them nothing is held, and released
// is final. Scheduling does not wait for longer.
func awaitSettled(ctx context.Context, view func() *kube.View) {
	const moment = 6 * time.Second // where our kinds are not installed, that is believed after five
	_ = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, moment, true, func(context.Context) (bool, error) {
		return view().Settled(), nil
	})
}

func (s *shared) run(ctx context.Context, name string, run func(context.Context) error) {
	s.running.Go(func() {
		if err := run(ctx); err != nil {
			// The scheduler goes on. Held pods pass once their deadline has come and the queue asks again, by itself
			// every 30 seconds; held Jobs wait for another replica.
			s.log.Error("part stopped", "part", name, "error", err)
		}
	})
}

// wait returns when everything has stopped that was started; call it when the scheduler has, and before
// kube-scheduler ends the process itself: see lastUpdate.
func (s *shared) wait() { s.running.Wait() }
