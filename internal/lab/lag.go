package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// A replay on a busy machine lags behind its clock, and each second counts as many minutes of the trace. The clock is
// therefore slowed down, at most by maxSlowdown, until the latency of a Job is at most 1/maxLatency of the trace. If
// pods still start later than in the simulation by more than 1/maxLag of the trace on average, the figures are not
// valid.
const (
	probes      = 5
	maxSlowdown = 3
	maxLatency  = 100
	maxLag      = 100
)

// slowDown reduces the factor of the clock if the control plane is slow. It measures the latency of a few Jobs without
// run time.
func (r *Replay) slowDown(ctx context.Context) error {
	t := Trial{Strategy: Stock, namespace: r.Trials[0].namespace}
	began := time.Now()
	for i := range probes {
		job := kube.TraceJob(fmt.Sprintf("probe-%d", i), &sched.Job{}, func(d time.Duration) time.Duration { return d })
		t.place(job, 0)
		job.Spec.Template.Spec.NodeName = t.node(r.Scenario.Nodes[0].Name) // the scheduler is not running yet
		jobs := r.client.BatchV1().Jobs(t.namespace)
		if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return err
		}
		err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true,
			func(ctx context.Context) (bool, error) {
				seen, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
				return err == nil && seen.Status.Succeeded > 0, err
			})
		if err != nil {
			return fmt.Errorf("waiting for a Job without run time: %w", err)
		}
	}
	latency := time.Since(began) / probes
	r.Factor = max(r.Factor/maxSlowdown, min(r.Factor, float64(span(r.Scenario)/maxLatency)/float64(latency)))
	return nil
}

// compare returns the measured results, each followed by the simulated one. If the control plane was too slow, it marks
// the measured results and returns the reason.
func compare(measured, simulated []*sim.Result, limit time.Duration) (all []*sim.Result, invalid string, err error) {
	var slow []string
	for i, m := range measured {
		if lag := startDelay(m) - startDelay(simulated[i]); lag > limit {
			slow = append(slow, fmt.Sprintf("%s by %s", m.Strategy, humanize.Rounded(lag)))
		}
		all = append(all, m, simulated[i])
	}
	if len(slow) > 0 {
		for _, m := range measured {
			m.Strategy += " (not valid)"
		}
		invalid = fmt.Sprintf("NOT VALID: this machine was too busy. On average, pods started later than simulated: "+
			"%s of the trace (limit %s). Try again with more --minutes, or use kubenergy simulate.",
			strings.Join(slow, ", "), humanize.Rounded(limit))
	}
	_, err = sim.Align(all...)
	return all, invalid, err
}

// startDelay returns the mean time between the release of a job and its start.
func startDelay(r *sim.Result) (mean time.Duration) {
	for i := range r.Outcomes {
		mean += r.Outcomes[i].Start.Sub(r.Outcomes[i].Released) / time.Duration(len(r.Outcomes))
	}
	return mean
}
