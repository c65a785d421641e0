package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// backends runs the jobs of POST /ingest in Slurm or in a Kubernetes cluster, depending on the cost. A job that has
// not started is moved at most once if the other backend becomes cheaper. The next step of a job is written to its
// annotations on disk before it is performed, so that each job runs exactly once even if this process crashes.
type backends struct {
	store   *standalone.Server
	view    func() *kube.View
	account *slurm.Client        // client with the account that runs these jobs in Slurm
	cluster kubernetes.Interface // nil if there is no cluster
	record  func(ledger.Record)
	now     func() time.Time
	moved   time.Time // time of the last check for moves
	first   int       // index of the first job of the next pass
}

// stepping is the maximum duration of a pass over all jobs. The next pass continues after the last processed job.
const stepping = 15 * time.Second

// Next steps of a submitted job.
const (
	toRelease = "release" // release a job that was submitted in state held
	toHold    = "hold"    // hold the job, to move it unless it has started
	toCancel  = "cancel"  // cancel the held job, then start it in the other backend
)

// place is the backend of a job and its ID there, which is empty before the job has been submitted.
type place struct{ backend, id string }

func placeOf(job *batchv1.Job) place {
	backend, id, _ := strings.Cut(job.Annotations[v1alpha1.AnnotationRunsOn], "/")
	return place{backend, id}
}

// scan is a pass over the jobs with the state of both backends.
type scan struct {
	*backends
	nodes  []slurm.Node
	jobs   []slurm.Job
	known  []machine // nodes of both backends, cached after the first use
	away   error     // error of the cluster; no further requests are sent in this pass
	moving bool
}

// machine is a node of a backend, in the representation of Kubernetes.
type machine struct {
	backend string
	node    v1.Node
	load    kube.Load
}

// look performs a pass over all jobs. It implements [slurm.Options.Seen].
func (w *backends) look(ctx context.Context, nodes []slurm.Node, jobs []slurm.Job) error {
	const pause = time.Minute
	if err := w.store.Writable(); err != nil {
		return &slurm.Trouble{Kind: slurm.NoState, Err: err}
	}
	s := &scan{backends: w, nodes: nodes, jobs: jobs, moving: w.now().Sub(w.moved) >= pause}
	if s.moving {
		w.moved = w.now()
	}
	var errs []error
	all, began := w.store.All(kindJob), time.Now()
	w.first = min(w.first, len(all))
	for i, o := range slices.Concat(all[w.first:], all[:w.first]) {
		if !server.Ingested(o) {
			continue
		}
		job := &batchv1.Job{}
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, job)
		if err == nil {
			err = s.step(ctx, job)
		}
		if err != nil && (s.away == nil || len(errs) == 0) { // report an unavailable cluster only once
			errs = append(errs, fmt.Errorf("job %s/%s: %w", o.GetNamespace(), o.GetName(), err))
		}
		if slurm.Unreachable(err) || time.Since(began) > stepping { // further requests would time out as well
			w.first = (w.first + i + 1) % len(all)
			break
		}
	}
	return errors.Join(errs...)
}

// step performs the next step of a job.
func (s *scan) step(ctx context.Context, job *batchv1.Job) error {
	at, next := placeOf(job), job.Annotations[v1alpha1.AnnotationNextStep]
	if at.backend == server.Kubernetes {
		if err := s.reach(nil); err != nil {
			return err
		}
	}
	if at.backend == "" {
		choice, err := s.choose(ctx, job)
		switch {
		case err != nil:
			return err
		case choice.best == "":
			return fmt.Errorf("no node can run the job, even on empty nodes (backend %s; an image or kubernetes needs "+
				"--ingest-kubeconfig)", backend(job))
		}
		return s.send(ctx, job, choice.best, record.Place)
	}
	if at.id == "" {
		return s.submit(ctx, job, at.backend)
	}
	current, err := s.state(ctx, job, at)
	if err != nil {
		return err
	}
	return s.follow(ctx, job, at, current, next)
}

// reach checks the availability of the cluster. err is the error of a request to it, or nil. If the request got no
// response, the error is stored and returned for the remaining pass, to avoid further timeouts.
func (s *scan) reach(err error) error {
	switch {
	case s.cluster == nil:
		return errors.New("its cluster is not configured anymore: --ingest-kubeconfig is missing")
	case s.away != nil:
		return s.away
	case err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown:
		s.away = err
	}
	return err
}

