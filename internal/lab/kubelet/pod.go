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
	// labGrace is what a process is given to end when all of them must.
	labGrace = 2 * time.Second
	// retryEvery is how often what is missing is looked for again.
	retryEvery = time.Second
	// refreshEvery is how often volumes follow the objects that they show, and tokens are looked at.
	refreshEvery = 5 * time.Second
)

// pod is the life of one pod on this machine. One goroutine, that of live, leads it through its stages; containers have
// goroutines of their own below it.
type pod struct {
	kubelet *kubelet
	dir     string
	log     *slog.Logger
	ports   ports

	term     context.Context // done: end in good order
	stopTerm context.CancelFunc
	kill     context.Context // done: end at once
	stopKill context.CancelFunc

	mu      sync.Mutex
	latest  *corev1.Pod
	deleted bool // the object is gone
	state   state
	changed chan struct{} // a state to be published; one place
}

func (k *kubelet) newPod(ctx context.Context, p *corev1.Pod) *pod {
	key := p.Namespace + "_" + p.Name + "_" + string(p.UID)
	fresh := &pod{
		kubelet: k, dir: filepath.Join(k.Dir, key), log: k.Log.With("pod", p.Namespace+"/"+p.Name),
		latest: p, changed: make(chan struct{}, 1), state: newState(p),
	}
	// Independent of ctx: processes get their grace when it ends.
	fresh.term, fresh.stopTerm = context.WithCancel(context.WithoutCancel(ctx))
	fresh.kill, fresh.stopKill = context.WithCancel(context.WithoutCancel(ctx))
	return fresh
}

// update takes note of the latest version of the object.
func (p *pod) update(latest *corev1.Pod) {
	p.mu.Lock()
	p.latest = latest
	p.mu.Unlock()
	if latest.DeletionTimestamp != nil {
		p.stop(time.Duration(ptr.Deref(latest.DeletionGracePeriodSeconds, 0)) * time.Second)
	}
}

// stop tells the pod to end, and ends it after the grace period.
func (p *pod) stop(grace time.Duration) {
	if p.term.Err() != nil {
		return
	}
	timer := time.AfterFunc(grace, p.stopKill)
	context.AfterFunc(p.kill, func() { timer.Stop() })
	p.stopTerm()
}

// gone tells that the object does not exist any more: there is nothing to be graceful for.
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

// live carries the pod out until its object is gone or ctx ends. ctx is that of all API calls.
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
		p.log.Error("A pod's folder stays", "error", err)
	}
	<-p.term.Done() // a pod that has ended stays until it is deleted
	p.kubelet.Network.leave(p.state.address)
	p.remove(ctx)
}

// carryOut prepares the pod, runs its init containers one by one and then the others.
func (p *pod) carryOut(ctx context.Context) {
	if phase := p.object().Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
		return // it had ended before we saw it
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

// runContainers returns when all containers have ended for good.
func (p *pod) runContainers(ctx context.Context) {
	spec := p.object().Spec
	for i := range spec.InitContainers {
		c := &container{pod: p, spec: &spec.InitContainers[i], init: true}
		if !c.supervise(ctx) {
			return
		}
	}
	p.set(func(s *state) { s.initDone = true })
	var containers sync.WaitGroup
	for i := range spec.Containers {
		c := &container{pod: p, spec: &spec.Containers[i]}
		containers.Go(func() { c.supervise(ctx) })
	}
	containers.Wait()
}

// retry does something until it succeeds, and has the status say why the pod waits. It returns false if the pod must
// end.
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

// refresh keeps volumes and tokens current until ctx ends.
func (p *pod) refresh(ctx context.Context) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := p.mount(ctx); err != nil && ctx.Err() == nil {
			p.log.Warn("Volumes are not up to date", "error", err)
		}
	}, refreshEvery)
}

// prepare makes everything that the containers need.
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

// remove lets go of a deleted pod, as a kubelet does when nothing of it runs any more.
func (p *pod) remove(ctx context.Context) {
	p.mu.Lock()
	deleted := p.deleted
	p.mu.Unlock()
	if deleted || ctx.Err() != nil {
		return
	}
	object := p.object()
	p.write(ctx, "Removing a deleted pod", func() error {
		return p.kubelet.Client.CoreV1().Pods(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(object.UID)),
		})
	})
}

// write asks the API server for a change until it has made it, the object is gone or another one, or ctx ends.
func (p *pod) write(ctx context.Context, what string, change func() error) {
	_ = wait.PollUntilContextCancel(ctx, retryEvery, true, func(context.Context) (bool, error) {
		err := change()
		done := err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || ctx.Err() != nil
		if !done {
			p.log.Warn("the API server refuses a change: it is tried again", "change", what, "error", err)
		}
		return done, nil
	})
}
