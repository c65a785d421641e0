package lab

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Stock is the name of the trial with the default profile of kube-scheduler.
const Stock = "stock"

// Trial is one strategy of a replay. All trials of a replay run concurrently, each in its own namespace and on its
// own nodes. The replay then takes equally long for any number of strategies, so less compression is needed.
type Trial struct {
	Strategy string // Stock, or a name that strategy.New accepts
	Sleeps   bool   // whether its machines are put to sleep and woken

	namespace string // also the name prefix and the label value of its nodes
	holds     bool
	machines  *Machines
}

// labelTrial restricts the pods of a trial to its own nodes.
const labelTrial = "kubenergy.io/lab-trial"

// annotationJob is the index of the pod's job in the scenario.
const annotationJob = "kubenergy.io/lab-job"

// Replay replays a scenario as Kubernetes Jobs with the real scheduler of a cluster.
type Replay struct {
	Cluster  *Cluster
	Scenario *sim.Scenario // with jobs sorted by submit time
	Factor   float64
	Trials   []Trial
	Progress func(Progress) // called about once a second; may be nil
	// Simulated contains the simulated results of the trials. If it is set, the replay is aborted as soon as pods are
	// known to start too much later.
	Simulated []*sim.Result

	client     kubernetes.Interface
	clock      Clock
	scheduling *Scheduling
}

// Progress is the progress of a replay.
type Progress struct {
	Trace  time.Time // current time of the trace
	Trials []TrialProgress
	Done   bool // whether all jobs have finished
}

// TrialProgress counts the jobs of a trial.
type TrialProgress struct {
	Strategy                         string
	Held, Pending, Running, Finished int
}

// Trials parses the names of strategies. If machines sleep, it adds a trial of the first strategy without sleep as
// a baseline for the others.
func Trials(names []string, sleep bool) ([]Trial, error) {
	if sleep && len(names) > 0 {
		names = slices.Insert(slices.Clone(names), 0, names[0])
	}
	var trials []Trial
	for i, name := range names {
		t := Trial{Strategy: name, Sleeps: sleep && i > 0, namespace: fmt.Sprintf("trial-%d", i)}
		if name != Stock {
			greedy, err := strategy.New(name)
			if err != nil {
				return nil, fmt.Errorf("%w; the lab also supports %q", err, Stock)
			}
			t.holds = greedy.Holds()
			if when := strategy.When(name); t.holds && when != HoldRule && !plansJointly(name) {
				return nil, fmt.Errorf("strategy %q: the lab's hold loop only supports the rules %q, guarded, plan "+
					"and capacity", name, HoldRule)
			}
		}
		trials = append(trials, t)
	}
	return trials, nil
}

// Prepare adds the nodes and namespaces of all trials. It must be called before the scheduler starts.
func (r *Replay) Prepare(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(r.Cluster.Config())
	if err != nil {
		return err
	}
	r.client = client
	for _, t := range r.Trials {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.namespace}}
		if _, err := r.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the namespace of %s: %w", t.Strategy, err)
		}
	}
	if err := r.addNodes(ctx); err != nil {
		return err
	}
	return r.waitForServiceAccounts(ctx)
}

// addNodes adds the nodes of the scenario once for each trial.
func (r *Replay) addNodes(ctx context.Context) error {
	var specs []NodeSpec
	for _, t := range r.Trials {
		for i := range r.Scenario.Nodes {
			spec := NodeSpecOf(&r.Scenario.Nodes[i])
			spec.Name = t.node(spec.Name)
			spec.Labels[labelTrial] = t.namespace
			if t.Sleeps {
				spec.Labels[v1alpha1.LabelMaySleep] = "true"
			}
			specs = append(specs, spec)
		}
	}
	return r.Cluster.AddNodes(ctx, specs)
}

