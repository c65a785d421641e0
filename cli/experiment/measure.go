package experiment

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sched"
)

// arm is a contestant's turn.
type arm struct {
	*Runner
	round                int
	namespace, scheduler string // the latter is what pods ask for
	process              *process
	nodes                []sched.Node
	wanted               int // pods that are to be ready before anything is measured
	began                time.Time

	mu            sync.Mutex
	pods          map[types.UID]*pod
	lately        []float64      // milliseconds of requests since the last sample
	answers       map[string]int // of pods, since then
	all           []float64
	asked, failed int
}

// pod is what was seen of a pod, by this machine's clock.
type pod struct {
	name, app, class, node       string
	load                         *Load // nil: of a Job
	cores                        float64
	expected                     time.Duration
	created, bound, ready, ended time.Time
	isReady, gone, told          bool
}

// run has a contestant schedule the load in a namespace of its own.
func (a *arm) run(ctx context.Context, c *Contestant) (trial *report.ExperimentTrial, err error) {
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
	if a.process, err = a.startScheduler(ctx, c); err != nil {
		return nil, err
	}
	if a.process != nil {
		defer a.process.stop()
	}
	a.pods = map[types.UID]*pod{}
	factory := informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithNamespace(a.namespace))
	defer factory.Shutdown()
	defer cancel()
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { a.see(o, false) },
		UpdateFunc: func(_, o any) { a.see(o, false) },
		DeleteFunc: func(o any) { a.see(o, true) },
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for i := range a.File.Load {
		if l := &a.File.Load[i]; l.Replicas > 0 || l.Utilisation > 0 {
			if err := a.deploy(ctx, l); err != nil {
				return nil, err
			}
		}
	}
	err = eventually(ctx, "the load is ready: is there room for it?", func() (bool, error) {
		return len(a.ready()) >= a.wanted, nil
	})
	if err != nil {
		return nil, err
	}
	return a.measure(ctx)
}

// measure warms up, then measures for the arm's duration while requests come and disturbances happen.
func (a *arm) measure(whole context.Context) (*report.ExperimentTrial, error) {
	group, ctx := errgroup.WithContext(whole)
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	a.began = time.Now().Add(a.File.WarmUp.Duration)
	for i := range a.File.Load {
		if l := &a.File.Load[i]; l.PerSecond > 0 {
			group.Go(func() error { a.ask(asking, l, i); return nil })
		}
	}
	if !a.wait(ctx, a.began, nil) {
		return nil, context.Cause(ctx)
	}
	a.mu.Lock()
	for _, p := range a.pods {
		p.created = time.Time{} // those that the warm-up has seen are not in the latencies
	}
	a.lately, a.answers, a.all, a.asked, a.failed = nil, map[string]int{}, nil, 0, 0
	a.mu.Unlock()
	measuring, stop := context.WithDeadline(ctx, a.began.Add(a.File.Duration.Duration))
	defer stop()
	for i := range a.File.Load {
		group.Go(func() error { return a.submit(measuring, &a.File.Load[i]) })
	}
	for _, part := range []struct {
		is bool
		do func(context.Context) error
	}{{a.Target == TargetLab, a.tell}, {a.File.Kill != nil, a.kill}, {a.File.Scale != nil, a.scale}} {
		if part.is {
			group.Go(func() error { return part.do(measuring) })
		}
	}
	trial := &report.ExperimentTrial{Start: a.began.UTC(), Values: map[string]float64{}}
	group.Go(func() error {
		defer stopAsking()
		return a.sample(measuring, trial)
	})
	err := group.Wait()
	a.sumUp(trial)
	return trial, cmp.Or(err, whole.Err())
}

// wait waits until it is time and done, which may be nil, reports true; false: ctx has ended.
func (a *arm) wait(ctx context.Context, until time.Time, done func() bool) bool {
	for pause := time.Until(until); ; pause = 50 * time.Millisecond {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
		}
		if done == nil || done() {
			return ctx.Err() == nil
		}
	}
}

