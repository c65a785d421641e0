package karmada

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// ways maps the two ways to place a Job to their scheduler names: by kubenergy-karmada, and by karmada-scheduler
// with the KubEnergy estimator.
var ways = map[string]string{"ours": "kubenergy", "stock": "default-scheduler"}

// runs creates a Job with one pod that runs for the given number of seconds.
func (f *federation) runs(namespace, name, labels string, seconds int) {
	f.t.Helper()
	f.apply(f.t, fmt.Appendf(nil, `
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s, labels: {%s}}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {%s: "%d"}}
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, resources: {requests: {cpu: "1"}}}]
`, name, namespace, labels, v1alpha1.AnnotationLabRunSeconds, seconds))
}

// targetOf returns the cluster to which a Job was sent, or "".
func (f *federation) targetOf(namespace, name string) string {
	for cluster := range f.wentIn(namespace, name) {
		return cluster
	}
	return ""
}

func (f *federation) complete(namespace, name string) bool {
	j, err := f.client.BatchV1().Jobs(namespace).Get(f.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return false
	}
	for _, c := range j.Status.Conditions {
		if c.Type == batchv1.JobComplete && c.Status == "True" {
			return true
		}
	}
	return false
}

// absence is the duration of the loss of a member. In this test, Karmada changes the Ready condition of a member
// after ten seconds instead of the default of thirty.
var absence = flag.Duration("absence", 10*time.Minute, "duration of the disconnection of a member in TestMemberLost")

