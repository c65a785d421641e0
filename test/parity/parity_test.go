package parity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

const (
	jobs      = 220
	minChoice = 5 // minimum number of feasible nodes for every decision
)

var strategies = []string{"least-allocated", "round-robin", "energy", "carbon", "carbon+window"}

func TestSimulatorAndSchedulerChooseTheSameNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	scenario := scenarioOf(t)
	p := start(t, scenario)
	for _, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) { p.compare(t, strategy) })
	}
}

// scenarioOf creates a scenario with two sites in different zones, the 24 machines of a preset distributed over
// both sites and one day of jobs. A third of the machines have a convex power curve. Times are whole seconds, as in
// Kubernetes objects.
func scenarioOf(t *testing.T) *sim.Scenario {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	begin := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	s := &sim.Scenario{Start: begin}
	for i, zone := range []grid.Zone{"AA", "BB"} {
		values := make([]float64, 96)
		for h := range values {
			values[h] = 300 + 150*math.Sin(2*math.Pi*float64(h+8*i)/24) + 40*rng.Float64()
		}
		series, err := grid.NewSeries(begin, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		s.Sites = append(s.Sites, &sched.Site{
			Name: "site-" + string('a'+rune(i)), Zone: zone, PUE: 1.1 + 0.2*float64(i),
			Carbon: grid.Signal{Series: series},
		})
	}
	nodes, err := workload.Nodes("demo24", 0, s.Sites...)
	if err != nil {
		t.Fatal(err)
	}
	convex := map[string]*energy.Profile{}
	for i := range nodes {
		n := &nodes[i]
		n.Site = s.Sites[i%2]
		if i%3 == 0 {
			if convex[n.Profile.Name] == nil {
				p := *n.Profile
				p.Name, p.Exponent = p.Name+"-convex", 1.4
				convex[n.Profile.Name] = &p
			}
			n.Profile = convex[n.Profile.Name]
		}
	}
	s.Nodes = sim.StayAwake(nodes) // as on the control plane
	var at time.Duration
	for i := range jobs {
		at += time.Duration(rng.ExpFloat64() * float64(5*time.Minute)).Truncate(time.Second)
		s.Jobs = append(s.Jobs, sched.Job{
			ID: fmt.Sprintf("job-%03d", i), Submitted: begin.Add(at), Duration: time.Duration(600+rng.IntN(3*3600)) *
				time.Second,
			Request: sched.Resources{
				MilliCPU: []int64{250, 500, 1000, 2000, 3500}[rng.IntN(5)], Memory: (1 + rng.Int64N(8)) << 28,
			},
			AllowedDelay: time.Duration(rng.IntN(7)) * time.Hour,
		})
	}
	return s
}

// plane is a control plane with one scheduler profile per strategy. The scheduler uses the clock of the scenario.
type plane struct {
	scenario  *sim.Scenario
	client    kubernetes.Interface
	scheduler *scheduler.Scheduler
	now       atomic.Pointer[time.Time]
}

func start(t *testing.T, s *sim.Scenario) *plane {
	t.Helper()
	c := cluster.Start(t, lab.Options{})
	p := &plane{scenario: s, client: c.Client}
	p.now.Store(&s.Start)
	var specs []lab.NodeSpec
	var profiles []*energy.Profile
	for i := range s.Nodes {
		n := &s.Nodes[i]
		specs = append(specs, lab.NodeSpecOf(n))
		if !slices.Contains(profiles, n.Profile) {
			profiles = append(profiles, n.Profile)
		}
	}
	// Presets return one profile for each kind of machine, so equal names imply equal profiles.
	if err := c.AddNodes(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	scheduling := &lab.Scheduling{
		Dir: c.Dir, Sites: s.Sites, Profiles: profiles, Strategies: map[string]string{}, Policy: s.Policy,
		Clock:   func() time.Time { return *p.now.Load() },
		OnReady: func(s *scheduler.Scheduler) { p.scheduler = s },
	}
	for i, strategy := range strategies {
		scheduling.Strategies[profile(i)] = strategy
	}
	stop, err := scheduling.Start(t.Context(), c.Cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return p
}

func profile(i int) string { return fmt.Sprintf("strategy-%d", i) }

// step is the start or the end of a job in the simulation.
type step struct {
	at    time.Time
	begin bool
	job   int
}

func (p *plane) compare(t *testing.T, name string) {
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(t.Context(), p.scenario, name, strategy)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for i, o := range result.Outcomes {
		if o.Placed.Node == "" {
			t.Fatalf("simulator did not place job %s", p.scenario.Jobs[i].ID)
		}
		steps = append(steps, step{o.Start, true, i}, step{o.Finish, false, i})
	}
	slices.SortFunc(steps, func(a, b step) int {
		switch {
		case !a.at.Equal(b.at):
			return a.at.Compare(b.at)
		case a.begin != b.begin && a.begin:
			return 1 // finished jobs release capacity for starting ones
		case a.begin != b.begin:
			return -1
		}
		return a.job - b.job
	})
	schedulerName := profile(slices.Index(strategies, name))
	free := map[string]*sched.Node{}
	for i := range p.scenario.Nodes {
		n := p.scenario.Nodes[i]
		free[n.Name] = &n
	}
	least, differ, running, used := math.MaxInt, 0, 0, map[string]bool{}
	for _, s := range steps {
		p.now.Store(&s.at)
		job, want := &p.scenario.Jobs[s.job], result.Outcomes[s.job].Placed.Node
		if !s.begin {
			p.end(t, job)
			free[want].Free = free[want].Free.Add(job.Request)
			running--
			p.settle(t, running)
			continue
		}
		feasible := 0
		for _, n := range free {
			if job.Fits(n) {
				feasible++
			}
		}
		least = min(least, feasible)
		got := p.begin(t, job, schedulerName)
		running++
		used[got] = true
		free[want].Free = free[want].Free.Sub(job.Request)
		if got != want {
			if differ++; differ <= 5 {
				t.Errorf("job %s at %s: scheduler chose %s, simulator chose %s",
					job.ID, s.at.Format(time.TimeOnly), got,
					want)
			}
		}
	}
	if differ > 0 {
		t.Fatalf("%d of %d decisions differ", differ, len(p.scenario.Jobs))
	}
	if least < minChoice {
		t.Errorf("a decision had %d feasible nodes, want at least %d", least, minChoice)
	}
	t.Logf("%d decisions agree; each had at least %d feasible nodes of %d; %d nodes were used",
		len(p.scenario.Jobs), least,
		len(p.scenario.Nodes), len(used))
}

// begin creates the pod of a job and returns the node that the scheduler bound it to.
func (p *plane) begin(t *testing.T, j *sched.Job, schedulerName string) string {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: j.ID,
			Annotations: map[string]string{v1alpha1.AnnotationExpectedDuration: j.Duration.String()},
		},
		Spec: corev1.PodSpec{
			SchedulerName: schedulerName, TerminationGracePeriodSeconds: ptr.To[int64](0),
			AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{
				Name: "job", Image: "simulated", Resources: corev1.ResourceRequirements{Requests: requests(j)},
			}},
		},
	}
	if _, err := p.client.CoreV1().Pods(pod.Namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var node string
	kit.Await(t, time.Minute, pod.Name+" is bound", func(ctx context.Context) (bool, error) {
		got, err := p.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		node = got.Spec.NodeName
		return node != "", nil
	})
	return node
}

func requests(j *sched.Job) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(j.Request.MilliCPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(j.Request.Memory, resource.BinarySI),
	}
}