func (a *arm) see(object any, gone bool) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	o, ok := object.(*corev1.Pod)
	if !ok || o.Labels[v1alpha1.LabelExperimentLoad] == "" {
		return
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pods[o.UID]
	if p == nil {
		p = &pod{
			name: o.Name, app: o.Labels[v1alpha1.LabelExperimentApp], class: o.Labels[v1alpha1.LabelWorkloadClass],
			created: now, cores: o.Spec.Containers[0].Resources.Requests.Cpu().AsApproximateFloat64(),
		}
		p.expected, _ = time.ParseDuration(o.Annotations[v1alpha1.AnnotationExpectedDuration])
		for i := range a.File.Load {
			if l := &a.File.Load[i]; l.Name == o.Labels[v1alpha1.LabelExperimentLoad] && p.expected == 0 {
				p.load = l
			}
		}
		a.pods[o.UID] = p
	}
	first := func(at *time.Time, is bool) {
		if is && at.IsZero() {
			*at = now
		}
	}
	p.node, p.gone = o.Spec.NodeName, p.gone || gone || o.DeletionTimestamp != nil
	p.isReady = !p.gone && slices.ContainsFunc(o.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	first(&p.bound, p.node != "")
	first(&p.ready, p.isReady)
	first(&p.ended, o.Status.Phase == corev1.PodSucceeded)
}

// some returns the pods of which something is true.
func (a *arm) some(is func(*pod) bool) (pods []*pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.pods {
		if is(p) {
			pods = append(pods, p)
		}
	}
	return pods
}

// ready returns the names of the ready pods of services and stress.
func (a *arm) ready() (names []string) {
	for _, p := range a.some(func(p *pod) bool { return p.isReady && p.load != nil }) {
		names = append(names, p.name)
	}
	slices.Sort(names)
	return names
}

func (a *arm) ended(app string) bool {
	return len(a.some(func(p *pod) bool { return p.app == app && !p.ended.IsZero() })) > 0
}

// untold returns pods of a class that have been bound since the last call.
func (a *arm) untold() []*pod {
	return a.some(func(p *pod) bool {
		is := p.class != "" && p.node != "" && !p.told
		p.told = p.told || is
		return is
	})
}

// ask sends requests through the API server's proxy, at random moments that the seed says, whether or not earlier ones
// have been answered.
func (a *arm) ask(ctx context.Context, l *Load, entry int) {
	random := rand.New(rand.NewPCG(a.File.Seed, uint64(a.round<<16|entry)))
	var running sync.WaitGroup
	defer running.Wait()
	for at := time.Now(); a.wait(ctx, at, nil); {
		due, service := at, app(l.Name, random.IntN(l.Count))
		running.Go(func() {
			limited, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			pod, err := a.client.CoreV1().Services(a.namespace).ProxyGet("http", service, "80", "/", nil).DoRaw(limited)
			if ctx.Err() == nil {
				a.answered(string(pod), float64(time.Since(due))/float64(time.Millisecond), err)
			}
		})
		at = at.Add(time.Duration(random.ExpFloat64() / l.PerSecond * float64(time.Second)))
	}
}

func (a *arm) answered(pod string, milliseconds float64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if err != nil {
		a.failed++
		return
	}
	a.all, a.lately = append(a.all, milliseconds), append(a.lately, milliseconds)
	if a.answers != nil {
		a.answers[pod]++
	}
}

// readNodes reads the nodes as our strategies see them.
func (a *arm) readNodes(ctx context.Context) error {
	list, err := a.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	known := 0
	for i := range list.Items {
		capacity := kube.Allocatable(&list.Items[i])
		n, ok := a.objects.View().Node(&list.Items[i], capacity, capacity, 0)
		if ok {
			known++
		}
		a.nodes = append(a.nodes, n)
	}
	a.Manifest.Meter = fmt.Sprintf("none: modelled from the power profiles of %d of %d nodes", known, len(a.nodes))
	return nil
}

// cpu is the CPU time that the contestant has used, if it is a process of this machine.
func (a *arm) cpu() (used time.Duration, ok bool) {
	if a.process == nil {
		return 0, false
	}
	return cpuOf(a.process.cmd.Process.Pid)
}

// sample measures until ctx ends.
func (a *arm) sample(ctx context.Context, trial *report.ExperimentTrial) error {
	every := max(time.Second, (a.File.Duration.Duration / 900).Round(time.Second))
	before, last := readUsage(), a.began
	cpu, _ := a.cpu()
	v := trial.Values
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
		now := time.Now()
		step := now.Sub(last)
		last = now
		s := report.ExperimentSample{Seconds: now.Sub(a.began).Seconds()}
		if used, ok := a.cpu(); ok {
			s.Scheduler = (used - cpu).Seconds() / step.Seconds()
			v["schedulerCPUSeconds"] += (used - cpu).Seconds()
			cpu = used
		}
		grams := a.power(&s, step)
		if a.Meter != nil {
			if watts, what, err := a.Meter(ctx); err == nil {
				grams *= watts / max(s.Watts, 1e-9)
				s.Watts, a.Manifest.Meter = watts, what
			} else if ctx.Err() == nil {
				return fmt.Errorf("reading meters: %w", err)
			}
		}
		v["energyJoules"] += s.Watts * step.Seconds()
		v["emissionsGrams"] += grams
		trial.Samples = append(trial.Samples, s)
		if err := a.watch(ctx); err != nil {
			return err
		}
	}
	maps.DeleteFunc(v, func(_ string, sum float64) bool { return sum == 0 }) // neither a meter nor a model knows it
	trial.Seconds = last.Sub(a.began).Seconds()
	trial.Others = before.others(last.Sub(a.began))
	return nil
}

