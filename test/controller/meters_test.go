package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// meters are the agents of simulated nodes. The power of a node follows from its power profile and from the load of
// its pods. Each pod uses as much CPU as it requests. All other steps are the same as on real nodes. Package energy
// attributes the energy, and the queue of the agent numbers the batches, marks them as estimated and pushes them.
type meters struct {
	client    kubernetes.Interface
	url       string                   // endpoint for batches
	caFile    string                   // certificate authority of the endpoint
	tokenFile func(node string) string // returns the file with the bearer token of a node
	view      func() *kube.View        // contains the power profiles
	push      time.Duration            // interval between batches

	boot  string
	began time.Time
	nodes listers.NodeLister
	pods  listers.PodLister

	pushing sync.WaitGroup

	mu      sync.Mutex
	agents  map[string]*simulatedAgent
	metered map[string]energy.Microjoules
}

// simulatedAgent is the agent of one node.
type simulatedAgent struct {
	attributor *energy.Attributor
	counter    *energy.Integrator
	queue      *delivery.Queue
	cpu        map[string]time.Duration // total CPU time by consumer
	busy       time.Duration
	last       time.Duration
	out        energy.Attribution
}

// simulatedSource is the energy source that batches contain.
const simulatedSource = "model (simulated node)"

// run meters all nodes until ctx is done and then delivers the remaining batches.
func (m *meters) run(ctx context.Context) error {
	m.boot, m.began = rand.Text(), time.Now()
	m.mu.Lock()
	m.agents, m.metered = map[string]*simulatedAgent{}, map[string]energy.Microjoules{}
	m.mu.Unlock()
	factory := informers.NewSharedInformerFactory(m.client, 0)
	m.nodes, m.pods = factory.Core().V1().Nodes().Lister(), factory.Core().V1().Pods().Lister()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil // ctx is done
		}
	}
	push, stopPush := context.WithCancel(context.WithoutCancel(ctx))
	defer m.pushing.Wait() // every agent delivers its remaining batches
	defer stopPush()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if err := m.tick(push); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measured returns the energy that every node has used so far, according to its agent.
func (m *meters) measured() map[string]energy.Microjoules {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]energy.Microjoules, len(m.metered))
	maps.Copy(all, m.metered)
	return all
}

func (m *meters) tick(ctx context.Context) error {
	nodes, err := m.nodes.List(labels.Everything())
	if err != nil {
		return err
	}
	pods, err := m.pods.List(labels.Everything())
	if err != nil {
		return err
	}
	byNode := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
		}
	}
	view := m.view()
	now := time.Since(m.began) + time.Second // time since boot; 0 means unknown
	for _, n := range nodes {
		a, err := m.agent(ctx, n.Name)
		if err != nil {
			return fmt.Errorf("metering %s: %w", n.Name, err)
		}
		if err := m.meter(a, view, n, byNode[n.Name], now); err != nil {
			return fmt.Errorf("metering %s: %w", n.Name, err)
		}
	}
	return nil
}

// agent returns the agent of a node and starts it on the first call.
func (m *meters) agent(ctx context.Context, node string) (*simulatedAgent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a := m.agents[node]; a != nil {
		return a, nil
	}
	log := slog.New(slog.DiscardHandler)
	queue, err := delivery.OpenQueue(delivery.QueueOptions{Node: node, Boot: m.boot}, log)
	if err != nil {
		return nil, err
	}
	pusher, err := delivery.NewPusher(delivery.PushOptions{
		Options:  apiclient.Options{URL: m.url, CAFile: m.caFile, TokenFile: m.tokenFile(node)},
		Interval: m.push,
	}, queue, log)
	if err != nil {
		return nil, err
	}
	const timeout = 10 * time.Second // a tick that is delayed by more than this counts as unmetered time
	a := &simulatedAgent{
		attributor: energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleByRequests}),
		counter:    energy.NewIntegrator(energy.Domain{Kind: energy.Model, Name: "node"}, energy.Estimated, timeout),
		queue:      queue, cpu: map[string]time.Duration{},
	}
	m.pushing.Go(func() { pusher.Run(ctx) })
	m.agents[node] = a
	return a, nil
}

// meter adds the usage of a node since the last tick.
func (m *meters) meter(a *simulatedAgent, view *kube.View, n *corev1.Node, pods []*corev1.Pod,
	now time.Duration,
) error {
	capacity := kube.Allocatable(n)
	free := capacity
	for _, p := range pods {
		free = free.Sub(policy.PodRequest(p))
	}
	node, known := view.Node(n, capacity, free, len(pods))
	if !known {
		return errors.New("no power profile matches the node")
	}
	ended := a.compute(pods, now-a.last)
	a.last = now
	o := energy.Observation{
		At: now, CPUs: math.Max(1, float64(capacity.MilliCPU)/1000), Busy: a.busy,
		Root: []energy.Reading{a.counter.Next(node.Power(), now)}, Ended: ended, Usage: a.usage(pods),
	}
	if !a.attributor.Observe(&o, &a.out) {
		return nil
	}
	m.mu.Lock()
	m.metered[n.Name] += a.out.Measured
	m.mu.Unlock()
	meta := delivery.Meta{Wall: time.Now(), Source: simulatedSource, IdlePolicy: energy.IdleByRequests.String()}
	if err := a.queue.Add(&a.out, meta); err != nil {
		return err
	}
	return a.queue.Save(nil)
}

// compute adds the requested CPU time to every running pod and returns the usage of pods that no longer exist.
func (a *simulatedAgent) compute(pods []*corev1.Pod, dt time.Duration) (ended []energy.Usage) {
	running := map[string]bool{}
	for _, p := range pods {
		id := energy.ContainerID(string(p.UID), "")
		running[id] = true
		if _, known := a.cpu[id]; !known {
			a.cpu[id] = 0 // the pod starts with this tick
			continue
		}
		used := time.Duration(policy.PodRequest(p).MilliCPU) * dt / 1000
		a.cpu[id] += used
		a.busy += used
	}
	for id, cpu := range a.cpu {
		if !running[id] {
			ended = append(ended, energy.Usage{ID: id, CPU: cpu})
			delete(a.cpu, id)
		}
	}
	slices.SortFunc(ended, byID)
	return ended
}

// usage returns the CPU times of the running pods. The result is not nil, because nil means unknown.
func (a *simulatedAgent) usage(pods []*corev1.Pod) []energy.Usage {
	all := []energy.Usage{}
	for _, p := range pods {
		id := energy.ContainerID(string(p.UID), "")
		all = append(all, energy.Usage{ID: id, CPU: a.cpu[id], Weight: uint64(max(0, policy.PodRequest(p).MilliCPU))})
	}
	slices.SortFunc(all, byID)
	return all
}

func byID(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) }
