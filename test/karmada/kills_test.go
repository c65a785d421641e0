package karmada

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/test/kit"
)

var points = flag.Int("points", 50, "number of points at which TestKills kills kubenergy-karmada")

const (
	takeover = 30 * time.Second // maximum time for karmada-scheduler to bind the remaining bindings
	overdue  = 2 * time.Second  // maximum duration of a suspended binding after the deadline
)

// sent is a Job that was created around a kill, with the observed times of its binding.
type sent struct {
	namespace, name string
	created, latest time.Time // latest is the deadline of a held Job, otherwise zero
	free, bound     time.Time
	wasHeld         bool
}

// look records which bindings have been released and bound.
func (p *point) look() {
	p.t.Helper()
	for _, namespace := range []string{"free", "held"} {
		list, err := p.dynamic.Resource(bindings).Namespace(namespace).List(p.t.Context(), metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			for _, s := range p.all {
				if s.namespace == namespace && s.name+"-job" == o.GetName() {
					s.see(o, time.Now())
				}
			}
		}
	}
}

func (s *sent) see(binding *unstructured.Unstructured, now time.Time) {
	suspended, _, _ := unstructured.NestedBool(binding.Object, "spec", "suspension", "scheduling")
	targets, _, _ := unstructured.NestedSlice(binding.Object, "spec", "clusters")
	s.wasHeld = s.wasHeld || suspended
	if !suspended && s.free.IsZero() {
		s.free = now
	}
	if len(targets) > 0 && s.bound.IsZero() {
		s.bound = now
	}
}