// watch finds a contestant that has ended, and tells simulated nodes' watts where the hybrid scheduler's monitor does.
func (a *arm) watch(ctx context.Context) error {
	if a.process != nil {
		if err := a.process.lives(); err != nil {
			return err
		}
	}
	for i := range a.nodes {
		if !a.File.Monitor || a.Target != TargetLab {
			break
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"energy.thesis.io/current-watts":"%.2f",`+
			`"energy.thesis.io/last-updated":"%d"}}}`, float64(a.nodes[i].Live), time.Now().Unix())
		_, err := a.client.CoreV1().Nodes().Patch(ctx, a.nodes[i].Name, types.MergePatchType, patch,
			metav1.PatchOptions{})
		if err != nil {
			return unlessEnded(ctx, err)
		}
	}
	return nil
}

// use is how many cores a pod uses, by the model.
func (a *arm) use(p *pod, step time.Duration) float64 {
	switch {
	case p.load == nil:
		return p.cores
	case p.load.Replicas > 0:
		return p.load.Work.Seconds() * float64(a.answers[p.name]) / step.Seconds()
	}
	return p.cores * p.load.Utilisation
}

// power models what the nodes draw, and the grams of a step, from what their pods use: what a service's requests take,
// what a stress is told to, what a Job requests; of a class of work what its benchmark on that node drew. The
// contestant's own CPU is charged at the first node's watts per core. It also sums up requests.
func (a *arm) power(s *report.ExperimentSample, step time.Duration) (grams float64) {
	use, extra := map[string]float64{}, map[string]float64{}
	byName := map[string]*sched.Node{}
	for i := range a.nodes {
		byName[a.nodes[i].Name] = &a.nodes[i]
	}
	a.mu.Lock()
	s.Requests = len(a.lately)
	s.P50, s.P99 = report.Quantile(a.lately, 0.5), report.Quantile(a.lately, 0.99)
	for _, p := range a.pods {
		n := byName[p.node]
		if p.gone || n == nil || !p.ended.IsZero() {
			continue
		}
		cores := a.use(p, step)
		s.Cores += cores
		if p.isReady {
			s.Pods++
		}
		if b, ok := n.Benchmarks[p.class]; ok {
			extra[p.node] += float64(b.Power - b.Idle)
		} else {
			use[p.node] += cores
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
		n.Live = n.Profile.Power(use[n.Name]/cores) + energy.Watts(extra[n.Name])
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

// sumUp fills in the figures of the arm's pods and requests.
func (a *arm) sumUp(trial *report.ExperimentTrial) {
	v := trial.Values
	took := map[string][]float64{"request": a.all}
	a.mu.Lock()
	defer a.mu.Unlock()
	v["podsPending"] = 0
	for i := range a.File.Load {
		if len(a.File.Load[i].jobs()) > 0 {
			v["jobsFinished"] = 0
		}
	}
	for _, p := range a.pods {
		if !p.ended.IsZero() {
			v["jobsFinished"]++
			v["makespanSeconds"] = max(v["makespanSeconds"], p.ended.Sub(a.began).Seconds())
		}
		if p.created.IsZero() {
			continue
		}
		if p.node == "" && !p.gone {
			v["podsPending"]++
		}
		for name, at := range map[string]time.Time{"scheduling": p.bound, "start": p.ready} {
			if !at.IsZero() {
				took[name] = append(took[name], float64(at.Sub(p.created))/float64(time.Millisecond))
			}
		}
	}
	for name, all := range took {
		if len(all) > 0 {
			v[name+"P50Ms"], v[name+"P99Ms"] = report.Quantile(all, 0.5), report.Quantile(all, 0.99)
		}
	}
	if a.asked > 0 {
		v["requestsFailedShare"] = float64(a.failed) / float64(a.asked)
	}
	var cores, watts []float64
	for _, s := range trial.Samples {
		cores, watts = append(cores, s.Cores), append(watts, s.Watts)
		v["meanBusyCores"] += s.Cores / float64(len(trial.Samples))
	}
	if r, ok := report.Correlation(cores, watts); ok {
		v["cpuEnergyCorrelation"] = r
	}
}