// NodeSpecOf converts a node of the scenario to a simulated node, with labels for its site and its power profile.
func NodeSpecOf(n *sched.Node) NodeSpec {
	labels := map[string]string{v1alpha1.LabelPowerProfile: n.Profile.Name, v1alpha1.LabelSite: n.Site.Name}
	maps.Copy(labels, n.Labels)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(n.Capacity.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(n.Capacity.Memory, resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(1000, resource.DecimalSI), // effectively unlimited
	}
	if n.Capacity.GPU > 0 {
		capacity["nvidia.com/gpu"] = *resource.NewQuantity(n.Capacity.GPU, resource.DecimalSI)
	}
	return NodeSpec{Name: n.Name, Labels: labels, Capacity: capacity}
}

func (r *Replay) waitForServiceAccounts(ctx context.Context) error {
	for _, t := range r.Trials {
		err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true,
			func(ctx context.Context) (bool, error) {
				_, err := r.client.CoreV1().ServiceAccounts(t.namespace).Get(ctx, "default", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return false, nil
				}
				return err == nil, err
			})
		if err != nil {
			return fmt.Errorf("waiting for the service account of %s: %w", t.Strategy, err)
		}
	}
	return nil
}

// Run submits every job when it is due and waits until all have finished. It returns a result per trial, computed
// with the simulator's model from the observed placements and starts.
func (r *Replay) Run(ctx context.Context, clock Clock) ([]*sim.Result, error) {
	r.clock = clock
	watch, err := newWatch(ctx, r)
	if err != nil {
		return nil, err
	}
	defer watch.stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, groupCtx := errgroup.WithContext(ctx)
	for k := range r.Trials {
		if t := &r.Trials[k]; t.Sleeps {
			group.Go(func() error { return r.sleep(groupCtx, t) })
		}
	}
	group.Go(func() error { return r.submit(groupCtx, watch) })
	group.Go(func() error {
		defer cancel()
		return r.wait(groupCtx, watch)
	})
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("replaying the trace: %w", err)
	}
	watch.stop() // stop recording observations
	return r.results(watch)
}

// submit creates the Jobs of all trials when they are due.
func (r *Replay) submit(ctx context.Context, w *watch) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range r.Scenario.Jobs {
		select {
		case <-groupCtx.Done():
			return group.Wait()
		case <-time.After(time.Until(r.clock.ToWall(r.Scenario.Jobs[i].Submitted))):
		}
		for k := range r.Trials {
			group.Go(func() error {
				job := r.kubeJob(&r.Trials[k], i, w)
				_, err := r.client.BatchV1().Jobs(job.Namespace).Create(groupCtx, job, metav1.CreateOptions{})
				return err
			})
		}
	}
	return group.Wait()
}

// kubeJob returns the Kubernetes Job for a job of the trace in a trial.
func (r *Replay) kubeJob(t *Trial, i int, w *watch) *batchv1.Job {
	j := &r.Scenario.Jobs[i]
	job := kube.TraceJob(fmt.Sprintf("job-%04d", i), j, r.clock.Shrink)
	t.place(job, w.request(r.clock.Shrink(j.Duration)))
	job.Annotations[annotationJob], job.Spec.Template.Annotations[annotationJob] = strconv.Itoa(i), strconv.Itoa(i)
	if strings.Contains(t.Strategy, "/") {
		job.Spec.Template.Annotations[v1alpha1.AnnotationStrategy] = t.Strategy
	}
	if t.holds && j.AllowedDelay > 0 {
		job.Annotations[v1alpha1.AnnotationAllowedDelay] = r.clock.Shrink(j.AllowedDelay).String()
		if plansJointly(t.Strategy) {
			job.Annotations[v1alpha1.AnnotationStrategy] = t.Strategy
		}
		if !j.FinishBy.IsZero() {
			job.Annotations[v1alpha1.AnnotationFinishBy] = r.clock.ToWall(j.FinishBy).Format(time.RFC3339)
		}
	}
	return job
}

// place sets the scheduler, the nodes and the simulated run time of a Job of the trial.
func (t *Trial) place(job *batchv1.Job, run time.Duration) {
	job.Namespace = t.namespace
	pod := &job.Spec.Template
	pod.Annotations[v1alpha1.AnnotationLabRunSeconds] = RunSeconds(run)
	pod.Spec.SchedulerName = t.profile()
	selector := map[string]string{labelTrial: t.namespace}
	maps.Copy(selector, pod.Spec.NodeSelector)
	pod.Spec.NodeSelector = selector
	pod.Spec.Containers[0].Image = "simulated"
}

