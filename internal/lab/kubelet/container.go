package kubelet

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/internal/child"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Restarts are delayed with exponential backoff like in kubelet, but with shorter delays.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 10 * time.Second
	// steady is the run time of a process after which the backoff is reset.
	steady = 30 * time.Second
)

type container struct {
	pod  *pod
	spec *corev1.Container
}

// supervise runs the container according to its restart policy.
func (c *container) supervise(ctx context.Context) {
	pause := firstPause
	for {
		cmd, ok := c.command(ctx)
		if !ok {
			return
		}
		began := time.Now()
		code := c.runOnce(cmd)
		if c.pod.term.Err() != nil ||
			!podutil.ContainerShouldRestart(*c.spec, c.pod.object().Spec, int32(code)) {
			return
		}
		if time.Since(began) > steady {
			pause = firstPause
		}
		c.set(func(s *containerState) {
			s.wait("CrashLoopBackOff", fmt.Sprintf("exited with code %d, restarting in %v", code, pause))
		})
		kube.Pause(c.pod.term, pause)
		pause = min(2*pause, lastPause)
	}
}

// command waits until all requirements of the process are met. It returns false if the pod must end.
func (c *container) command(ctx context.Context) (cmd *exec.Cmd, ok bool) {
	say := func(s *state, reason, message string) { s.containers[c.spec.Name].wait(reason, message) }
	ok = c.pod.retry(say, func() (reason string, err error) {
		program, err := c.program()
		if err != nil {
			return "ErrImagePull", err
		}
		cmd, err = c.pod.command(ctx, c.spec, program)
		return "CreateContainerConfigError", err
	})
	return cmd, ok
}

// program returns the path of the binary for the container's image and command.
func (c *container) program() (string, error) {
	name := imageName(c.spec.Image)
	if len(c.spec.Command) > 0 {
		name = filepath.Base(c.spec.Command[0])
	}
	k := c.pod.kubelet
	if !slices.Contains(k.Images, name) {
		return "", fmt.Errorf("unsupported image %q with command %q: want one of %q", c.spec.Image,
			c.spec.Command, k.Images)
	}
	path := filepath.Join(k.Binaries, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no program for image %q: build it with go build -o %s ./cmd/%s", c.spec.Image, path,
			name)
	}
	return path, nil
}

// runOnce runs the process to completion and returns its exit code.
func (c *container) runOnce(cmd *exec.Cmd) int {
	p, err := child.Start(cmd, c.pod.kubelet.logPath(c.pod.object(), c.spec.Name))
	if err != nil {
		c.set(func(s *containerState) { s.end(time.Now(), 128, "StartError", err.Error()) })
		return 128
	}
	c.set(func(s *containerState) {
		s.run(p.Cmd.Process.Pid, c.spec.StartupProbe == nil, c.spec.ReadinessProbe == nil)
	})
	watch, stopWatch := context.WithCancel(c.pod.term)
	var probing sync.WaitGroup
	unhealthy := make(chan struct{})
	probing.Go(func() { c.probe(watch, unhealthy) })
	c.await(p, unhealthy)
	stopWatch()
	probing.Wait()
	reason := "Completed"
	if p.Code != 0 {
		reason = "Error"
	}
	c.set(func(s *containerState) { s.end(time.Now(), p.Code, reason, "") })
	return p.Code
}

// await returns when the process has exited, after terminating it if the container is unhealthy or the pod is
// stopped.
func (c *container) await(p *child.Process, unhealthy <-chan struct{}) {
	kill := c.pod.kill
	select {
	case <-p.Done:
		return
	case <-unhealthy:
		grace, cancel := context.WithTimeout(kill, c.grace())
		defer cancel()
		kill = grace
	case <-c.pod.term.Done():
	}
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.Done:
		return
	case <-kill.Done():
	}
	p.Signal(syscall.SIGKILL)
	<-p.Done
}

func (c *container) grace() time.Duration {
	s := ptr.Deref(c.pod.object().Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	return time.Duration(s) * time.Second
}

func (c *container) set(change func(*containerState)) {
	c.pod.set(func(s *state) { change(s.containers[c.spec.Name]) })
}
