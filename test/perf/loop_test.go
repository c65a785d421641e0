package perf

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
)

// finish replaces the binder, so that no API server is needed. Its PostBind is the last step of the cycle of a
// bound pod.
type finish struct{}

const finishName = "Finish"

var finished = make(chan *v1.Pod, 1)

func (finish) Name() string { return finishName }

func (finish) Bind(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status { return nil }

func (finish) PostBind(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) { finished <- pod }

// loop consists of the scheduling loop, queue, cache and framework of kube-scheduler with nodes that were added to
// its cache directly. It measures the complete cost of a pod in the scheduler from queueing to binding, without the
// API server.
type loop struct {
	*scheduler.Scheduler
	bound []*v1.Pod // oldest first
	most  int       // maximum number of pods that exist at the same time
	made  int
}

func decode(t testing.TB, text string) *config.KubeSchedulerConfiguration {
	t.Helper()
	obj, gvk, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := obj.(*config.KubeSchedulerConfiguration)
	c.APIVersion = gvk.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// newLoop returns a loop with the profiles of a configuration and a limit of concurrently running pods.
func newLoop(t testing.TB, text string, registry frameworkruntime.Registry, nodes, pods int) *loop {
	t.Helper()
	cfg := decode(t, text)
	for i := range cfg.Profiles {
		all := &cfg.Profiles[i].Plugins.MultiPoint
		all.Enabled = slices.DeleteFunc(all.Enabled, func(p config.Plugin) bool {
			return p.Name == names.DefaultBinder
		})
		all.Enabled = append(all.Enabled, config.Plugin{Name: finishName})
	}
	ctx := t.Context()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	s, err := scheduler.New(ctx, client, factory, nil,
		func(string) events.EventRecorderLogger { return &events.FakeRecorder{} },
		scheduler.WithProfiles(cfg.Profiles...), scheduler.WithFrameworkOutOfTreeRegistry(registry))
	if err == nil {
		err = fallback.Install(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.SchedulingQueue.Close()
		for _, f := range s.Profiles {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for i := range nodes {
		s.Cache.AddNode(klog.Background(), newNode(i))
	}
	return &loop{Scheduler: s, most: pods}
}

// cost is the cost of a number of pods. Garbage is only collected between runs, because the collector uses idle
// processors and its cost cannot be assigned to a run. The allocated bytes are measured instead.
type cost struct {
	Pods  int           `json:"pods"`
	Cycle time.Duration `json:"cycleNanoseconds"` // wall-clock time of all scheduling cycles
	CPU   time.Duration `json:"cpuNanoseconds"`   // CPU time of the process from queueing to binding
	Bytes uint64        `json:"allocatedBytes"`
}

// over returns the costs per pod relative to those of another run.
func (c *cost) over(other *cost) (cycle, cpu, bytes float64) {
	per := float64(other.Pods) / float64(c.Pods)
	return per * float64(c.Cycle) / float64(other.Cycle), per * float64(c.CPU) / float64(other.CPU),
		per * float64(c.Bytes) / float64(other.Bytes)
}

// run schedules n pods sequentially.
func (l *loop) run(t testing.TB, n int, pod func(name string) *v1.Pod) (c cost) {
	t.Helper()
	pods := make([]*v1.Pod, n)
	for i := range pods {
		l.made++
		pods[i] = pod(fmt.Sprint("pod-", l.made))
	}
	ctx, log := t.Context(), klog.Background()
	c.Pods = n
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime(t)
	for _, p := range pods {
		l.SchedulingQueue.Add(ctx, p)
		start := time.Now()
		l.ScheduleOne(ctx)
		c.Cycle += time.Since(start)
		l.settle(t, log)
	}
	c.CPU = cpuTime(t) - begin
	runtime.ReadMemStats(&after)
	c.Bytes = after.TotalAlloc - before.TotalAlloc
	return c
}

// settle waits for the pod to be bound, adds it to the cache and removes the oldest pod if the limit is exceeded.
func (l *loop) settle(t testing.TB, log klog.Logger) {
	t.Helper()
	select {
	case p := <-finished:
		l.bound = append(l.bound, p)
		if err := l.Cache.AddPod(log, p); err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("timed out waiting for a pod to be bound")
	}
	if len(l.bound) > l.most {
		if err := l.Cache.RemovePod(log, l.bound[0]); err != nil {
			t.Fatal(err)
		}
		l.bound = l.bound[1:]
	}
}

// cpuTime returns the CPU time that the process has used so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
