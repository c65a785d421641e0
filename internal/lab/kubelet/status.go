package kubelet

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
)

// address is the address of all nodes and the listen address of all pods, because everything runs on this machine.
const address = "127.0.0.1"

// state is the basis of a pod's status.
type state struct {
	started    time.Time
	address    string // in the Network; empty until the pod is prepared
	final      bool   // no container will run again
	containers map[string]*containerState
}

type containerState struct {
	now, last corev1.ContainerState
	pid       int
	restarts  int32
	runs      int32
	started   bool
	ready     bool
}

func newState(p *corev1.Pod) state {
	s := state{started: time.Now(), containers: map[string]*containerState{}}
	for _, c := range p.Spec.Containers {
		s.containers[c.Name] = &containerState{}
	}
	s.allWait("PodInitializing", "")
	return s
}

func (s *state) allWait(reason, message string) {
	for _, c := range s.containers {
		c.wait(reason, message)
	}
}

func (c *containerState) wait(reason, message string) {
	if c.now.Terminated != nil {
		c.last = c.now
	}
	c.now = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	c.ready, c.started = false, false
}

func (c *containerState) run(pid int, started, ready bool) {
	c.now = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	c.restarts = c.runs
	c.runs++
	c.pid, c.started, c.ready = pid, started, started && ready
}

func (c *containerState) end(at time.Time, code int, reason, message string) {
	terminated := &corev1.ContainerStateTerminated{
		ExitCode: int32(code), Reason: reason, Message: message, FinishedAt: metav1.NewTime(at),
		StartedAt: metav1.NewTime(at),
	}
	if c.now.Running != nil {
		terminated.StartedAt = c.now.Running.StartedAt
	}
	c.now = corev1.ContainerState{Terminated: terminated}
	c.ready, c.started, c.pid = false, false, 0
}

// set changes the state and schedules its publication.
func (p *pod) set(change func(*state)) {
	p.mu.Lock()
	change(&p.state)
	p.mu.Unlock()
	daemon.Poke(p.changed)
}

// finish marks the state as final.
func (p *pod) finish() {
	p.set(func(s *state) {
		s.final = true
		for _, c := range s.containers {
			if c.now.Waiting == nil {
				continue
			}
			if c.last.Terminated != nil {
				c.now = c.last
				continue
			}
			c.end(time.Now(), 137, "ContainerStatusUnknown", "the pod was deleted before this container ran")
		}
	})
}

// publishUntil publishes the status after every change, and a last time when ended is closed.
func (p *pod) publishUntil(ctx context.Context, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			p.publish(ctx)
			return
		case <-p.changed:
			p.publish(ctx)
		}
	}
}

// publish writes the status, retrying until the API server accepts it or the object is deleted.
func (p *pod) publish(ctx context.Context) {
	p.write(ctx, "updating the status of a pod", func() error {
		p.mu.Lock()
		object, deleted := p.latest, p.deleted
		status := p.state.status(object)
		p.mu.Unlock()
		if deleted {
			return nil
		}
		if ports := p.ports.String(); ports != object.Annotations[v1alpha1.AnnotationLabPorts] {
			annotations := map[string]string{v1alpha1.AnnotationLabPorts: ports}
			noted := map[string]any{"uid": object.UID, "annotations": annotations}
			if err := p.patch(ctx, object, map[string]any{"metadata": noted}); err != nil {
				return err
			}
		}
		known := map[string]any{"metadata": map[string]any{"uid": object.UID}, "status": status}
		return p.patch(ctx, object, known, "status")
	})
}

func (p *pod) patch(ctx context.Context, object *corev1.Pod, to any, subresource ...string) error {
	patch, err := json.Marshal(to)
	if err != nil {
		return err
	}
	_, err = p.kubelet.Client.CoreV1().Pods(object.Namespace).Patch(ctx, object.Name, types.StrategicMergePatchType,
		patch, metav1.PatchOptions{}, subresource...)
	return err
}

// status converts the state to a PodStatus.
func (s *state) status(p *corev1.Pod) *corev1.PodStatus {
	status := &corev1.PodStatus{
		Conditions: slices.Clone(p.Status.Conditions), // retain the transition times
		Phase:      s.phase(p), StartTime: &metav1.Time{Time: s.started},
		HostIP: address, HostIPs: []corev1.HostIP{{IP: address}}, PodIP: s.address,
		ContainerStatuses: s.statuses(p.Spec.Containers),
	}
	if s.address != "" {
		status.PodIPs = []corev1.PodIP{{IP: s.address}}
	}
	ready := s.ready(p)
	var ours []corev1.PodCondition // other conditions may have been changed by their writers meanwhile
	for _, c := range []struct {
		kind  corev1.PodConditionType
		holds bool
	}{
		{corev1.PodReadyToStartContainers, !s.final},
		{corev1.PodInitialized, true},
		{corev1.ContainersReady, ready},
		{corev1.PodReady, ready},
	} {
		podutil.UpdatePodCondition(status, condition(c.kind, c.holds, status.Phase))
		_, written := podutil.GetPodCondition(status, c.kind)
		ours = append(ours, *written)
	}
	status.Conditions = ours
	return status
}

// ready reports whether all containers are running and ready.
func (s *state) ready(p *corev1.Pod) bool {
	ready := !s.final
	for i := range p.Spec.Containers {
		ready = ready && s.containers[p.Spec.Containers[i].Name].ready
	}
	return ready
}

func condition(kind corev1.PodConditionType, value bool, phase corev1.PodPhase) *corev1.PodCondition {
	c := &corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse}
	switch {
	case value:
		c.Status = corev1.ConditionTrue
	case phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case kind == corev1.ContainersReady || kind == corev1.PodReady:
		c.Reason = "ContainersNotReady"
	}
	return c
}

func (s *state) statuses(containers []corev1.Container) []corev1.ContainerStatus {
	statuses := make([]corev1.ContainerStatus, 0, len(containers))
	for i := range containers {
		c := s.containers[containers[i].Name]
		status := corev1.ContainerStatus{
			Name: containers[i].Name, Image: containers[i].Image, State: c.now, LastTerminationState: c.last,
			RestartCount: c.restarts, Ready: c.ready, Started: new(c.started),
		}
		if c.runs > 0 {
			status.ImageID = "process://" + imageName(containers[i].Image)
		}
		statuses = append(statuses, status)
	}
	return statuses
}

func (s *state) phase(p *corev1.Pod) corev1.PodPhase {
	if s.final {
		for _, c := range s.containers {
			if c.now.Terminated == nil || c.now.Terminated.ExitCode != 0 {
				return corev1.PodFailed
			}
		}
		return corev1.PodSucceeded
	}
	if slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return s.containers[c.Name].runs > 0 }) {
		return corev1.PodRunning
	}
	return corev1.PodPending
}
