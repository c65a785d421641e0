package experiment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/stat"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubectl/pkg/util/podutils"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// probe is the name of a stress pod that verifies that the contestant binds pods.
const probe = "probe"

// arm is a turn of a contestant.
type arm struct {
	*Runner
	*Contestant
	number, round        int
	namespace, scheduler string // scheduler is the schedulerName of pods
	process              *process
	nodes                []sched.Node
	wanted               int // number of pods that must be ready before the measurement
	began                time.Time

	mu          sync.Mutex
	pods        map[types.UID]*pod
	lately, all []float64      // latencies in milliseconds since the last sample, and in total
	answers     map[string]int // number of responses by pod since the last sample
	failed      int
}

// pod contains the observed states of a pod, by the clock of this machine.
type pod struct {
	*corev1.Pod
	load                         *Load
	gone                         bool
	created, bound, ready, ended time.Time
}

func (p *pod) class() string { return p.Labels[v1alpha1.LabelWorkloadClass] }

func (p *pod) isReady() bool { return !p.gone && podutils.IsPodReady(p.Pod) }

// run runs the load with a contestant in a new namespace.
func (a *arm) run(ctx context.Context) (*report.ExperimentTrial, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: a.namespace, Labels: map[string]string{v1alpha1.LabelExperiment: a.Runner.run},
	}}
	if _, err := a.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if err := a.readNodes(ctx); err != nil {
		return nil, err
	}
	defer func() { a.process.stop() }()
	if err := a.startScheduler(ctx); err != nil {
		return nil, err
	}
	a.pods, a.answers = map[types.UID]*pod{}, map[string]int{}
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithNamespace(a.namespace))
	defer factory.Shutdown()
	defer cancel()
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.see(o, false) },
		UpdateFunc: func(_, o any) { a.see(o, false) },
		DeleteFunc: func(o any) { a.see(o, true) },
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	// Jobs alone do not verify that the contestant binds pods.
	first := Load{
		Name: probe, Count: 1, Utilisation: 1, CPU: resource.MustParse("10m"), Memory: resource.MustParse("64Mi"),
	}
	for _, l := range append([]Load{first}, a.File.Load...) {
		if l.Replicas > 0 || l.Utilisation > 0 {
			if err := a.deploy(ctx, &l); err != nil {
				return nil, err
			}
		}
	}
	err = eventually(ctx, "the load is ready (does it fit on the nodes?)", func() (bool, error) {
		return len(a.ready()) >= a.wanted, a.process.lives()
	})
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, a.waiting(ctx))
	}
	err = a.client.AppsV1().Deployments(a.namespace).Delete(ctx, app(probe, 0), metav1.DeleteOptions{})
	if err != nil {
		return nil, err
	}
	return a.measure(ctx)
}

// waiting returns the reasons why pods are not ready, including those of the contestant.
func (a *arm) waiting(ctx context.Context) string {
	reasons := map[string]bool{}
	for _, namespace := range []string{a.namespace, a.namespace + "-scheduler"} {
		pods, err := a.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		for i := 0; err == nil && i < len(pods.Items); i++ {
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					reasons[c.Message] = true
				}
			}
			for _, c := range pods.Items[i].Status.ContainerStatuses {
				if c.State.Waiting != nil {
					reasons[c.State.Waiting.Reason+" "+c.Image] = true
				}
			}
		}
	}
	if len(reasons) == 0 {
		return ""
	}
	return "; pods are waiting: " + strings.Join(slices.Sorted(maps.Keys(reasons)), "; ")
}