// follow performs the next step of a submitted job.
func (s *scan) follow(ctx context.Context, job *batchv1.Job, at place, current slurm.State, next string) error {
	switch {
	case current == slurm.Gone && next == toCancel, current == slurm.OnHold && (next == toCancel || next == toHold):
		return s.leave(ctx, job, at, current)
	case current == slurm.Gone, current == slurm.Ended:
		return s.store.Drop(kindJob, job.Namespace, job.Name) // it has run, and the ledger contains its usage
	case current == slurm.OnHold && next == toRelease:
		return s.account.SetHold(ctx, idOf(at.id), false)
	case next == toHold && current == slurm.Waiting: // the step was stored but possibly not performed
		return s.account.SetHold(ctx, idOf(at.id), true)
	case next != "":
		return s.note(job, at, "") // it is running or may start
	}
	return s.whileWaiting(ctx, job, at, current)
}

// whileWaiting starts or moves a waiting job if necessary.
func (s *scan) whileWaiting(ctx context.Context, job *batchv1.Job, at place, current slurm.State) error {
	switch {
	case current == slurm.Waiting && job.Annotations[v1alpha1.AnnotationRunNow] == "true":
		return s.startNow(ctx, idOf(at.id))
	case s.moving && (current == slurm.Waiting || at.backend == server.Kubernetes && current == slurm.OnHold):
		return s.reconsider(ctx, job, at)
	}
	return nil
}

// startNow resets the BeginTime of a Slurm job after a request to run it immediately.
func (s *scan) startNow(ctx context.Context, id int64) error {
	for i := range s.jobs {
		if j := &s.jobs[i]; int64(j.ID) == id && int64(j.Eligible) > s.now().Unix() {
			return s.account.SetBegin(ctx, id, s.now())
		}
	}
	return nil
}

func idOf(text string) int64 {
	id, _ := strconv.ParseInt(text, 10, 64)
	return id
}

// note stores the place and the next step of a job.
func (s *scan) note(job *batchv1.Job, at place, next string) error {
	job.Annotations[v1alpha1.AnnotationRunsOn] = strings.TrimSuffix(at.backend+"/"+at.id, "/")
	job.Annotations[v1alpha1.AnnotationNextStep] = next
	if next == "" {
		delete(job.Annotations, v1alpha1.AnnotationNextStep)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(job)
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{Object: content}
	if err := s.store.Put(kindJob, o); err != nil {
		return err
	}
	job.ResourceVersion = o.GetResourceVersion()
	return nil
}

// send stores and records the backend of a job, and submits the job.
func (s *scan) send(ctx context.Context, job *batchv1.Job, backend, action string) error {
	if err := s.note(job, place{backend: backend}, ""); err != nil {
		return err
	}
	s.record(ledger.Record{
		Action: action, At: s.now(), Namespace: job.Namespace, OwnerKind: "Job", Owner: job.Name, UID: string(job.UID),
		Strategy: job.Annotations[v1alpha1.AnnotationStrategy], Reason: "Cheapest", Message: "in " + backend,
	})
	return s.submit(ctx, job, backend)
}

// submit submits a job unless it has already been submitted.
func (s *scan) submit(ctx context.Context, job *batchv1.Job, backend string) error {
	if backend == server.Kubernetes {
		jobs := s.cluster.BatchV1().Jobs(job.Namespace)
		_, err := jobs.Create(ctx, s.forCluster(job), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			var current *batchv1.Job
			if current, err = jobs.Get(ctx, job.Name, metav1.GetOptions{}); err == nil && !ours(current, job) {
				return errors.New("the cluster has another Job with this name: delete it or choose another name")
			}
		}
		if err := s.reach(err); err != nil {
			return err
		}
		return s.note(job, place{backend, job.Name}, "")
	}
	name := "kubenergy-" + string(job.UID)
	for i := range s.jobs {
		if s.jobs[i].Name == name { // it was submitted before a crash
			return s.note(job, place{backend, strconv.FormatInt(int64(s.jobs[i].ID), 10)}, toRelease)
		}
	}
	id, err := s.account.Submit(ctx, &slurm.Submission{
		Name: name, Account: job.Namespace, Marks: s.marks(job), Command: job.Spec.Template.Spec.Containers[0].Command,
		Request: policy.PodRequest(&v1.Pod{Spec: job.Spec.Template.Spec}),
	})
	if err != nil {
		return err
	}
	if err := s.note(job, place{backend, strconv.FormatInt(id, 10)}, toRelease); err != nil {
		return err
	}
	return s.account.SetHold(ctx, id, false)
}

// forCluster returns the Job to create in the cluster.
func (s *scan) forCluster(job *batchv1.Job) *batchv1.Job {
	marks := s.marks(job)
	marks[v1alpha1.AnnotationSubmittedBy] = byUs(job)
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, Labels: job.Labels, Annotations: marks,
		},
		Spec: job.Spec,
	}
}

// byUs returns the value of the annotation that identifies the Job in the cluster.
func byUs(job *batchv1.Job) string { return "kubenergy-slurm/" + string(job.UID) }

// ours reports whether a Job in the cluster was created for job, rather than another Job with the same name.
func ours(current, job *batchv1.Job) bool {
	return current.Annotations[v1alpha1.AnnotationSubmittedBy] == byUs(job)
}

