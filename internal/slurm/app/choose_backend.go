package app

import (
	"context"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// choice contains the cost of a job in each backend, on its best node there.
type choice struct {
	best string             // cheapest backend; empty if no node is suitable
	cost map[string]float64 // assumes empty nodes if a backend has no capacity
	room bool               // the best backend has capacity now
}

// choose ranks the nodes of both backends for the expected start of the job, with the strategy of the job.
func (s *scan) choose(ctx context.Context, job *batchv1.Job) (c choice, err error) {
	submitted := job.DeepCopy()
	work, err := policy.ReadJob(submitted)
	if err != nil {
		return c, err
	}
	all, err := s.machines(ctx)
	if err != nil {
		return c, err
	}
	view, now := s.view(), s.now()
	wanted, settings := view.Settle(&work)
	if d := view.Decide(now, wanted, settings); d.Held(now) {
		now = d.Window.Start
	}
	pod := &v1.Pod{Spec: job.Spec.Template.Spec}
	wanted.Request = policy.PodRequest(pod)
	p := &kube.Placement{Now: now, View: view, Pod: pod, Job: &wanted, Settings: &settings}
	only := backend(job)
	c.cost = map[string]float64{}
	for _, room := range []bool{true, false} {
		var fits []*sched.Node
		where := map[*sched.Node]string{}
		for i := range all {
			m := &all[i]
			load := &m.load
			if !room {
				load = &kube.Load{}
			}
			node, _ := p.Consider(&m.node, load)
			if node != nil && (only == server.AnyBackend || only == m.backend) && mayRun(job, m.backend, only) {
				fits, where[node] = append(fits, node), m.backend
			}
		}
		ranked, _ := p.Rank(fits)
		for _, r := range ranked {
			backend := where[r.Node]
			if _, known := c.cost[backend]; !known {
				c.cost[backend] = r.Cost
			}
			if c.best == "" {
				c.best, c.room = backend, room
			}
		}
	}
	return c, nil
}

// mayRun reports whether a job can run in a backend. Slurm requires a command. Jobs with an image are only sent to
// Slurm if it was requested explicitly.
func mayRun(job *batchv1.Job, backend, only string) bool {
	c := &job.Spec.Template.Spec.Containers[0]
	return backend == server.Kubernetes || len(c.Command) > 0 && (only == server.Slurm || c.Image == server.JobImage)
}

// machines returns the nodes of both backends. If jobs are waiting for resources in Slurm, its nodes count as full.
func (s *scan) machines(ctx context.Context) ([]machine, error) {
	if s.known != nil || s.away != nil {
		return s.known, s.away
	}
	var known []machine
	full := slices.ContainsFunc(s.jobs, func(j slurm.Job) bool { return j.LacksRoom() })
	for i := range s.nodes {
		if n := &s.nodes[i]; n.Usable() {
			known = append(known, ofSlurm(n, full))
		}
	}
	if s.cluster == nil {
		s.known = known
		return known, nil
	}
	nodes, err := s.cluster.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err := s.reach(err); err != nil {
		return nil, err
	}
	pods, err := s.cluster.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err := s.reach(err); err != nil {
		return nil, err
	}
	index := map[string]int{}
	for _, n := range nodes.Items {
		index[n.Name] = len(known)
		known = append(known, machine{backend: server.Kubernetes, node: n})
	}
	for i := range pods.Items {
		if k, ok := index[pods.Items[i].Spec.NodeName]; ok {
			known[k].load.Add(&pods.Items[i])
		}
	}
	s.known = known
	return known, nil
}

// ofSlurm converts a Slurm node. If full is set, it has no free resources.
func ofSlurm(n *slurm.Node, full bool) machine {
	all, free := n.Resources()
	m := machine{backend: server.Slurm, node: asNode(n), load: kube.Load{Requested: all.Sub(free), Jobs: n.Busy()}}
	m.node.Status.Allocatable = policy.ListOf(all)
	if full {
		m.load.Requested = all
	}
	return m
}