// measure runs the warm-up, and then measures while it sends requests and causes disturbances.
func (a *arm) measure(whole context.Context) (*report.ExperimentTrial, error) {
	group, ctx := errgroup.WithContext(whole)
	a.began = time.Now().Add(a.File.WarmUp.Duration)
	measuring, stop := context.WithDeadline(ctx, a.began.Add(a.File.Duration.Duration))
	defer stop()
	for i := range a.File.Load {
		if l := &a.File.Load[i]; l.PerSecond > 0 {
			group.Go(func() error { a.ask(measuring, l, i); return nil })
		}
	}
	if !kube.Pause(ctx, a.File.WarmUp.Duration) {
		return nil, context.Cause(ctx)
	}
	a.mu.Lock()
	for _, p := range a.pods {
		p.created = time.Time{} // excludes pods of the warm-up from the latencies
	}
	a.lately, a.answers, a.all, a.failed = nil, map[string]int{}, nil, 0
	a.mu.Unlock()
	meanwhile := func(do func(context.Context) error) {
		group.Go(func() error {
			if err := do(measuring); measuring.Err() == nil {
				return err
			}
			return nil // errors after the end of the arm are ignored
		})
	}
	for i := range a.File.Load {
		meanwhile(func(ctx context.Context) error { return a.submit(ctx, &a.File.Load[i]) })
	}
	for _, d := range []*Disturbance{&a.File.Kill, &a.File.Scale} {
		if d.Every.Duration > 0 {
			meanwhile(func(ctx context.Context) error { return a.disturb(ctx, d) })
		}
	}
	if a.File.target == TargetLab {
		meanwhile(a.notify)
	}
	trial := &report.ExperimentTrial{
		Contestant: a.Name, Round: a.round, Arm: a.number, Start: a.began.UTC(), Values: map[string]float64{},
	}
	group.Go(func() error { return a.sample(measuring, trial) })
	err := group.Wait()
	a.sumUp(trial)
	return trial, cmp.Or(err, whole.Err())
}

func (a *arm) see(object any, gone bool) {
	o, ok := kube.EventObject[*corev1.Pod](object)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[o.UID]
	if p == nil {
		p = &pod{load: &Load{Utilisation: 1}, created: time.Now()}
		for i := range a.File.Load {
			if l := &a.File.Load[i]; l.Name == o.Labels[v1alpha1.LabelExperimentLoad] {
				p.load = l
			}
		}
		a.pods[o.UID] = p
	}
	p.Pod, p.gone = o, p.gone || gone || o.DeletionTimestamp != nil
	for at, found := range map[*time.Time]bool{
		&p.bound: o.Spec.NodeName != "", &p.ready: p.isReady(), &p.ended: o.Status.Phase == corev1.PodSucceeded,
	} {
		if found && at.IsZero() {
			*at = time.Now()
		}
	}
}

// some returns copies of the pods that match a condition.
func (a *arm) some(is func(*pod) bool) (pods []pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		if is(p) {
			pods = append(pods, *p)
		}
	}
	return pods
}

// ready returns the names of the ready pods of services and stress.
func (a *arm) ready() []string {
	pods := a.some(func(p *pod) bool { return p.isReady() && p.load.jobs == nil })
	return slices.Sorted(slices.Values(sliceutil.Map(pods, func(p pod) string { return p.Name })))
}

func (a *arm) ended(app string) bool {
	is := func(p *pod) bool { return p.Labels[v1alpha1.LabelExperimentApp] == app && !p.ended.IsZero() }
	return len(a.some(is)) > 0
}

// ask sends requests through the API server's proxy at random times that depend on the seed. It does not wait for
// responses to earlier requests.
func (a *arm) ask(ctx context.Context, l *Load, entry int) {
	random := rand.New(rand.NewPCG(a.File.Seed, uint64(a.round<<16|entry)))
	var running sync.WaitGroup
	defer running.Wait()
	for at := time.Now(); kube.Pause(ctx, time.Until(at)); {
		due, service := at, app(l.Name, random.IntN(l.Count))
		running.Go(func() {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			pod, err := a.client.CoreV1().Services(a.namespace).ProxyGet("http", service, "80", "/", nil).DoRaw(limited)
			took := 1e3 * time.Since(due).Seconds()
			a.mu.Lock()
			defer a.mu.Unlock()
			switch {
			case ctx.Err() != nil: // the arm has ended
			case err != nil:
				a.failed++
			default:
				a.all, a.lately = append(a.all, took), append(a.lately, took)
				a.answers[string(pod)]++
			}
		})
		at = at.Add(time.Duration(random.ExpFloat64() / l.PerSecond * float64(time.Second)))
	}
}

