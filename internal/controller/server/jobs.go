package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Submitted is the response of POST /ingest.
type Submitted struct {
	Job *batchv1.Job `json:"job"` // the Job as created
	// Expected is the decision that would be made now. The scheduler makes the actual decision later.
	Expected Expected `json:"expected"`
}

// postJob creates a Job from a submission if the caller is allowed to create Jobs in its namespace.
func (s *server) postJob(w http.ResponseWriter, r *http.Request, _ *query) error {
	if len(s.JobNamespaces) == 0 {
		return fail(http.StatusForbidden, "POST /ingest is disabled; see --ingest-namespace of kubenergy-controller")
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return unreadable(err)
	}
	asked, err := readSubmission(data)
	if err != nil {
		return err
	}
	asked.Namespace = cmp.Or(asked.Namespace, s.JobNamespaces[0])
	if err := asked.checkWorld(s.Worlds); err != nil {
		return err
	}
	if err := s.authorize(r.Context(), access.Attributes{
		Verb: "create", Group: batchv1.GroupName, Resource: "jobs", Namespace: asked.Namespace,
	}, "you are not allowed to create jobs.batch in namespace %s", asked.Namespace); err != nil {
		return err
	}
	if !slices.Contains(s.JobNamespaces, asked.Namespace) {
		return fail(http.StatusForbidden, "POST /ingest is not enabled for namespace %s", asked.Namespace)
	}
	if asked.EnergyPriority != nil && asked.Strategy == "" && s.benchmarked(r.Context(), asked.WorkloadClass) {
		asked.Strategy = "hybrid"
	}
	job, err := asked.kubeJob()
	if err != nil {
		return err
	}
	user := strings.ToValidUTF8(access.UserOf(r.Context()).Username, "?")
	job.Annotations[v1alpha1.AnnotationSubmittedBy] = shortened(user)
	expected := s.expect(r.Context(), job) // before the Job itself is counted
	if asked.EnergyPriority != nil && !policy.WeighsPerformance(expected.Strategy) {
		expected.addNote("EnergyPriority has no effect with the strategy " + expected.Strategy)
	}
	if err := s.Client.Create(r.Context(), job, client.FieldOwner("kubenergy-controller")); err != nil {
		return s.notCreated(job, err)
	}
	job.ManagedFields = nil
	return writeJSON(w, http.StatusCreated, Submitted{job, expected})
}

// benchmarked reports whether any node has benchmarks of a workload class. Without them, the strategy hybrid has no
// preference.
func (s *server) benchmarked(ctx context.Context, class string) bool {
	nodes, err := s.nodes(ctx)
	if err != nil {
		s.Log.Warn("Failed to look up benchmarks for POST /ingest", "error", err)
	}
	view := s.View()
	return class != "" && slices.ContainsFunc(nodes, func(l loadedNode) bool {
		node, _ := l.on(view)
		_, ok := node.Benchmarks[class]
		return ok
	})
}

func (s *server) notCreated(job *batchv1.Job, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		return fail(http.StatusConflict, "Job %s/%s already exists", job.Namespace, job.Name)
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return unfit("the API server rejected the Job: %.500s", err)
		// A quota, an admission policy, missing permissions of the controller, or an unknown namespace.
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		return fail(http.StatusForbidden, "the API server rejected the Job: %.500s", err)
	}
	unknown := apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !utilnet.IsConnectionRefused(err)
	if unknown || apierrors.IsTimeout(err) {
		return fail(http.StatusGatewayTimeout, "it is unknown whether the Job was created; submit it again with "+
			"the same ID, which creates it at most once")
	}
	s.Log.Warn("Failed to create a Job for POST /ingest", "namespace", job.Namespace, "name", job.Name, "error", err)
	return &failure{http.StatusServiceUnavailable, "the API server is currently unavailable", busyFor}
}

