package release

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/daemon"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/panics"
	"github.com/kubenergy/kubenergy/policy"
)

// Options are what a Releaser needs.
type Options struct {
	Client     client.Client // reads from the API server, not from a cache
	Held       *Held
	View       func() *kube.View
	Clock      func() time.Time // of this machine
	Log        *slog.Logger
	Registerer prometheus.Registerer
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
	ask := func(ctx context.Context, r *authenticationv1.SelfSubjectReview) error { return o.Client.Create(ctx, r) }
	return &Releaser{
		o: o, clock: kube.NewServerClock(o.Clock, ask),
		releases: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "kubenergy_overdue_releases_total",
			Help: "Held Jobs past their deadline that no scheduler had released.",
		}, []string{"result"}),
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
	for _, j := range r.o.Held.jobs {
		if deadline, is := j.overdue(r.o.Log, view, now); is {
			j.busy = take
			late = append(late, *j)
			late[len(late)-1].deadline = deadline
		}
	}
	slices.SortFunc(late, func(a, b heldJob) int { return a.deadline.Compare(b.deadline) })
	return late
}

// overdue returns the deadline of a Job, if it is to be released by now.
func (j *heldJob) overdue(log *slog.Logger, view *kube.View, now time.Time) (latest time.Time, is bool) {
	if j.busy || j.Queued || now.Before(j.retry) {
		return time.Time{}, false
	}
	latest = j.latest
	if latest.IsZero() {
		if !view.Settled() {
			return time.Time{}, false
		}
		if j.seen != view { // a hundred thousand Jobs are looked at four times a second
			j.seen, j.fallback = view, latestStart(log, view, &j.work)
		}
		latest = j.fallback
	}
	return latest, now.After(latest.Add(overdue))
}

// latestStart is the deadline of a Job on which the hold loop wrote none: no hold lasts longer than the longest that
// its namespace allows. Where that panics it has passed: what is not known holds nothing.
func latestStart(log *slog.Logger, view *kube.View, work *policy.Work) (latest time.Time) {
	panics.Survive(log, "overdue", "the deadline of a Job", func() {
		job, settings := view.Settle(work)
		if latest = job.LatestStart(); settings.MaxDelay > 0 {
			latest = job.Submitted.Add(settings.MaxDelay)
		}
	})
	return latest
}

var errPanicked = errors.New("releasing it panicked")

func (r *Releaser) release(ctx context.Context, j heldJob) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	ours, err := false, errPanicked
	panics.Survive(r.o.Log, "overdue", "releasing a Job", func() { ours, err = r.patch(ctx, &j) })
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
			r.o.Log.Error("an overdue Job is not released yet", "namespace", j.namespace, "job", j.name, "error", err)
		}
	case ours:
		r.releases.WithLabelValues("released").Inc()
		r.o.Log.Warn("released a Job that no scheduler released in time", "namespace", j.namespace, "job", j.name,
			"latestStart", j.latest)
	}
}

// patch reports whether it was this call that released the Job.
func (r *Releaser) patch(ctx context.Context, j *heldJob) (ours bool, err error) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name}}
	err = r.o.Client.Patch(ctx, job, client.RawPatch(types.JSONPatchType, j.ReleasePatch(r.clock.Now())))
	if err == nil {
		return true, nil
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	// A failed test and a refusal by a policy look the same.
	var current batchv1.Job
	errGet := r.o.Client.Get(ctx, client.ObjectKeyFromObject(job), &current)
	if apierrors.IsNotFound(errGet) || errGet == nil &&
		(current.UID != j.UID || current.Labels[v1alpha1.LabelHeld] != "true") {
		return false, nil
	}
	return false, fmt.Errorf("releasing Job %s/%s: %w", j.namespace, j.name, err)
}