// holder returns the holder of the Lease that is required to place bindings with the schedulerName kubenergy, or
// "".
func (f *federation) holder() string {
	l, err := f.client.CoordinationV1().Leases("karmada-system").Get(f.t.Context(), karmada.LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// falling publishes carbon intensities that decrease for five minutes, so that work is held until its deadline.
func (f *federation) falling() {
	f.t.Helper()
	values := make([]any, 60)
	for i := range values {
		values[i] = float64(900 - 10*i)
	}
	for _, site := range []string{"north", "south"} {
		now := time.Now().UTC().Format(time.RFC3339)
		f.status(zones, site, map[string]any{"observedGeneration": int64(1), "carbon": map[string]any{
			"now": values[0], "unit": "gCO2e/kWh", "quality": "measured", "source": "test", "asOf": now, "start": now,
			"step": "5s", "values": values,
		}})
	}
}

// TestKills kills kubenergy-karmada permanently at many points. karmada-scheduler must bind the remaining bindings
// with the schedulerName kubenergy within half a minute. If another replica is running, no binding may remain held
// after its deadline.
func TestKills(t *testing.T) {
	long(t)
	f := start(t, member{name: "north", region: "eu-north-1", site: "north", nodes: boxes("n", 20)},
		member{name: "south", region: "eu-central-1", site: "south", nodes: boxes("s", 20)})
	f.kubenergy("{idleWatts: 100, maxWatts: 300}", "{mode: enforce}")
	f.grids(map[string]float64{"north": 50, "south": 400})
	f.holds()
	f.plainScheduler()
	for namespace, mode := range map[string]string{"free": "off", "held": "enforce"} {
		f.namespace(namespace, mode)
		f.policyIn(namespace, "ours", "ours", "kubenergy", "Weighted")
		f.policyIn(namespace, "stock", "stock", "default-scheduler", "Aggregated")
	}
	rng := rand.New(rand.NewPCG(22, 2))
	var slowest, latest time.Duration
	for i := range *points {
		p := &point{federation: f, number: i, two: i%2 == 1, rng: rng}
		p.play()
		bound, late := p.judge()
		p.end()
		slowest, latest = max(slowest, bound), max(latest, late)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d points: maximum time to bind after the kill, creation or release %v; maximum time to release after the "+
		"deadline %v", *points, slowest, latest)
}

// point is a point in time at which kubenergy-karmada is killed, with one or two replicas.
type point struct {
	*federation
	number         int
	two            bool
	rng            *rand.Rand
	all            []*sent
	stock, other   *kit.Process // other is the remaining replica, or nil
	killed, killAt time.Time
}

const (
	sends     = 20 // Jobs per point
	sendEvery = 250 * time.Millisecond
)

// play kills kubenergy-karmada while Jobs are created and waits until all bindings are bound.
func (p *point) play() {
	p.t.Helper()
	p.falling()
	victim := p.ours("--estimator-bind-address=")
	p.await(time.Minute, "kubenergy-karmada holds the Lease", func() bool { return p.holder() != "" })
	if p.two {
		p.other = p.ours("--estimator-bind-address=")
		time.Sleep(3 * time.Second) // until its caches have synced
		if p.rng.IntN(2) == 0 {
			victim, p.other = p.other, victim // kill the standby
		}
	}
	p.stock = p.standIn()
	began := time.Now()
	p.killAt = began.Add(time.Duration(p.rng.Float64() * float64(sends*sendEvery)))
	for p.killed.IsZero() || len(p.all) < sends || p.waits() && time.Since(p.killed) < takeover+10*time.Second {
		if p.killed.IsZero() && time.Now().After(p.killAt) {
			victim.Kill()
			p.killed = time.Now()
		}
		if i := len(p.all); i < sends && time.Since(began) > time.Duration(i)*sendEvery {
			p.send(i)
		}
		p.look()
		time.Sleep(50 * time.Millisecond)
	}
}

// waits reports whether a binding has not been bound yet.
func (p *point) waits() bool {
	return slices.ContainsFunc(p.all, func(s *sent) bool { return s.bound.IsZero() })
}

// judge returns the maximum time to bind a Job and the maximum time after a deadline at which a binding was
// released.
func (p *point) judge() (slowest, latest time.Duration) {
	p.t.Helper()
	for _, s := range p.all {
		held := !s.latest.IsZero()
		late, since := time.Duration(0), s.created
		if held {
			late, since = s.free.Sub(s.latest), s.free
		}
		took := s.bound.Sub(timeutil.Later(p.killed, since))
		if s.bound.IsZero() || took > takeover || late > overdue || held && !s.wasHeld {
			p.t.Errorf("point %d: Job %s/%s, held %v, was released %v after its deadline and bound after %v: %+v",
				p.number,
				s.namespace, s.name, s.wasHeld, late, took, s)
		}
		slowest, latest = max(slowest, took), max(latest, late)
	}
	p.t.Logf("point %d: killed %v after the first Job, second replica: %v; bound within %v, released within %v",
		p.number,
		p.killed.Sub(p.all[0].created).Round(time.Millisecond), p.two, slowest.Round(time.Millisecond),
		latest.Round(time.Millisecond))
	return slowest, latest
}

// end restores the state of the federation before the point.
func (p *point) end() {
	p.t.Helper()
	p.stock.Kill()
	if p.other != nil {
		p.other.Kill()
	}
	p.clear("free", "held")
	for namespace, name := range map[string]string{
		"karmada-system": karmada.LeaseName, "kubenergy-system": "kubenergy-hold",
	} { // the Lease may not exist
		_ = p.client.CoordinationV1().Leases(namespace).Delete(p.t.Context(), name, metav1.DeleteOptions{})
	}
}

// send creates the i-th Job. With a second replica, every other Job may be delayed for several seconds.
func (p *point) send(i int) {
	s := &sent{namespace: "free", name: fmt.Sprintf("p%d-%d", p.number, i)}
	labels := "way: ours"
	if p.two && i%2 == 1 {
		s.namespace = "held"
		delay := time.Duration(3+p.rng.IntN(12)) * time.Second
		labels = fmt.Sprintf("way: %s}, annotations: {kubenergy.io/allowed-delay: %v, kubenergy.io/expected-duration: 5s",
			[]string{"ours", "stock"}[i/2%2], delay)
		s.latest = time.Now().Add(delay)
	}
	p.jobIn(s.namespace, s.name, 1, labels)
	s.created = time.Now()
	p.all = append(p.all, s)
}

// clear deletes the Jobs in the given namespaces and waits until the members have no pods in them.
func (f *federation) clear(namespaces ...string) {
	f.t.Helper()
	for _, namespace := range namespaces {
		if err := f.client.BatchV1().Jobs(namespace).DeleteCollection(f.t.Context(), metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		}, metav1.ListOptions{}); err != nil {
			f.t.Fatal(err)
		}
		f.await(time.Minute, "the members have no pods in "+namespace, func() bool {
			for _, m := range f.members {
				list, err := m.client.CoreV1().Pods(namespace).List(f.t.Context(), metav1.ListOptions{})
				if err != nil || len(list.Items) > 0 {
					return false
				}
			}
			return true
		})
	}
}