// TestMemberLost verifies the behavior if a member is unreachable. Its running work continues and runs once unless
// its policy requests failover. New work is sent to the other member, and no work is lost.
func TestMemberLost(t *testing.T) {
	long(t)
	north := &kit.Link{}
	f := start(t, member{name: "north", region: "eu-north-1", site: "north", nodes: boxes("n", 5), link: north},
		member{name: "south", region: "eu-central-1", site: "south", nodes: boxes("s", 5)})
	f.kubenergy("{idleWatts: 100, maxWatts: 300}", "{mode: enforce}")
	f.grids(map[string]float64{"north": 50, "south": 400})
	f.ours()
	f.scheduler()
	f.apply(t, []byte(`
apiVersion: policy.karmada.io/v1alpha1
kind: ClusterTaintPolicy
metadata: {name: lost}
spec:
  addOnConditions: [{conditionType: Ready, operator: NotIn, statusValues: ["True"]}]
  removeOnConditions: [{conditionType: Ready, operator: In, statusValues: ["True"]}]
  taints: [{key: lost, effect: NoExecute}]
`))
	for way, scheduler := range ways {
		for name, asks := range map[string]string{
			"moves": "failover: {cluster: {purgeMode: Gracefully}}\n  placement: {",
			"stays": "placement: {clusterTolerations: [{key: lost, operator: Exists, effect: NoExecute}], ",
		} {
			f.apply(t, fmt.Appendf(nil, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: %s-%s, namespace: default}
spec:
  schedulerName: %s
  resourceSelectors: [{apiVersion: batch/v1, kind: Job, labelSelector: {matchLabels: {way: %s, if-lost: %s}}}]
  %sreplicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Aggregated}}
`, name, way, scheduler, way, name, asks))
		}
	}
	time.Sleep(10 * time.Second)
	p := newPlayed()
	p.watch(f, "default")
	var all []string
	send := func(when string, seconds int) {
		for way := range ways {
			for _, ifLost := range []string{"moves", "stays"} {
				name := strings.Join([]string{when, ifLost, way}, "-")
				f.runs("default", name, "way: "+way+", if-lost: "+ifLost, seconds)
				all = append(all, name)
			}
		}
	}
	send("before", 40)
	f.await(30*time.Second, "four Jobs run in the north", func() bool { return p.in("north") == 4 })

	north.Cut()
	lost := time.Now()
	send("unnoticed", 20)
	f.await(time.Minute, "Karmada reports the north as not ready", func() bool { return !f.clusterReady("north") })
	t.Logf("Karmada reported the north as not ready after %v", time.Since(lost).Round(time.Second))
	send("during", 20)
	const moved = "new work and work with failover is in the south"
	kit.Await(t, 2*time.Minute, moved, func(context.Context) (bool, error) {
		for _, name := range all {
			moves := strings.HasPrefix(name, "during") || strings.Contains(name, "moves")
			if got := f.wentIn("default", name); moves && fmt.Sprint(got) != "map[south:1]" {
				return false, fmt.Errorf("unexpected target of %s: %v", name, got)
			}
		}
		return true, nil
	}, f.Process)
	t.Logf("failover finished after %v", time.Since(lost).Round(time.Second))
	time.Sleep(*absence - time.Since(lost))
	north.Join(t)
	kit.Await(t, 2*time.Minute, "all Jobs are complete", func(context.Context) (bool, error) {
		for _, name := range all {
			if !f.complete("default", name) {
				return false, fmt.Errorf("Job %s is not complete", name)
			}
		}
		return true, nil
	}, f.Process)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failed) > 0 {
		t.Errorf("pods failed: %v", p.failed)
	}
	for _, name := range all {
		most := 1
		if strings.Contains(name, "moves") && !strings.HasPrefix(name, "during") {
			most = 2
		}
		if n := len(p.pods[name]); n < 1 || n > most {
			t.Errorf("Job %s ran %d times, want 1 to %d: %v", name, n, most, p.pods[name])
		}
		for key, pod := range p.pods[name] {
			if strings.Contains(name, "stays") && !strings.HasPrefix(name, "during") && pod.member != "north" {
				t.Errorf("Job %s tolerates the loss of the north, but ran as %s", name, key)
			}
		}
	}
}

const doubted = 2 * time.Minute // time after which a member that reports false capacity gets no new work

// TestLyingMember verifies that a member with free capacity gets no new work after two minutes if none of its pods
// can be scheduled.
func TestLyingMember(t *testing.T) {
	long(t)
	f := start(t, member{name: "north", region: "eu-north-1", site: "north", nodes: boxes("n", 20), lies: true},
		member{name: "south", region: "eu-central-1", site: "south", nodes: boxes("s", 20)})
	f.kubenergy("{idleWatts: 100, maxWatts: 300}", "{mode: enforce}")
	f.grids(map[string]float64{"north": 50, "south": 400})
	f.ours()
	f.scheduler()
	for _, namespace := range []string{"one", "two"} {
		f.namespace(namespace, "enforce")
		for way, scheduler := range ways {
			f.policyIn(namespace, way, way, scheduler, "Aggregated")
		}
	}
	time.Sleep(10 * time.Second)
	var first, last time.Time // times at which work was sent to the north
	after := 0
	for i := 0; first.IsZero() || time.Since(first) < doubted+30*time.Second; i++ {
		for way := range ways {
			namespace, name := []string{"one", "two"}[i%2], fmt.Sprintf("%s-%d", way, i)
			f.runs(namespace, name, "way: "+way, 10)
			created := time.Now()
			f.await(30*time.Second, name+" is sent to a cluster",
				func() bool { return f.targetOf(namespace, name) != "" })
			north := f.targetOf(namespace, name) == "north"
			switch {
			case north && first.IsZero():
				first, last = created, created
			case north:
				last = created
			}
			if !first.IsZero() && created.Sub(first) > doubted {
				after++
				if north {
					t.Errorf("Job %s/%s was sent to the member with false capacity after %v",
						namespace, name, created.Sub(first))
				}
			}
		}
		if i == 12 && first.IsZero() {
			t.Fatal("no work was sent to the member with false capacity, although it has the lower carbon intensity")
		}
		time.Sleep(4 * time.Second)
	}
	t.Logf("member with false capacity got its last Job %v after the first; %d Jobs were sent after two minutes",
		last.Sub(first).Round(time.Second), after)
	if after == 0 {
		t.Error("expected Jobs after two minutes")
	}
}
