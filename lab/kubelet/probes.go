package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// probe watches a running container until ctx ends. unhealthy is closed when it must be restarted.
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

// watch asks a probe's question until ctx ends or tell returns false. tell hears of each change that has passed the
// probe's thresholds, first of the first one.
func (c *container) watch(ctx context.Context, p *corev1.Probe, tell func(ok bool) bool) {
	client := &http.Client{Timeout: seconds(p.TimeoutSeconds, 1), Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // as a kubelet's probes
	}}
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
		ok := c.ask(ctx, client, p) == nil
		if ctx.Err() != nil {
			return
		}
		if ok != last {
			streak = 0
		}
		last, streak = ok, streak+1
		if streak >= threshold(p, ok) && (!known || ok != value) {
			known, value = true, ok
			if !tell(ok) {
				return
			}
		}
		timer.Reset(seconds(p.PeriodSeconds, 10))
	}
}

// threshold is how many answers in a row count as a change.
func threshold(p *corev1.Probe, ok bool) int32 {
	if ok {
		return max(1, p.SuccessThreshold)
	}
	return max(1, p.FailureThreshold)
}

func seconds(s, fallback int32) time.Duration {
	if s <= 0 {
		s = fallback
	}
	return time.Duration(s) * time.Second
}

// ask returns nil if the container is well.
func (c *container) ask(ctx context.Context, client *http.Client, p *corev1.Probe) error {
	port, err := c.pod.ports.probed(c.spec, *probePort(p))
	if err != nil {
		return err
	}
	host := net.JoinHostPort(address, strconv.Itoa(port))
	if p.TCPSocket != nil {
		dialer := net.Dialer{Timeout: client.Timeout}
		conn, err := dialer.DialContext(ctx, "tcp", host)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	scheme := "http"
	if p.HTTPGet.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+p.HTTPGet.Path, nil)
	if err != nil {
		return err
	}
	for _, h := range p.HTTPGet.HTTPHeaders {
		request.Header.Add(h.Name, h.Value)
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 10<<10))
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return fmt.Errorf("%s answered %s", request.URL, answer.Status)
	}
	return nil
}
