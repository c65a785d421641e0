package karmada

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/internal/lab"
)

// seenPod is a pod in a member with times of the local clock, because timestamps of objects have a resolution of
// one second.
type seenPod struct {
	member, node string
	bound        time.Time
	ended        bool
}

// played contains the observed Jobs and pods of an arm.
type played struct {
	clock lab.Clock

	mu       sync.Mutex
	created  map[string]time.Time           // by Job
	released map[string]time.Time           // by Job, only for Jobs that were suspended
	pods     map[string]map[string]*seenPod // by Job and by member and name
	failed   []string
}

func newPlayed() *played {
	return &played{
		created: map[string]time.Time{}, released: map[string]time.Time{}, pods: map[string]map[string]*seenPod{},
	}
}

func (p *played) sawJob(o any) {
	j, ok := o.(*batchv1.Job)
	if !ok {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	suspended := j.Spec.Suspend != nil && *j.Spec.Suspend
	at, known := p.released[j.Name]
	switch {
	case suspended && !known:
		p.released[j.Name] = time.Time{}
	case !suspended && known && at.IsZero():
		p.released[j.Name] = now
	}
}

func (p *played) sawPod(member string, o any) {
	pod, ok := o.(*v1.Pod)
	name := ""
	if ok {
		name = pod.Labels[batchv1.JobNameLabel]
	}
	if name == "" || pod.Spec.NodeName == "" {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pods[name] == nil {
		p.pods[name] = map[string]*seenPod{}
	}
	key := member + "/" + pod.Name
	seen := p.pods[name][key]
	if seen == nil {
		seen = &seenPod{member: member, node: pod.Spec.NodeName, bound: now}
		p.pods[name][key] = seen
	}
	switch pod.Status.Phase {
	case v1.PodSucceeded:
		seen.ended = true
	case v1.PodFailed:
		p.failed = append(p.failed, key)
	}
}

// watch observes the Jobs in a namespace and their pods in the members.
func (p *played) watch(f *federation, namespace string) {
	follow := func(s *server, fn func(informers.SharedInformerFactory) cache.SharedIndexInformer, saw func(any)) {
		factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithNamespace(namespace))
		i := fn(factory)
		handler := cache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }}
		if _, err := i.AddEventHandler(handler); err != nil {
			f.t.Fatal(err)
		}
		factory.Start(f.t.Context().Done())
		factory.WaitForCacheSync(f.t.Context().Done())
	}
	follow(f.server, func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Batch().V1().Jobs().Informer()
	}, p.sawJob)
	for name, m := range f.members {
		follow(m, func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Core().V1().Pods().Informer()
		},
			func(o any) { p.sawPod(name, o) })
	}
}

// done returns the number of finished pods.
func (p *played) done() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pods := range p.pods {
		for _, pod := range pods {
			if pod.ended {
				n++
			}
		}
	}
	return n
}

// in returns the number of pods that were observed in a member.
func (p *played) in(member string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pods := range p.pods {
		for _, pod := range pods {
			if pod.member == member {
				n++
			}
		}
	}
	return n
}
