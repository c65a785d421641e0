package estimate

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Options configures an Estimator.
type Options struct {
	// Nodes and Pods return objects from the cache, which must not be modified. Pods returns the pods on a node.
	Nodes func(context.Context) ([]v1.Node, error)
	Pods  func(ctx context.Context, node string) ([]v1.Pod, error)
	View  func() *kube.View
	// Usage returns the usage of all nodes and of the pods selected by wanted, from metrics-server. If Usage or its
	// result is nil, the usage is unknown.
	Usage func(ctx context.Context, wanted func(namespace, pod string) bool) (Usage, error)
	// Readings returns the counters of a node's meters with timestamps of Uptime, and the name of the source. If
	// nil, there are no meters.
	Readings func(node string) (readings []energy.Reading, source string, ok bool)
	// HasAgent returns the time of the last batch from a node's agent, or zero if there was none in this process.
	HasAgent func(node string) time.Time
	// Book records an estimated batch. It is retried until it succeeds or returns a permanent error.
	Book func(context.Context, *batch.Batch) error
	// Permanent reports whether an error of Book is permanent. In this case the batch is dropped and counted. If
	// nil, all errors are temporary.
	Permanent func(error) bool

	Clock      func() time.Time
	Uptime     func() time.Duration // monotonic clock, also used by Readings
	Log        *slog.Logger
	Registerer prometheus.Registerer // for kubenergy_agentless_*; nil disables metrics
}

const (
	interval  = time.Minute     // interval of estimates
	agentGone = 5 * time.Minute // a silent agent is considered missing after this time

	// A new process does not know the agents yet, so no estimate is recorded before they had time to connect. No
	// energy is lost, because the first batch includes this time.
	startGrace = 2 * time.Minute
	// A node is observed if its agent is late by this time, in case the agent is missing.
	agentLate = 90 * time.Second

	controllerBoot = "central"
)

// Estimator estimates the energy of all nodes without an agent.
type Estimator struct {
	o      Options
	epoch  string
	begun  time.Duration
	books  map[string]*books
	opened int // number of books created; part of their epochs
	queue  *queue
	deaf   bool // metrics-server failed and an error was logged
}

// New returns an Estimator. It is inactive until Run is called.
func New(o Options) *Estimator {
	return &Estimator{
		o: o, epoch: rand.Text(), begun: o.Uptime(), books: map[string]*books{},
		queue: &queue{
			book: o.Book, permanent: o.Permanent, log: o.Log, metrics: newMetrics(o.Registerer),
			nodes: map[string]*backlog{},
		},
	}
}

// Run estimates every minute until ctx is done. The energy since the last tick is then not recorded.
func (e *Estimator) Run(ctx context.Context) error {
	e.begun = e.o.Uptime()
	wait.NonSlidingUntilWithContext(ctx, func(ctx context.Context) {
		daemon.Round(ctx, func() { e.tick(ctx) })
	}, interval)
	return nil
}

// tick runs one estimate and records queued batches until the next tick.
func (e *Estimator) tick(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	if err := e.estimate(ctx); err != nil && ctx.Err() == nil {
		e.o.Log.Warn("Failed to estimate nodes without an agent", "error", err)
	}
	e.queue.drain(ctx)
}

// estimate observes each node without an agent and queues the resulting batches.
func (e *Estimator) estimate(ctx context.Context) error {
	nodes, err := e.o.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	scenes := e.scenes(ctx, nodes)
	usage := e.usage(ctx, scenes)
	var counts [sources]int
	for _, s := range scenes {
		if s.usage = usage; s.ready {
			root := s.kind()
			if root == byModel && s.profile.Name == policy.UnknownHardware {
				root = byDefault
			}
			counts[root]++
		}
		if !panics.Survive(e.o.Log, "estimate", s.node, func() { s.books.observe(s, e.queue) }) {
			delete(e.books, s.node) // the state may be inconsistent, so start again with another epoch
		}
	}
	e.queue.metrics.sources(counts)
	e.queue.metrics.samples.Set(float64(len(usage)))
	return nil
}

// scenes returns the scenes of all nodes without an agent. The books of other nodes are closed; their queued
// batches are still recorded.
func (e *Estimator) scenes(ctx context.Context, nodes []v1.Node) (all []*scene) {
	now, up, view := e.o.Clock(), e.o.Uptime(), e.o.View()
	there := make(map[string]bool, len(nodes))
	var failed []error
	for i := range nodes {
		n := &nodes[i]
		there[n.Name] = true
		last := e.o.HasAgent(n.Name)
		silent := now.Sub(last)
		if !last.IsZero() && silent < agentLate {
			delete(e.books, n.Name)
			continue
		}
		b := e.books[n.Name]
		if b == nil {
			e.opened++
			b = &books{next: 1, pods: map[types.UID]*account{}, stream: batch.Stream{
				Node: n.Name, Boot: controllerBoot, Epoch: fmt.Sprintf("%s-%d", e.epoch, e.opened),
			}}
			if !last.IsZero() && silent < agentGone { // otherwise estimates may have been recorded before
				b.from = up - silent
			}
			e.books[n.Name] = b
		}
		pods, err := e.o.Pods(ctx, n.Name)
		s := &scene{
			books: b, ready: up-e.begun >= startGrace && (last.IsZero() || silent >= agentGone),
			node: n.Name, now: now, at: up, cores: float64(n.Status.Capacity.Cpu().MilliValue()) / milli,
			bytes: n.Status.Capacity.Memory().AsApproximateFloat64(), gpus: kube.Allocatable(n).Devices(),
		}
		s.podsKnown = panics.Survive(e.o.Log, "estimate", n.Name, func() { s.workers = workersOf(pods, view) }) &&
			err == nil
		if e.o.Readings != nil {
			s.wall, s.wallSource, s.wallKnown = e.o.Readings(n.Name)
		}
		if s.power = n.Labels[v1alpha1.LabelPowerState]; awake(n) || s.power != "" {
			profile, _ := view.Hardware(n)
			s.model(profile)
		}
		if s.power == v1alpha1.PowerAsleep || s.power == v1alpha1.PowerBooting {
			s.workers, s.podsKnown = nil, true // its pods are not running
		}
		all = append(all, s)
		if err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 0 {
		e.o.Log.Warn("Failed to list the pods of nodes", "nodes", len(failed), "error", failed[0])
	}
	maps.DeleteFunc(e.books, func(name string, _ *books) bool { return !there[name] })
	return all
}

// usage queries metrics-server once for the pods of all scenes.
func (e *Estimator) usage(ctx context.Context, scenes []*scene) Usage {
	if e.o.Usage == nil || len(scenes) == 0 {
		return nil
	}
	wanted := map[podName]bool{}
	for _, s := range scenes {
		for i := range s.workers {
			wanted[s.workers[i].pod] = true
		}
	}
	u, err := e.o.Usage(ctx, func(namespace, name string) bool { return wanted[podName{namespace, name}] })
	switch {
	case err != nil && !e.deaf:
		e.deaf = true
		e.o.Log.Warn("Failed to query metrics-server, using CPU requests instead", "error", err)
	case u != nil && e.deaf:
		e.deaf = false
		e.o.Log.Info("Recovered the connection to metrics-server")
	}
	if err != nil {
		return nil
	}
	return u
}

// awake reports whether a node is Ready or has no Ready condition.
func awake(n *v1.Node) bool {
	return !slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
		return c.Type == v1.NodeReady && c.Status != v1.ConditionTrue
	})
}
