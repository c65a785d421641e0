// Package learn learns the run times of the Jobs of each namespace and stores them in its JobProfile.
package learn

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// RunTimes learns the run times of completed Jobs. Its only state is in JobProfiles: each write adds run times together
// with the last completion, so that a run time is neither lost nor learnt twice if the process is killed. Jobs are
// learnt in the order of completion times, and of UIDs among equal ones. Therefore the result does not depend on
// restarts.
type RunTimes struct {
	Client client.Client // without a cache
	Leads  func() bool
	Now    func() time.Time
	Log    *slog.Logger

	mu      sync.Mutex
	pending map[types.UID]run
}

// A run is a completed Job.
type run struct {
	uid   types.UID
	ended metav1.Time
	ran   time.Duration
	work  policy.Work
}

const (
	// every is the interval between two writes.
	every = 5 * time.Minute
	// settle is the time after a completion at which all earlier completions are expected to be known.
	settle = 30 * time.Second
	// forgotten is the age of completions that are not learnt any more.
	forgotten = 24 * time.Hour
)

// Saw must be called for each Job that an informer adds or updates. Jobs that have failed or are never held, for
// example because another system starts them, are not learnt. Neither are Jobs that a budget has suspended, because
// their start time is that of the last resumption.
func (r *RunTimes) Saw(o client.Object) {
	j, ok := o.(*batchv1.Job)
	if !ok || j.Status.StartTime == nil || j.Status.CompletionTime == nil || !completed(j) {
		return
	}
	if _, never := policy.NeverHeldJob(j); never || j.Annotations[v1alpha1.AnnotationBudgetReleased] != "" ||
		j.Annotations[v1alpha1.AnnotationBudgetActions] != "" {
		return
	}
	work, _ := policy.ReadJob(j) // invalid annotations do not matter
	if work.Elastic() {
		return // its run time depends on the number of pods at each time
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == nil {
		r.pending = map[types.UID]run{}
	}
	ended := *j.Status.CompletionTime
	m := &work.Marks
	r.pending[j.UID] = run{j.UID, ended, m.Worked + max(0, ended.Sub(j.Status.StartTime.Time)-m.Repeats()), work}
}

func completed(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobComplete && c.Status == v1.ConditionTrue
	})
}

// Lost must be called for each deleted object. The run times of deleted Jobs are learnt too.
func (*RunTimes) Lost(client.Object) {}

// Run learns completed Jobs until ctx is done.
func (r *RunTimes) Run(ctx context.Context) error {
	reported := map[string]string{}
	for kube.Pause(ctx, every) {
		due := r.due()
		if !r.Leads() {
			continue
		}
		for namespace, runs := range due {
			var err error
			daemon.Round(ctx, func() { err = r.learn(ctx, namespace, runs) })
			if text := fmt.Sprint(err); err != nil && reported[namespace] != text {
				reported[namespace] = text
				r.Log.Warn("Failed to store the run times of Jobs, retrying", "namespace", namespace, "error", err)
			} else if err == nil {
				delete(reported, namespace)
			}
		}
	}
	return nil
}

// due returns the runs that can be learnt by namespace, in order.
func (r *RunTimes) due() map[string][]run {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]run{}
	for uid, one := range r.pending {
		switch age := r.Now().Sub(one.ended.Time); {
		case age >= forgotten:
			delete(r.pending, uid)
		case age >= settle:
			all[one.work.Namespace] = append(all[one.work.Namespace], one)
		}
	}
	for _, runs := range all {
		slices.SortFunc(runs, func(a, b run) int { return order(a.ended, a.uid, b.ended, b.uid) })
	}
	return all
}

func order(a metav1.Time, x types.UID, b metav1.Time, y types.UID) int {
	return cmp.Or(a.Compare(b.Time), cmp.Compare(x, y))
}

// learn adds the runs of a namespace to its JobProfile, except for runs that it contains already.
func (r *RunTimes) learn(ctx context.Context, namespace string, runs []run) error {
	p := &v1alpha1.JobProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.PolicyName}}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
	if apierrors.IsNotFound(err) {
		err = r.Client.Create(ctx, p)
	}
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, v1.NamespaceTerminatingCause):
		r.Log.Info("Run times are not learnt: the namespace or the kind JobProfile does not exist",
			"namespace", namespace, "runs", len(runs), "error", err)
		r.done(runs)
		return nil
	case err != nil:
		return err
	}
	s := &p.Status
	forget, news := p.Spec.ForgetBefore, false
	if !forget.Equal(s.ForgottenBefore) {
		*s, news = v1alpha1.JobProfileStatus{ForgottenBefore: forget, LastCompletion: forget}, true
	}
	learnt, err := policy.ReadJobProfile(p)
	if err != nil {
		r.Log.Error("The run times of a namespace are invalid and reset", "namespace", namespace, "error", err)
		*s = v1alpha1.JobProfileStatus{
			ForgottenBefore: s.ForgottenBefore, LastCompletion: s.LastCompletion, LastUID: s.LastUID,
		}
		if learnt, err = policy.ReadJobProfile(p); err != nil {
			return err
		}
	}
	for i := range runs {
		one := &runs[i]
		if s.LastCompletion == nil || order(one.ended, one.uid, *s.LastCompletion, s.LastUID) > 0 {
			learnt.Learn(&one.work, one.ran)
			s.LastCompletion, s.LastUID, news = &one.ended, one.uid, true
		}
	}
	if learnt.Write(p); news {
		if err := r.Client.Status().Update(ctx, p); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	r.done(runs)
	return nil
}

// done removes runs that need not be learnt any more.
func (r *RunTimes) done(runs []run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range runs {
		delete(r.pending, runs[i].uid)
	}
}