// readNodes reads the nodes as KubEnergy's strategies see them.
func (a *arm) readNodes(ctx context.Context) error {
	view, _, err := kube.ListView(ctx, a.config, "", policy.BuiltIn()) // strategies work without these objects
	if err != nil {
		return err
	}
	list, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	known := 0
	for i := range list.Items {
		n, ok := (&kube.Load{}).Node(view, &list.Items[i])
		if ok {
			known++
		}
		a.nodes = append(a.nodes, n)
	}
	a.meter = fmt.Sprintf("none: modelled from the power profiles of %d of %d nodes", known, len(a.nodes))
	return a.checkClasses()
}

// checkClasses rejects a workload class without a benchmark on any node of the lab, because its Jobs would run for
// the same time everywhere.
func (a *arm) checkClasses() error {
	classes := map[string]energy.Benchmark{}
	for i := range a.nodes {
		maps.Copy(classes, a.nodes[i].Benchmarks)
	}
	for _, l := range a.File.Load {
		if _, ok := classes[l.Class]; !ok && l.Class != "" && a.File.target == TargetLab {
			return fmt.Errorf("load: %s: no node has a benchmark of the class %q%s", l.Name, l.Class,
				spelling.DidYouMean(l.Class, slices.Collect(maps.Keys(classes))))
		}
	}
	return nil
}

// sample takes samples until ctx is done.
func (a *arm) sample(ctx context.Context, trial *report.ExperimentTrial) error {
	every := max(time.Second, (a.File.Duration.Duration / 900).Round(time.Second))
	before, last := benchmark.ReadUsage(), a.began
	cpu := a.process.cpu()
	for more := true; more; {
		more = kube.Pause(ctx, every)
		now, used := time.Now(), a.process.cpu()
		s := report.ExperimentSample{
			Seconds: now.Sub(a.began).Seconds(), Scheduler: max(0, used-cpu) / now.Sub(last).Seconds(),
		}
		trial.Values["schedulerCPUSeconds"] += max(0, used-cpu)
		grams := a.power(&s, now.Sub(last))
		if a.Meter != nil {
			watts, what, err := a.Meter(context.WithoutCancel(ctx)) // also for the last sample of the arm
			if err != nil {
				return fmt.Errorf("reading meters: %w", err)
			}
			grams *= watts / max(s.Watts, 1e-9)
			s.Watts, a.meter = watts, what
		}
		trial.Values["energyJoules"] += s.Watts * now.Sub(last).Seconds()
		trial.Values["emissionsGrams"] += grams
		trial.Samples = append(trial.Samples, s)
		last, cpu = now, used
		if err := cmp.Or(a.process.lives(), a.monitor(ctx)); err != nil {
			return err
		}
	}
	// A sum of 0 means that it is unknown.
	maps.DeleteFunc(trial.Values, func(_ string, sum float64) bool { return sum == 0 })
	trial.Seconds = last.Sub(a.began).Seconds()
	trial.Others = before.Others()
	return nil
}