// marks returns the annotations of a job for a backend. The allowed delay is reduced by the elapsed time, because a
// backend counts from the submission to it.
func (s *scan) marks(job *batchv1.Job) map[string]string {
	all := maps.Clone(job.Annotations)
	if delay, err := time.ParseDuration(all[v1alpha1.AnnotationAllowedDelay]); err == nil {
		left := delay - max(0, s.now().Sub(job.CreationTimestamp.Time))
		all[v1alpha1.AnnotationAllowedDelay] = max(0, left).Truncate(time.Second).String()
	}
	for _, key := range []string{
		v1alpha1.AnnotationRunsOn, v1alpha1.AnnotationNextStep, v1alpha1.AnnotationMoved, v1alpha1.AnnotationBackend,
		v1alpha1.AnnotationSubmittedBy,
	} {
		delete(all, key)
	}
	return all
}

// state returns the state of a job in its backend. A suspended Job in the cluster that has never run counts as
// held.
func (s *scan) state(ctx context.Context, job *batchv1.Job, at place) (slurm.State, error) {
	if at.backend == server.Slurm {
		for i := range s.jobs {
			if int64(s.jobs[i].ID) == idOf(at.id) {
				return s.jobs[i].Does(), nil
			}
		}
		return slurm.Gone, nil
	}
	current, err := s.cluster.BatchV1().Jobs(job.Namespace).Get(ctx, at.id, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && !ours(current, job):
		return slurm.Gone, nil
	case err != nil:
		return slurm.Started, s.reach(err)
	case current.Status.CompletionTime != nil || policy.Ended(current):
		return slurm.Ended, nil
	case waits(current):
		return slurm.OnHold, nil
	}
	return slurm.Started, nil
}

// waits reports whether a Job in the cluster is suspended and has never run.
func waits(job *batchv1.Job) bool {
	return job.Spec.Suspend != nil && *job.Spec.Suspend && job.Status.StartTime == nil && job.Status.Active == 0
}

// leave removes a held job from its backend and sends it to the other one.
func (s *scan) leave(ctx context.Context, job *batchv1.Job, at place, current slurm.State) error {
	if err := s.reach(nil); err != nil && job.Annotations[v1alpha1.AnnotationNextStep] == toHold {
		return errors.Join(err, s.note(job, at, toRelease)) // do not move it
	} else if err != nil {
		return err
	}
	if err := s.note(job, at, toCancel); err != nil {
		return err
	}
	other := server.Kubernetes
	switch {
	case at.backend == server.Kubernetes:
		other = server.Slurm
		gone, err := s.remove(ctx, job)
		if err != nil {
			return err
		}
		if !gone {
			return s.note(job, at, "")
		}
	case current == slurm.OnHold: // the next pass verifies the cancellation
		return s.account.Cancel(ctx, idOf(at.id))
	}
	job.Annotations[v1alpha1.AnnotationMoved] = "true"
	return s.send(ctx, job, other, record.Move)
}

// remove deletes a suspended Job from the cluster. It returns false if the Job has been released in the meantime.
func (s *scan) remove(ctx context.Context, job *batchv1.Job) (gone bool, err error) {
	jobs := s.cluster.BatchV1().Jobs(job.Namespace)
	current, err := jobs.Get(ctx, job.Name, metav1.GetOptions{})
	switch {
	case err == nil && !ours(current, job):
		return true, nil
	case err == nil && !waits(current):
		return false, nil
	case err == nil:
		err = jobs.Delete(ctx, job.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &current.UID, ResourceVersion: &current.ResourceVersion},
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
	}
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	}
	return err == nil, s.reach(err)
}

// reconsider moves a job to the other backend if it has capacity and is significantly cheaper. Only jobs that may
// run in any backend are moved, and only once.
func (s *scan) reconsider(ctx context.Context, job *batchv1.Job, at place) error {
	const minGain = 0.05
	if job.Annotations[v1alpha1.AnnotationMoved] != "" || backend(job) != server.AnyBackend {
		return nil
	}
	choice, err := s.choose(ctx, job)
	here, there := choice.cost[at.backend], choice.cost[choice.best] // cost on an empty node if there is no capacity
	if err != nil || !choice.room || choice.best == at.backend || here-there <= minGain*math.Abs(here) {
		return err
	}
	if at.backend == server.Kubernetes {
		return s.leave(ctx, job, at, slurm.OnHold)
	}
	if err := s.note(job, at, toHold); err != nil {
		return err
	}
	return s.account.SetHold(ctx, idOf(at.id), true)
}

func backend(job *batchv1.Job) string {
	return cmp.Or(job.Annotations[v1alpha1.AnnotationBackend], server.AnyBackend)
}