func (p *plane) end(t *testing.T, j *sched.Job) {
	t.Helper()
	err := p.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(t.Context(), j.ID,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// settle waits until the scheduler cache contains the given number of pods.
func (p *plane) settle(t *testing.T, pods int) {
	t.Helper()
	kit.Await(t, time.Minute, fmt.Sprintf("the scheduler cache contains %d pods", pods),
		func(context.Context) (bool, error) {
			n, err := p.scheduler.Cache.PodCount()
			return n == pods, cmp.Or(err, fmt.Errorf("scheduler cache contains %d pods", n))
		})
}

// TestHoldsAgree verifies that the hold loop computes the same window from a Job as the simulator from a trace
// entry.
func TestHoldsAgree(t *testing.T) {
	s := scenarioOf(t)
	view, err := kube.NewView(s.Sites, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	strategy, err := strategy.New("carbon+window")
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(t.Context(), s, "carbon+window", strategy)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for i := range s.Jobs {
		j := &s.Jobs[i]
		object := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: j.ID, CreationTimestamp: metav1.NewTime(j.Submitted),
			Annotations: map[string]string{
				v1alpha1.AnnotationExpectedDuration: j.Duration.String(),
				v1alpha1.AnnotationAllowedDelay:     j.AllowedDelay.String(),
			},
		}}
		object.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests(j)}}}
		work, err := policy.ReadJob(object)
		if err != nil {
			t.Fatal(err)
		}
		converted, _ := view.Settle(&work)
		d := strategy.Plan(&sched.Snapshot{
			Now: j.Submitted, Queue: []sched.Job{converted}, Sites: view.Sites(), Policy: s.Policy,
		})[0]
		want := result.Outcomes[i].HeldUntil()
		switch {
		case want.IsZero() && d.Held(j.Submitted):
			t.Errorf("job %s: held until %v, want it started immediately as in the simulation", j.ID, d.Window.Start)
		case !want.IsZero() && !d.Window.Start.Equal(want):
			t.Errorf("job %s: held until %v, want %v as in the simulation", j.ID, d.Window.Start, want)
		case !want.IsZero():
			held++
		}
	}
	if held < jobs/4 {
		t.Errorf("only %d jobs were held", held)
	}
	t.Logf("%d holds of %d jobs agree", held, len(s.Jobs))
}