// monitor writes the power of simulated nodes to the annotations of the hybrid scheduler's monitor.
func (a *arm) monitor(ctx context.Context) error {
	for i := 0; a.File.Monitor && a.File.target == TargetLab && i < len(a.nodes); i++ {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"energy.thesis.io/current-watts":"%.2f",`+
			`"energy.thesis.io/last-updated":"%d"}}}`, float64(a.nodes[i].Live), time.Now().Unix())
		_, err := a.client.CoreV1().Nodes().Patch(ctx, a.nodes[i].Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// use returns the number of cores that a pod uses according to the model.
func (a *arm) use(p *pod, step time.Duration) float64 {
	if p.load.Replicas > 0 {
		return p.load.Work.Seconds() * float64(a.answers[p.Name]) / step.Seconds()
	}
	cores := p.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64()
	if p.load.jobs != nil {
		return cores
	}
	return cores * p.load.Utilisation
}

// power models the power of nodes and the emissions of a step from the usage of their pods, which is the CPU time
// of requests for services, the utilisation for stress, the requests for Jobs, and the benchmark on the node for
// Jobs with a class. The CPU time of the contestant is charged at the watts per core of the first node. It also
// aggregates requests.
func (a *arm) power(s *report.ExperimentSample, step time.Duration) (grams float64) {
	use, extra := map[string]float64{}, map[string]energy.Watts{}
	a.mu.Lock()
	s.Requests = len(a.lately)
	s.P50, s.P99 = report.Quantile(a.lately, 0.5), report.Quantile(a.lately, 0.99)
	for _, p := range a.pods {
		i := slices.IndexFunc(a.nodes, func(n sched.Node) bool { return n.Name == p.Spec.NodeName })
		if p.gone || i < 0 || !p.ended.IsZero() {
			continue
		}
		cores := a.use(p, step)
		s.Cores += cores
		if p.isReady() {
			s.Pods++
		}
		if b, ok := a.nodes[i].Benchmarks[p.class()]; ok {
			extra[p.Spec.NodeName] += b.Power - b.Idle
		} else {
			use[p.Spec.NodeName] += cores
		}
	}
	a.lately, a.answers = nil, map[string]int{}
	a.mu.Unlock()
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.Profile == nil {
			continue
		}
		cores := float64(n.Capacity.MilliCPU) / 1000
		n.Live = n.Profile.Power(use[n.Name]/cores) + extra[n.Name]
		watts := float64(n.Live)
		if i == 0 {
			watts += s.Scheduler * float64(n.Profile.Power(1)-n.Profile.Power(0)) / cores
		}
		s.Watts += watts
		if now, carbon := time.Now(), n.Site.Carbon.Series; carbon != nil && carbon.Covers(now, now) {
			grams += watts * step.Seconds() / 3.6e6 * n.Facility() * carbon.At(now)
		}
	}
	return grams
}

// sumUp sets the metrics of the arm's pods and requests.
func (a *arm) sumUp(trial *report.ExperimentTrial) {
	v := trial.Values
	took := map[string][]float64{"request": a.all}
	a.mu.Lock()
	defer a.mu.Unlock()
	v["podsPending"], v["jobsFinished"] = 0, 0
	var overruns []float64
	for _, p := range a.pods {
		if !p.ended.IsZero() {
			v["jobsFinished"]++
			v["makespanSeconds"] = max(v["makespanSeconds"], p.ended.Sub(a.began).Seconds())
			if run, err := strconv.ParseFloat(p.Annotations[v1alpha1.AnnotationLabRunSeconds], 64); err == nil {
				overruns = append(overruns, p.ended.Sub(p.bound).Seconds()-run)
			}
		}
		if p.created.IsZero() {
			continue
		}
		if p.bound.IsZero() && !p.gone {
			v["podsPending"]++
		}
		for name, at := range map[string]time.Time{"scheduling": p.bound, "start": p.ready} {
			if !at.IsZero() {
				took[name] = append(took[name], 1e3*at.Sub(p.created).Seconds())
			}
		}
	}
	if len(overruns) > 0 {
		trial.Overrun = stat.Mean(overruns, nil)
	}
	for name, all := range took {
		if len(all) > 0 {
			v[name+"P50Ms"], v[name+"P99Ms"] = report.Quantile(all, 0.5), report.Quantile(all, 0.99)
		}
	}
	if asked := len(a.all) + a.failed; asked > 0 {
		v["requestsFailedShare"] = float64(a.failed) / float64(asked)
	}
	cores := sliceutil.Map(trial.Samples, func(s report.ExperimentSample) float64 { return s.Cores })
	watts := sliceutil.Map(trial.Samples, func(s report.ExperimentSample) float64 { return s.Watts })
	v["meanBusyCores"], v["cpuEnergyCorrelation"] = stat.Mean(cores, nil), stat.Correlation(cores, watts, nil)
	maps.DeleteFunc(v, func(_ string, value float64) bool { return math.IsNaN(value) }) // of constants
}