// node returns the name of a node of the scenario in the trial.
func (t *Trial) node(name string) string { return t.namespace + "-" + name }

// String returns the name of the trial.
func (t *Trial) String() string {
	if t.Sleeps {
		return t.Strategy + " with sleep"
	}
	return t.Strategy
}

// profile returns the schedulerName of the trial's pods.
func (t *Trial) profile() string {
	if t.Strategy == Stock {
		return corev1.DefaultSchedulerName
	}
	return "kubenergy-" + t.namespace
}

// wait reports progress until every job of every trial has finished.
func (r *Replay) wait(ctx context.Context, w *watch) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	waited, last := make([]float64, len(r.Trials)), r.clock.Trace
	for {
		progress := w.progress()
		for k, s := range r.Simulated {
			waited[k] += float64(progress.Trials[k].Pending) * max(0, float64(progress.Trace.Sub(last)))
			if waited[k] > float64(startDelay(s)+span(r.Scenario)/maxLag)*float64(len(r.Scenario.Jobs)) {
				return errBusy
			}
		}
		last = timeutil.Later(last, progress.Trace)
		if r.Progress != nil {
			r.Progress(progress)
		}
		if progress.Done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for jobs, %s: %w", progress, context.Cause(ctx))
		case <-r.Cluster.Done():
			return fmt.Errorf("a component of the control plane has stopped, %s", progress)
		case <-ticker.C:
		}
	}
}

// String formats the progress in one line.
func (p Progress) String() string {
	var b strings.Builder
	b.WriteString(p.Trace.Format("Jan 02 15:04"))
	for _, t := range p.Trials {
		fmt.Fprintf(&b, " | %s: %d held, %d pending, %d running, %d done", t.Strategy, t.Held, t.Pending, t.Running,
			t.Finished)
	}
	return b.String()
}

// results converts the observations to results. Node and start time are as observed in Kubernetes, but the run time
// is taken from the trace. Otherwise, the latencies of the control plane would be counted as hours of work in
// compressed time.
func (r *Replay) results(w *watch) ([]*sim.Result, error) {
	var results []*sim.Result
	for k := range r.Trials {
		t, scenario := &r.Trials[k], r.Scenario.StayingAwake()
		var power []sim.PowerChange
		if m := t.machines; m != nil {
			scenario = r.Scenario
			if m.Forced+m.Killed > 0 {
				return nil, fmt.Errorf("%s: %d machines were forced off and %d pods were killed with their machine", t,
					m.Forced, m.Killed)
			}
			for _, c := range m.Changes {
				c.Node = strings.TrimPrefix(c.Node, t.node(""))
				c.At = timeutil.Later(r.clock.ToTrace(c.At), scenario.Start)
				power = append(power, c)
			}
		}
		byName := make(map[string]*sched.Node, len(r.Scenario.Nodes))
		for i := range r.Scenario.Nodes {
			byName[r.Scenario.Nodes[i].Name] = &r.Scenario.Nodes[i]
		}
		var placements []sim.Placement
		for i, seen := range w.trials[t.namespace] {
			j := &r.Scenario.Jobs[i]
			name := strings.TrimPrefix(seen.node, t.node(""))
			n := byName[name]
			if seen.lost {
				return nil, fmt.Errorf("a pod of job %s of %s failed or was evicted", j.ID, t)
			}
			if n == nil {
				return nil, fmt.Errorf("job %s of %s ran on %q, which is not one of its nodes", j.ID, t.Strategy,
					seen.node)
			}
			p := sim.Placement{Job: i, Node: name, Start: timeutil.Later(r.clock.ToTrace(seen.bound), j.Submitted)}
			p.Released, p.Finish = j.Submitted, p.Start.Add(n.Runtime(j))
			if !seen.released.IsZero() {
				p.Released = timeutil.Later(r.clock.ToTrace(seen.released), j.Submitted)
			}
			if seen.planned { // others were only suspended until the loop processed them
				p.Hold = p.Released
			}
			placements = append(placements, p)
		}
		result, err := sim.Replay(scenario, t.Strategy, placements, power)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	if _, err := sim.Align(results...); err != nil {
		return nil, err
	}
	return results, nil
}
