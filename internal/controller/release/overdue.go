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

// Options are what a Releaser needs.
type Options struct {
	Client     kubernetes.Interface
	Held       *Held
	View       func() *kube.View
	Clock      func() time.Time // of this machine
	Log        *slog.Logger
	Registerer prometheus.Registerer

	Leads       func() bool
	NoScheduler func(context.Context) bool // whether it is known that none runs
	Events      events.EventRecorder
}

// A Releaser lets go what is held beyond its deadline: the hold loops of all schedulers are dead then, late, or cannot
// reach the API server. Nothing is to start more than a second late while one of them or of us lives, so there is
// little to wait for. Every replica does so; the patch changes nothing for those who come second.
type Releaser struct {
	o        Options
	clock    *kube.ServerClock
	releases *prometheus.CounterVec

	// Of the one goroutine that looks.
	refused int       // times in a row that the API server has not told its time
	ask     time.Time // on our own clock: not before
}

// New returns a Releaser that has not asked for the API server's time.
func New(o Options) *Releaser {
	return &Releaser{
		o: o, clock: kube.NewServerClock(o.Clock, o.Client),
		releases: instrument.With(o.Registerer).Counters("kubenergy_overdue_releases_total",
			"Held Jobs past their deadline that no scheduler had released.", "result"),
	}
}

const (
	overdue         = 400 * time.Millisecond // past the deadline
	overdueLook     = 250 * time.Millisecond
	releasesAtOnce  = 32
	releaseTimeout  = 5 * time.Second
	releaseRetry    = time.Second // doubled for each further attempt, up to
	maxReleaseRetry = 16 * time.Second
	maxClockRetry   = 4 * time.Second  // begins at overdueLook
	clockFresh      = 10 * time.Second // an older comparison is renewed before anything is released
	clockTolerance  = 5 * time.Minute  // and at least so often
	maxUpdates      = 5000             // deadlines that a pass computes anew because policies may have changed
	// freeGrace leaves a Job that nothing holds any longer to the scheduler, whose events say why.
	freeGrace = 600 * time.Millisecond
	// doubt is for how long a Job that no known policy lets wait stays held: admission may have seen a policy, or the
	// label of a namespace, before the view did.
	doubt = 2 * time.Second
)

// Run releases until ctx ends.
func (r *Releaser) Run(ctx context.Context) error {
	var running errgroup.Group
	running.SetLimit(releasesAtOnce)
	defer func() { _ = running.Wait() }() // none fails
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

// due returns what is to be released now, as copies, the oldest deadline first.
func (r *Releaser) due(ctx context.Context) []heldJob {
	view := r.o.View()
	if len(r.late(view, false)) == 0 {
		if r.clock.Age() > clockTolerance {
			r.compare(ctx)
		}
		return nil
	}
	// Deadlines are instants on the API server's clock. A local clock that runs ahead must not end all holds at once.
	if r.clock.Age() > clockFresh && !r.compare(ctx) {
		return nil
	}
	return r.late(view, true)
}

// compare asks the API server for its time. While it does not answer it is asked less and less often.
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
	r.o.Log.Debug("the API server did not tell its time", "error", err)
	r.ask = now.Add(min(overdueLook<<min(r.refused, 10), maxClockRetry))
	r.refused++
	return false
}

// late returns copies of what is overdue, the oldest deadline first. With take, attempts to release it are under way.
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

// overdue returns the deadline of a Job, if it is to be released by now. The caller must hold h.mu.
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

// deadline returns the deadline of a Job as the hold loop computes it, or the latest start that the hold loop wrote if
// that is earlier: it may know more, such as the schedule of a CronJob. No annotation prolongs a hold beyond the delay
// that the Job is allowed. Until policies are known, the written latest start counts alone. The caller must hold h.mu.
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

// latestStart computes the deadline of a Job. If that panics or its CronJob's schedule makes no sense, the deadline has
// passed: unknown data hold nothing.
func latestStart(log *slog.Logger, view *kube.View, j *heldJob, c *batchv1.CronJob) (latest time.Time) {
	panics.Survive(log, "overdue", "the deadline of a Job", func() {
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

var errPanicked = errors.New("releasing it panicked")

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
		// until the informer says that it is gone
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
