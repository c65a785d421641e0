package kubelet

import (
	"cmp"
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/probe"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
)

// probe runs the probes of a container until ctx is cancelled. It closes unhealthy if the container must be
// restarted.
func (c *container) probe(ctx context.Context, unhealthy chan<- struct{}) {
	fail := sync.OnceFunc(func() { close(unhealthy) })
	if c.spec.StartupProbe != nil {
		up := false
		c.watch(ctx, c.spec.StartupProbe, func(ok bool) bool {
			up = ok
			return false
		})
		if ctx.Err() != nil {
			return
		}
		if !up {
			fail()
			return
		}
		c.set(func(s *containerState) { s.started, s.ready = true, c.spec.ReadinessProbe == nil })
	}
	var probes sync.WaitGroup
	if p := c.spec.ReadinessProbe; p != nil {
		probes.Go(func() {
			c.watch(ctx, p, func(ok bool) bool {
				c.set(func(s *containerState) { s.ready = ok })
				return true
			})
		})
	}
	if p := c.spec.LivenessProbe; p != nil {
		probes.Go(func() {
			c.watch(ctx, p, func(ok bool) bool {
				if !ok {
					fail()
				}
				return ok
			})
		})
	}
	probes.Wait()
}

// watch runs a probe periodically until ctx is cancelled or notify returns false. It calls notify for the first
// result and for each change that reaches the thresholds of the probe.
func (c *container) watch(ctx context.Context, p *corev1.Probe, notify func(ok bool) bool) {
	known, value := false, false
	last, streak := false, int32(0)
	timer := time.NewTimer(seconds(p.InitialDelaySeconds, 0))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		ok := c.ask(p)
		if ctx.Err() != nil {
			return
		}
		if ok != last {
			streak = 0
		}
		last, streak = ok, streak+1
		if streak >= threshold(p, ok) && (!known || ok != value) {
			known, value = true, ok
			if !notify(ok) {
				return
			}
		}
		timer.Reset(seconds(p.PeriodSeconds, 10))
	}
}

// threshold returns the number of consecutive results required for a change.
func threshold(p *corev1.Probe, ok bool) int32 {
	if ok {
		return max(1, p.SuccessThreshold)
	}
	return max(1, p.FailureThreshold)
}

func seconds(s, fallback int32) time.Duration {
	return time.Duration(cmp.Or(max(s, 0), fallback)) * time.Second
}

// ask runs the probe once and reports whether it succeeded.
func (c *container) ask(p *corev1.Probe) bool {
	port, err := c.pod.ports.probed(c.spec, p.HTTPGet.Port)
	if err != nil {
		return false
	}
	get := p.HTTPGet.DeepCopy()
	get.Host, get.Port = address, intstr.FromInt32(int32(port))
	request, err := httpprobe.NewRequestForHTTPGetAction(get, c.spec, address, "probe")
	if err != nil {
		return false
	}
	result, _, err := httpprobe.New(false).Probe(request, seconds(p.TimeoutSeconds, 1))
	return err == nil && (result == probe.Success || result == probe.Warning)
}
