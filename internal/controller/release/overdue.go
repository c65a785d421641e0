package release

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Options configures a Releaser.
type Options struct {
	Client     kubernetes.Interface
	Held       *Held
	View       func() *kube.View
	Clock      func() time.Time // local clock
	Log        *slog.Logger
	Registerer prometheus.Registerer

	Leads       func() bool
	NoScheduler func(context.Context) bool // reports whether it is known that no scheduler is running
	Events      events.EventRecorder
}

// A Releaser releases Jobs that are held past their deadlines, because the hold loops of all schedulers have
// failed, are late, or cannot reach the API server. A Job must not start more than one second late while a
// scheduler or a controller is running, so the Releaser waits only briefly after a deadline. All replicas release
// Jobs, and a patch of a released Job is a no-op.
type Releaser struct {
	o        Options
	clock    *kube.ServerClock
	releases *prometheus.CounterVec

	// Used only by the goroutine of Run.
	refused int       // consecutive failures to read the server's time
	ask     time.Time // earliest time of the next attempt, by the local clock
}

// New returns a Releaser. It is inactive until Run is called.
func New(o Options) *Releaser {
	return &Releaser{
		o: o, clock: kube.NewServerClock(o.Clock, o.Client),
		releases: instrument.With(o.Registerer).Counters("kubenergy_overdue_releases_total",
			"Held Jobs past their deadline that no scheduler released, by result.", "result"),
	}
}

const (
	overdue         = 400 * time.Millisecond // time after the deadline
	overdueLook     = 250 * time.Millisecond
	releasesAtOnce  = 32
	releaseTimeout  = 5 * time.Second
	releaseRetry    = time.Second // initial backoff, doubled up to maxReleaseRetry
	maxReleaseRetry = 16 * time.Second
	maxClockRetry   = 4 * time.Second  // the backoff starts at overdueLook
	clockFresh      = 10 * time.Second // maximum age of the clock offset before a release
	clockTolerance  = 5 * time.Minute  // maximum age of the clock offset otherwise
	maxUpdates      = 5000             // maximum deadlines recomputed per pass after a change of policies
	// freeGrace delays the release of a Job that must not be held, so that the scheduler can release it and record
	// the reason in an event.
	freeGrace = 600 * time.Millisecond
	// doubt is how long a Job remains held if no known policy allows a delay, because admission may have observed a
	// policy or a namespace label before the view.
	doubt = 2 * time.Second
)

// Run releases overdue Jobs until ctx is done. It always returns nil.
func (r *Releaser) Run(ctx context.Context) error {
	var running errgroup.Group
	running.SetLimit(releasesAtOnce)
	defer func() { _ = running.Wait() }() // the functions never return errors
	tick := time.NewTicker(overdueLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var due []heldJob
		daemon.Round(ctx, func() { due = r.due(ctx) }) // each release has its own timeout
		for _, j := range due {
			if ctx.Err() != nil {
				return nil
			}
			running.Go(func() error {
				r.release(ctx, j)
				return nil
			})
		}
	}
}

// due returns copies of the Jobs to release now, sorted by deadline.
func (r *Releaser) due(ctx context.Context) []heldJob {
	view := r.o.View()
	if len(r.late(view, false)) == 0 {
		if r.clock.Age() > clockTolerance {
			r.compare(ctx)
		}
		return nil
	}
	// Deadlines use the clock of the API server. A local clock that is ahead must not release all held Jobs.
	if r.clock.Age() > clockFresh && !r.compare(ctx) {
		return nil
	}
	return r.late(view, true)
}

// compare updates the offset from the API server's clock. After failures it uses exponential backoff.
func (r *Releaser) compare(ctx context.Context) bool {
	now := r.o.Clock()
	if now.Before(r.ask) {
		return false
	}
	_, err := r.clock.Compare(ctx)
	if err == nil {
		r.refused, r.ask = 0, time.Time{}
		return true
	}
	r.o.Log.Debug("Failed to read the time of the API server", "error", err)
	r.ask = now.Add(min(overdueLook<<min(r.refused, 10), maxClockRetry))
	r.refused++
	return false
}

