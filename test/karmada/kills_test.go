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

	"github.com/kubenergy/kubenergy/karmada"
	"github.com/kubenergy/kubenergy/test/kit"
)

var points = flag.Int("points", 50, "at how many points TestKills kills our program for good")

const (
	takeover = 30 * time.Second // in which stock binds what ours does not any more
	overdue  = 2 * time.Second  // for which a binding may be suspended after its deadline: Jobs are created in whole seconds
)

// sent is a Job of a point, and what was seen of its binding.
type sent struct {
	namespace, name string
	created, latest time.Time // latest: when it is to be let go; zero: it is not held
	free, bound     time.Time
	wasHeld         bool
}

// look notes which bindings are free, and bound.
func (f *federation) look(all []*sent) {
	for _, namespace := range []string{"free", "held"} {
		list, err := f.dynamic.Resource(bindings).Namespace(namespace).List(f.t.Context(), metav1.ListOptions{})
		if err != nil {
			f.t.Fatal(err)
		}
		now := time.Now()
		for i := range list.Items {
			o := &list.Items[i]
			k := slices.IndexFunc(all, func(s *sent) bool { return s.namespace == namespace && s.name+"-job" == o.GetName() })
			if k < 0 {
				continue
			}
			s := all[k]
			suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspension", "scheduling")
			targets, _, _ := unstructured.NestedSlice(o.Object, "spec", "clusters")
			s.wasHeld = s.wasHeld || suspended
			if !suspended && s.free.IsZero() {
				s.free = now
			}
			if len(targets) > 0 && s.bound.IsZero() {
				s.bound = now
			}
		}
	}
}

// holder is who holds the Lease by which bindings of schedulerName: kubenergy are placed.
func (f *federation) holder() string {
	l, err := f.client.CoordinationV1().Leases("karmada-system").Get(f.t.Context(), karmada.LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// falling publishes grids that become cleaner for five minutes, so that all that may wait does until its deadline.
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

// Our program is killed for good at many points. Stock binds what is left of what said schedulerName: kubenergy within
// half a minute. Where another replica lives, nothing that is held outlives its deadline.
func TestKills(t *testing.T) {
	long(t)
	f := start(t, member{name: "north", region: "eu-north-1", site: "north", nodes: boxes("n", 20)},
		member{name: "south", region: "eu-central-1", site: "south", nodes: boxes("s", 20)})
	f.kubenergy("{idleWatts: 100, maxWatts: 300}", "{mode: enforce}")
	f.grids(map[string]float64{"north": 50, "south": 400})
	f.holds()
	f.scheduler()
	for namespace, mode := range map[string]string{"free": "off", "held": "enforce"} {
		f.apply(t, fmt.Appendf(nil, "{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubenergy.io/mode: %q}}}", namespace, mode))
		f.policyIn(namespace, "ours", "ours", "kubenergy", "Weighted")
		f.policyIn(namespace, "stock", "stock", "default-scheduler", "Aggregated")
	}
	rng := rand.New(rand.NewPCG(22, 2))
	var slowest, latest time.Duration
	for point := range *points {
		bound, late := f.point(t, point, rng)
		slowest, latest = max(slowest, bound), max(latest, late)
		if t.Failed() {
			break
		}
	}
	t.Logf("%d points: bound at most %v after the kill, or their creation if that was later; let go at most %v after their deadline",
		*points, slowest, latest)
}

// point kills our program once: at even points the only replica, at odd ones one of two. It returns how long stock, or
// the other replica, took to bind, and how long after its deadline a binding was let go.
func (f *federation) point(t *testing.T, point int, rng *rand.Rand) (slowest, latest time.Duration) {
	t.Helper()
	two := point%2 == 1
	f.falling()
	victim := f.ours("--estimator-bind-address=")
	f.await(time.Minute, "ours places bindings", func() bool { return f.holder() != "" })
	other := (*kit.Process)(nil)
	if two {
		other = f.ours("--estimator-bind-address=")
		time.Sleep(3 * time.Second) // until it knows of all
		if rng.IntN(2) == 0 {
			victim, other = other, victim // the one that does not lead
		}
	}
	stock := f.scheduler("--scheduler-name=kubenergy", "--leader-elect-resource-name="+karmada.LeaseName)
	began := time.Now()
	killAt := began.Add(time.Duration(rng.Float64() * float64(4*time.Second)))
	var all []*sent
	killed := time.Time{}
	for i := 0; ; {
		if now := time.Now(); killed.IsZero() && now.After(killAt) {
			victim.Kill()
			killed = now
		}
		if i < 20 && time.Since(began) > time.Duration(i)*250*time.Millisecond {
			all = append(all, f.send(point, i, two, rng))
			i++
		}
		f.look(all)
		if !killed.IsZero() && i == 20 && (!slices.ContainsFunc(all, func(s *sent) bool { return s.bound.IsZero() }) ||
			time.Since(killed) > takeover+10*time.Second) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, s := range all {
		late, took := time.Duration(0), time.Duration(0)
		if s.latest.IsZero() {
			took = s.bound.Sub(later(killed, s.created))
		} else {
			late, took = s.free.Sub(s.latest), s.bound.Sub(later(killed, s.free))
		}
		if s.bound.IsZero() || took > takeover || late > overdue {
			t.Errorf("point %d (two replicas: %v, killed after %v): %s/%s was let go %v after its deadline and bound %v after the kill: %+v",
				point, two, killed.Sub(began), s.namespace, s.name, late, took, s)
		}
		if !s.latest.IsZero() && !s.wasHeld {
			t.Errorf("point %d: the binding of %s was not held", point, s.name)
		}
		slowest, latest = max(slowest, took), max(latest, late)
	}
	t.Logf("point %d: killed after %v, another lives: %v; bound within %v, let go within %v", point, killed.Sub(began).Round(time.Millisecond),
		two, slowest.Round(time.Millisecond), latest.Round(time.Millisecond))
	stock.Kill()
	if other != nil {
		other.Kill()
	}
	f.clear("free", "held")
	for namespace, name := range map[string]string{"karmada-system": karmada.LeaseName, "kubenergy-system": "kubenergy-hold"} {
		_ = f.client.CoordinationV1().Leases(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}) // it may be absent
	}
	return slowest, latest
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// send creates the i-th Job of a point. Where a replica is left, every other one may wait for some seconds.
func (f *federation) send(point, i int, two bool, rng *rand.Rand) *sent {
	s := &sent{namespace: "free", name: fmt.Sprintf("p%d-%d", point, i)}
	labels := "way: ours"
	if two && i%2 == 1 {
		s.namespace = "held"
		delay := time.Duration(3+rng.IntN(12)) * time.Second
		labels = fmt.Sprintf("way: %s}, annotations: {kubenergy.io/allowed-delay: %v, kubenergy.io/expected-duration: 5s", []string{"ours", "stock"}[i/2%2], delay)
		s.latest = time.Now().Add(delay)
	}
	f.jobIn(s.namespace, s.name, 1, labels)
	s.created = time.Now()
	return s
}

// clear deletes the Jobs of namespaces and waits until members have none.
func (f *federation) clear(namespaces ...string) {
	f.t.Helper()
	for _, namespace := range namespaces {
		if err := f.client.BatchV1().Jobs(namespace).DeleteCollection(f.t.Context(), metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		}, metav1.ListOptions{}); err != nil {
			f.t.Fatal(err)
		}
		f.await(time.Minute, "the members have no pods of "+namespace, func() bool {
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