// kubeJob converts the submission to a Job. It sets the strategy but no node, because the scheduler has more recent
// data when it schedules the pod.
func (asked *submissionFields) kubeJob() (*batchv1.Job, error) {
	image, command := cmp.Or(asked.Image, JobImage), asked.Command
	duration, delay := time.Duration(asked.Duration), time.Duration(asked.AllowedDelay)
	if asked.Image == "" && len(command) == 0 {
		seconds := int64(math.Ceil(cmp.Or(duration, usualDuration).Seconds()))
		command = []string{"sleep", strconv.FormatInt(seconds, 10)}
	}
	annotations := map[string]string{}
	put := func(key, value string, said bool) {
		if said {
			annotations[key] = value
		}
	}
	strategy := asked.Strategy
	if asked.EnergyPriority != nil {
		strategy = cmp.Or(strategy, "carbon")
		put(v1alpha1.AnnotationPerformanceWeight, strconv.FormatFloat(1-*asked.EnergyPriority, 'g', 6, 64),
			policy.WeighsPerformance(strategy))
	}
	put(v1alpha1.AnnotationStrategy, strategy, strategy != "")
	put(v1alpha1.AnnotationExpectedDuration, duration.String(), duration > 0)
	put(v1alpha1.AnnotationAllowedDelay, delay.String(), delay > 0)
	if _, err := policy.ReadMarks(annotations); err != nil {
		return nil, unfit("%.300s", err)
	}
	put(v1alpha1.AnnotationBackend, asked.Backend, asked.Backend != "")
	labels := map[string]string{labelCreator: creator}
	if asked.WorkloadClass != "" {
		labels[v1alpha1.LabelWorkloadClass] = asked.WorkloadClass
	}
	const milli = 1000
	requests := v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(int64(math.Ceil(*asked.CPURequirement*milli)), resource.DecimalSI),
	}
	if !asked.Memory.IsZero() {
		requests[v1.ResourceMemory] = asked.Memory.Quantity
	}
	const retries, keep = 2, 24 * 60 * 60
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: asked.Namespace, Name: string(asked.ID), Labels: labels, Annotations: maps.Clone(annotations),
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(int32(retries)), TTLSecondsAfterFinished: new(int32(keep)),
			Template: v1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
				Spec: v1.PodSpec{
					SchedulerName: jobScheduler, RestartPolicy: v1.RestartPolicyNever,
					AutomountServiceAccountToken: new(false),
					SecurityContext: &v1.PodSecurityContext{
						RunAsNonRoot: new(true), RunAsUser: new(int64(nobodyUser)),
						SeccompProfile: &v1.SeccompProfile{Type: v1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []v1.Container{{
						Name: "job", Image: image, Command: command,
						Resources: v1.ResourceRequirements{Requests: requests},
						SecurityContext: &v1.SecurityContext{
							AllowPrivilegeEscalation: new(false),
							Capabilities:             &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
						},
					}},
				},
			},
		},
	}, nil
}

const (
	nobodyUser   = 65534
	labelCreator = "app.kubernetes.io/created-by"
	creator      = "kubenergy-ingest"
)

// Ingested reports whether a Job was created by POST /ingest.
func Ingested(job metav1.Object) bool { return job.GetLabels()[labelCreator] == creator }

// Backends of a submission.
const (
	Kubernetes = "kubernetes"
	Slurm      = "slurm"
	AnyBackend = "any"
)

// Expected is the decision that would be made about a Job now.
type Expected struct {
	Strategy string `json:"strategy"`
	// Node is the node with the lowest cost. It is empty if the strategy has no preference or no node fits.
	Node  string     `json:"node,omitempty"`
	Held  bool       `json:"held"`            // whether the Job would be held
	Start *time.Time `json:"start,omitempty"` // expected end of the hold
	// KWh and Grams are estimates for a run that starts on the node now.
	KWh   *float64 `json:"kWh,omitempty"`
	Grams *float64 `json:"gramsCO2e,omitempty"`
	// CarbonIntensity is the current carbon intensity of the node's site, in gCO2e per kWh.
	CarbonIntensity *float64 `json:"carbonIntensity,omitempty"`
	Note            string   `json:"note,omitempty"`
}

// freshFor is the maximum age of live power readings that are used for decisions.
const freshFor = 45 * time.Second

func (s *server) liveNow(now time.Time) map[string]energy.Watts {
	watts := map[string]energy.Watts{}
	for _, n := range s.Live.Nodes().Nodes {
		if age := now.Sub(n.AsOf); !n.Implausible && age <= freshFor && age >= -freshFor {
			watts[n.Node] = energy.Watts(n.Watts)
		}
	}
	return watts
}

// expect computes the expected decision, which is only informational. Failures are reported in its note and do not
// prevent the creation of the Job.
func (s *server) expect(ctx context.Context, job *batchv1.Job) Expected {
	now := s.Now()
	submitted := job.DeepCopy()
	submitted.CreationTimestamp = metav1.NewTime(now)
	work, err := policy.ReadJob(submitted)
	if err != nil {
		return Expected{Note: fmt.Sprintf("%.200s", err)}
	}
	view := s.View()
	wanted, settings := view.Settle(&work)
	expected := Expected{Strategy: settings.Strategy()}
	for _, f := range append(policy.FindKeys(job.Labels, job.Annotations), view.Find(now, &work)...) {
		expected.addNote(f.String())
	}
	if s.Worlds {
		expected.addNote("the cheapest backend is chosen within seconds; see annotation " + v1alpha1.AnnotationRunsOn)
	}
	if settings.Mode != v1alpha1.ModeEnforce {
		expected.addNote("the namespace is in mode " + string(settings.Mode) + ", so decisions are not applied")
	}
	if decision := view.Decide(now, wanted, settings); decision.Held(now) {
		expected.Held, expected.Start = true, new(decision.Window.Start.UTC())
	}
	if s.Worlds {
		return expected
	}
	nodes, err := s.nodes(ctx)
	if err != nil {
		s.Log.Warn("Failed to list nodes for POST /ingest", "error", err)
		expected.addNote("nodes are currently unavailable")
		return expected
	}
	wanted.Request = policy.PodRequest(&v1.Pod{Spec: job.Spec.Template.Spec})
	power := s.Live.Nodes()
	expected.choose(&kube.Placement{
		Now: now, View: view, Pod: &v1.Pod{Spec: job.Spec.Template.Spec}, Job: &wanted, Settings: &settings,
		Live: s.liveNow(now), Hot: power.Hot(now, 0),
	}, nodes)
	return expected
}