// late returns copies of the overdue Jobs, sorted by deadline. If take is true, the Jobs are marked as being
// released.
func (r *Releaser) late(view *kube.View, take bool) (late []heldJob) {
	now := r.clock.Now()
	r.o.Held.mu.Lock()
	defer r.o.Held.mu.Unlock()
	r.o.Held.updates = maxUpdates
	for _, j := range r.o.Held.jobs {
		if deadline, ok := r.o.Held.overdue(r.o.Log, j, view, now); ok {
			j.busy = take
			late = append(late, *j)
			late[len(late)-1].deadline = deadline
		}
	}
	slices.SortFunc(late, func(a, b heldJob) int { return a.deadline.Compare(b.deadline) })
	return late
}

// overdue returns the deadline of a Job, and whether it is to be released now. The caller must hold h.mu.
func (h *Held) overdue(log *slog.Logger, j *heldJob, view *kube.View, now time.Time) (deadline time.Time, ok bool) {
	if j.busy || j.Queued || now.Before(j.retry) {
		return time.Time{}, false
	}
	deadline, known := h.deadline(log, j, view, now)
	if j.free && j.freed.IsZero() {
		j.freed = now
	}
	if at := j.freed.Add(freeGrace); j.free && (!known || at.Before(deadline)) {
		deadline, known = at, true
	}
	return deadline, known && now.After(deadline.Add(overdue))
}

// deadline returns the deadline of a Job as computed by the hold loop, or the latest start written by the hold loop
// if that is earlier, because the hold loop may have more data, such as the schedule of a CronJob. No annotation
// extends a hold beyond the allowed delay. Until the policies are known, only the written latest start is used. The
// caller must hold h.mu.
func (h *Held) deadline(log *slog.Logger, j *heldJob, view *kube.View, now time.Time) (deadline time.Time, known bool) {
	if !view.Settled() {
		return j.written, !j.written.IsZero()
	}
	var c *batchv1.CronJob
	if j.run != nil {
		c = h.cronJobs[types.NamespacedName{Namespace: j.namespace, Name: j.run.CronJob}]
	}
	if j.seen == nil || c != nil && c != j.cron || j.seen != view && (h.updates > 0 || now.After(j.latest)) {
		h.updates--
		j.seen, j.cron, j.latest = view, c, latestStart(log, view, j, c)
	}
	if !j.written.IsZero() {
		return timeutil.Earlier(j.latest, j.written), true
	}
	return j.latest, true
}

// latestStart computes the deadline of a Job. If the computation panics, it returns the zero time, and if the
// schedule of the CronJob is invalid, the creation time, so that the Job is released. Invalid data must not hold a
// Job.
func latestStart(log *slog.Logger, view *kube.View, j *heldJob, c *batchv1.CronJob) (latest time.Time) {
	panics.Survive(log, "overdue", "computing a deadline", func() {
		job, settings := view.Settle(&j.work)
		at, err := kube.Deadline(&job, j.run, c)
		switch {
		case err != nil:
			latest = job.Submitted
		case settings.AllowedDelay <= 0 && !j.work.Marks.HasDelay():
			latest = job.Submitted.Add(doubt)
		default:
			latest = at
		}
	})
	return latest
}

var errPanicked = errors.New("recovered from a panic")

func (r *Releaser) release(ctx context.Context, j heldJob) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	ours, err := false, errPanicked
	panics.Survive(r.o.Log, "overdue", "releasing a Job", func() {
		ours, err = j.Release(ctx, r.o.Client, j.namespace, j.name, r.clock.Now())
	})
	r.o.Held.mu.Lock()
	defer r.o.Held.mu.Unlock()
	now := r.clock.Now()
	if known := r.o.Held.jobs[j.UID]; known != nil {
		known.busy = false
		// Do not retry before the informer has observed the release.
		known.retry = now.Add(min(releaseRetry<<min(known.attempts, 10), maxReleaseRetry))
		known.attempts++
	}
	switch {
	case err != nil:
		r.releases.WithLabelValues("failed").Inc()
		if j.attempts == 0 {
			r.o.Log.Error("Failed to release overdue Job", "namespace", j.namespace, "job", j.name, "err", err)
		}
	case ours:
		r.releases.WithLabelValues("released").Inc()
		r.o.Log.Warn("Released Job that no scheduler released in time", "namespace", j.namespace, "job", j.name,
			"deadline", j.deadline)
	}
}
