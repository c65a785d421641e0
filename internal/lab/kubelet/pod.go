package kubelet

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/internal/kube"
)

const (
	// labGrace is the grace period of processes when the lab is stopped.
	labGrace = 2 * time.Second
	// retryEvery is the interval of retries if a requirement is missing.
	retryEvery = time.Second
	// refreshEvery is the interval of updating volumes and tokens.
	refreshEvery = 5 * time.Second
)

// pod runs one pod on this machine. The goroutine in live runs its stages and starts additional goroutines for
// containers.
type pod struct {
	kubelet *kubelet
	dir     string
	log     *slog.Logger
	ports   ports

	term     context.Context // when done, terminate gracefully
	stopTerm context.CancelFunc
	kill     context.Context // when done, kill immediately
	stopKill context.CancelFunc

	mu      sync.Mutex
	latest  *corev1.Pod
	deleted bool // whether the object is deleted
	state   state
	changed chan struct{} // signals a state to publish; buffered
}

func (k *kubelet) newPod(ctx context.Context, p *corev1.Pod) *pod {
	key := p.Namespace + "_" + p.Name + "_" + string(p.UID)
	fresh := &pod{
		kubelet: k, dir: filepath.Join(k.Dir, key), log: k.Log.With("pod", p.Namespace+"/"+p.Name),
		latest: p, changed: make(chan struct{}, 1), state: newState(p),
	}
	// Independent of ctx, so that processes get their grace period after ctx is cancelled.
	fresh.term, fresh.stopTerm = context.WithCancel(context.WithoutCancel(ctx))
	fresh.kill, fresh.stopKill = context.WithCancel(context.WithoutCancel(ctx))
	return fresh
}

// update processes a new version of the object.
func (p *pod) update(latest *corev1.Pod) {
	p.mu.Lock()
	p.latest = latest
	p.mu.Unlock()
	if latest.DeletionTimestamp != nil {
		p.stop(time.Duration(ptr.Deref(latest.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
}

// stop terminates the pod, and kills it after the grace period.
func (p *pod) stop(grace time.Duration) {
	if p.term.Err() != nil {
		return
	}
	timer := time.AfterFunc(grace, p.stopKill)
	context.AfterFunc(p.kill, func() { timer.Stop() })
	p.stopTerm()
}

// gone handles the deletion of the object. There is no grace period.
func (p *pod) gone() {
	p.mu.Lock()
	p.deleted = true
	p.mu.Unlock()
	p.stopTerm()
	p.stopKill()
}

func (p *pod) object() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// live runs the pod until its object is deleted or ctx is cancelled. ctx is used for all API calls.
func (p *pod) live(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { p.stop(labGrace) })()
	defer p.stopTerm()
	defer p.stopKill()
	var publishing sync.WaitGroup
	ended := make(chan struct{})
	publishing.Go(func() { p.publishUntil(ctx, ended) })
	p.carryOut(ctx)
	close(ended)
	publishing.Wait()
	if err := os.RemoveAll(p.dir); err != nil {
		p.log.Error("Failed to remove the directory of a pod", "error", err)
	}
	<-p.term.Done() // a completed pod exists until it is deleted
	p.kubelet.Network.leave(p.state.address)
	p.remove(ctx)
}

// carryOut prepares the pod and runs its containers.
func (p *pod) carryOut(ctx context.Context) {
	if phase := p.object().Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return // it completed earlier
	}
	if !p.retry((*state).allWait, func() (string, error) { return "ContainerCreating", p.prepare(ctx) }) {
		p.finish()
		return
	}
	var refreshing sync.WaitGroup
	refresh, stopRefresh := context.WithCancel(ctx)
	refreshing.Go(func() { p.refresh(refresh) })
	p.runContainers(ctx)
	p.finish()
	stopRefresh()
	refreshing.Wait()
}

// runContainers returns when all containers have completed.
func (p *pod) runContainers(ctx context.Context) {
	spec := p.object().Spec
	var containers sync.WaitGroup
	for i := range spec.Containers {
		c := &container{pod: p, spec: &spec.Containers[i]}
		containers.Go(func() { c.supervise(ctx) })
	}
	containers.Wait()
}

// retry calls do until it succeeds, and reports the reason for waiting in the status. It returns false if the pod
// must end.
func (p *pod) retry(say func(s *state, reason, message string), do func() (reason string, err error)) bool {
	for p.term.Err() == nil {
		reason, err := do()
		if err == nil {
			return true
		}
		p.set(func(s *state) { say(s, reason, err.Error()) })
		kube.Pause(p.term, retryEvery)
	}
	return false
}

// refresh updates volumes and tokens until ctx is cancelled.
func (p *pod) refresh(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.mount(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("Failed to update volumes", "error", err)
		}
	}, refreshEvery)
}

// prepare creates all requirements of the containers.
func (p *pod) prepare(ctx context.Context) error {
	object := p.object()
	if err := refuse(&object.Spec); err != nil {
		return err
	}
	for _, dir := range []string{filepath.Join(p.dir, "tmp"), filepath.Join(p.kubelet.Dir, "logs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	if p.ports == nil {
		ports, err := newPorts(&object.Spec)
		if err != nil {
			return err
		}
		p.ports = ports
		p.set(func(s *state) { s.address = p.kubelet.Network.join(ports) })
	}
	return p.mount(ctx)
}

// remove removes a deleted pod from the API server after its processes have exited, like a kubelet does.
func (p *pod) remove(ctx context.Context) {
	p.mu.Lock()
	deleted := p.deleted
	p.mu.Unlock()
	if deleted || ctx.Err() != nil {
		return
	}
	object := p.object()
	p.write(ctx, "removing a deleted pod", func() error {
		return p.kubelet.Client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(object.UID)),
		})
	})
}

// write retries a change until the API server accepts it, the object is deleted or replaced, or ctx is cancelled.
func (p *pod) write(ctx context.Context, what string, change func() error) {
	_ = wait.PollUntilContextCancel(ctx, retryEvery, true, func(context.Context) (bool, error) {
		err := change()
		done := err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil
		if !done {
			p.log.Warn("API server rejected a change, retrying", "change", what, "error", err)
		}
		return done, nil
	})
}
