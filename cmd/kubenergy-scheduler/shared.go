package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/hold"
	"github.com/kubenergy/kubenergy/kube/plugin"
	"github.com/kubenergy/kubenergy/sched"
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

// A release at a deadline waits for nothing else, least of all for the scheduler's own requests.
const (
	holdQPS   = 200
	holdBurst = 400
)

// start is called once; its context ends with the scheduler.
func (s *shared) start(ctx context.Context, config *rest.Config) (plugin.Deps, error) {
	if err := s.options.validate(); err != nil {
		return plugin.Deps{}, err
	}
	strategy, err := sched.New(s.options.strategy)
	if err != nil {
		return plugin.Deps{}, err
	}
	config.QPS, config.Burst, config.RateLimiter = holdQPS, holdBurst, nil
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "kubenergy-hold"))
	if err != nil {
		return plugin.Deps{}, fmt.Errorf("building the hold loop's client: %w", err)
	}
	files := &kube.Files{SignalsFile: s.options.signals, ProfilesFile: s.options.profiles, Log: s.log}
	files.Refresh()
	loop := hold.New(hold.Config{
		Client: client, View: files.View, Strategy: strategy, Policy: s.options.policy, Defaults: s.options.defaults,
		Namespace: kube.Namespace, MaxPods: s.options.maxPods,
	})
	s.run(ctx, "files", files.Run)
	s.run(ctx, "hold loop", loop.Run)
	return plugin.Deps{View: files.View, Gate: loop, Clock: loop.Now, Log: s.log}, nil
}

func (s *shared) run(ctx context.Context, name string, run func(context.Context) error) {
	s.running.Go(func() {
		if err := run(ctx); err != nil {
			// The scheduler goes on. Held pods pass once their deadline has come and the queue asks again, by itself
			// every five minutes; held Jobs wait for another replica.
			s.log.Error("part stopped", "part", name, "error", err)
		}
	})
}

// wait returns when everything has stopped that was started; call it when the scheduler has.
func (s *shared) wait() { s.running.Wait() }
