package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// A replay on a busy machine lags behind its clock, and each second counts as many minutes of the trace. The clock is
// therefore slowed down in proportion to the latency of Jobs beyond 1/maxLatency of the trace, at most by maxSlowdown.
// If pods still start later than in the simulation by more than 1/maxLag of the trace on average, the figures are not
// valid.
const (
	maxSlowdown = 3
	maxLatency  = 150
	maxLag      = 100
)

var errBusy = errors.New("NOT VALID: this machine is too busy, and pods start later than simulated; " +
	"try again with more --minutes, or use kubenergy simulate")

// slowDown reduces the factor of the clock if the control plane is slow. It runs the schedulers for a few seconds.
func (r *Replay) slowDown(ctx context.Context, dir string) error {
	stop, err := r.startScheduling(ctx, dir, Clock{Trace: r.Scenario.Start, Wall: time.Now(), Factor: r.Factor})
	if err != nil {
		return err
	}
	defer stop()
	latency, err := r.latency(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errBusy
	}
	if err != nil {
		return fmt.Errorf("measuring the latency of Jobs: %w", err)
	}
	r.Factor /= slowdown(latency, span(r.Scenario), r.Factor)
	return nil
}

// slowdown returns the factor by which the clock is slowed down for the given latency of Jobs and length of the trace.
func slowdown(latency, length time.Duration, factor float64) float64 {
	return min(max(1, float64(latency)/float64(length/maxLatency)*factor), maxSlowdown)
}

// latency returns the mean latency of Jobs without run time. They arrive for a few seconds, at twice the mean rate of
// the replay.
func (r *Replay) latency(ctx context.Context) (time.Duration, error) {
	const seconds, fewest, most, probe = 4, 5, 200, "probe-"
	rate := 2 * float64(len(r.Scenario.Jobs)*len(r.Trials)) / span(r.Scenario).Seconds() * r.Factor
	rate = max(rate, float64(fewest)/seconds)
	n, began := min(int(seconds*rate), most), time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		job := kube.TraceJob(probe+strconv.Itoa(i), &sched.Job{}, func(d time.Duration) time.Duration { return d })
		r.Trials[i%len(r.Trials)].place(job, 0)
		group.Go(func() error {
			kube.Pause(ctx, time.Until(began.Add(time.Duration(float64(i)/rate*float64(time.Second)))))
			_, err := r.client.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
			return err
		})
	}
	var unfinished time.Duration // integral of the number of Jobs that have not finished
	group.Go(func() error {
		last := began
		return wait.PollUntilContextTimeout(ctx, 10*pollInterval, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				list, err := r.client.BatchV1().Jobs("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
				if err != nil {
					return false, err
				}
				left := n
				for i := range list.Items {
					if strings.HasPrefix(list.Items[i].Name, probe) && list.Items[i].Status.Succeeded > 0 {
						left--
					}
				}
				unfinished += time.Duration(left) * time.Since(last)
				last = time.Now()
				return left == 0, nil
			})
	})
	err := group.Wait()
	// The first term includes the mean time until the Jobs arrive.
	return unfinished/time.Duration(n) - time.Duration(float64(n-1)/2/rate*float64(time.Second)), err
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
		invalid = fmt.Sprintf("%v. Mean delays: %s of the trace (limit %s).", errBusy, strings.Join(slow, ", "),
			humanize.Rounded(limit))
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
