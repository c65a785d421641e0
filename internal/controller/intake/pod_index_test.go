package intake_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func job(namespace, name, cronJob string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if cronJob != "" {
		j.OwnerReferences = []metav1.OwnerReference{{Kind: "CronJob", Name: cronJob, Controller: new(true)}}
	}
	return j
}

// TestTeamsAreAskedAnew checks that a change of a namespace's team applies to existing pods.
func TestTeamsAreAskedAnew(t *testing.T) {
	claimed := ""
	d := intake.NewPodIndex(intake.PodIndexOptions{
		Now: time.Now, Strategy: unplaced,
		TeamOf: func(_, named string) string {
			if named == claimed {
				return ""
			}
			return named
		},
	})
	d.Saw(pod("shop", "x", uidNumber(0), "a", labelled(v1alpha1.LabelTeam, "red")))
	for _, want := range []string{"red", ""} {
		if who, _ := d.Names(uidNumber(0)); who.Team != want {
			t.Errorf("team = %q, want %q", who.Team, want)
		}
		claimed = "red"
	}
}

func TestWhoPodsAre(t *testing.T) {
	d := intake.NewPodIndex(intake.PodIndexOptions{
		Now:      time.Now,
		Strategy: func(p *v1.Pod) string { return p.Spec.SchedulerName },
	})
	d.Saw(job("shop", "night-123", "night"))
	d.Saw(job("shop", "once", ""))
	mirror := func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.mirror": "0123456789abcdef0123456789abcdef"}
	}
	for n, c := range []struct {
		pod  *v1.Pod
		uid  string
		want intake.PodNames
	}{
		{pod("shop", "bare", uidNumber(0), "a"), "", intake.PodNames{Pod: "bare", OwnerKind: "Pod", Owner: "bare"}},
		{
			pod("shop", "web-7d9f-x", uidNumber(1), "a", owned("ReplicaSet", "web-7d9f"),
				labelled("pod-template-hash", "7d9f", v1alpha1.LabelTeam, "front", v1alpha1.LabelPartOf, "p")), "",
			intake.PodNames{Pod: "web-7d9f-x", OwnerKind: "Deployment", Owner: "web", Team: "front"},
		},
		{
			pod("shop", "rs-x", uidNumber(2), "a", owned("ReplicaSet", "rs"),
				labelled("app.kubernetes.io/part-of", "p")),
			"",
			intake.PodNames{Pod: "rs-x", OwnerKind: "ReplicaSet", Owner: "rs", Team: "p"},
		},
		{
			pod("shop", "rs-7d9f", uidNumber(3), "a", owned("ReplicaSet", "-7d9f"),
				labelled("pod-template-hash", "7d9f")),
			"",
			intake.PodNames{Pod: "rs-7d9f", OwnerKind: "ReplicaSet", Owner: "-7d9f"},
		},
		{
			pod("shop", "night-123-x", uidNumber(4), "a", owned("Job", "night-123"),
				func(p *v1.Pod) { p.Spec.SchedulerName = "carbon" }), "",
			intake.PodNames{
				Pod: "night-123-x", OwnerKind: "Job", Owner: "night-123", Parent: "night", Strategy: "carbon",
			},
		},
		{
			pod("shop", "once-x", uidNumber(5), "a", owned("Job", "once")), "",
			intake.PodNames{Pod: "once-x", OwnerKind: "Job", Owner: "once"},
		},
		{
			pod("shop", "other-name", uidNumber(6), "a", owned("Workflow", "wf")), "",
			intake.PodNames{Pod: "other-name", OwnerKind: "Workflow", Owner: "wf"},
		},
		{
			pod("kube-system", "etcd-a", uidNumber(7), "a", owned("Node", "a"), mirror),
			"0123456789abcdef0123456789abcdef",
			intake.PodNames{
				Namespace: "kube-system", Pod: "etcd-a", OwnerKind: "Pod", Owner: "etcd-a",
			},
		},
		{
			pod("shop", "odd", "not-a-uuid", "a"), "not-a-uuid",
			intake.PodNames{Pod: "odd", OwnerKind: "Pod", Owner: "odd"},
		},
	} {
		if c.uid == "" {
			c.uid = uidNumber(n)
		}
		if c.want.Namespace == "" {
			c.want.Namespace = "shop"
		}
		c.want.Node = "a"
		d.Saw(c.pod)
		if got, ok := d.Names(c.uid); !ok || got != c.want {
			t.Errorf("%s: names = %+v, want %+v", c.pod.Name, got, c.want)
		}
	}
	uid := uidNumber(0xabcdef)
	d.Saw(pod("shop", "lettered", uid, "a"))
	if got := d.Container(uid, strings.Repeat(uid[:8], 8)); got != "main" {
		t.Errorf("unexpected container %q", got)
	}
	if got := d.Container(uid, "other") + d.Container("nobody", ""); got != "" {
		t.Errorf("unexpected container %q", got)
	}
	for _, other := range []string{strings.ToUpper(uid), strings.ReplaceAll(uid, "-", ""), uid + "0", ""} {
		if _, ok := d.Names(other); ok {
			t.Errorf("Names(%q) returned a pod, want none", other)
		}
	}
	// Any user can annotate a pod as the mirror of another one.
	d.Saw(pod("evil", "p", uidNumber(100), "a", func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.mirror": uid}
	}))
	d.Saw(pod("evil", "p", uidNumber(101), "a", mirror))
	d.Lost(pod("evil", "p", uidNumber(101), "a", mirror))
	for uid, want := range map[string]string{uid: "shop", "0123456789abcdef0123456789abcdef": "kube-system"} {
		if got, _ := d.Names(uid); got.Namespace != want {
			t.Errorf("unexpected namespace of %s: %s", uid, got.Namespace)
		}
	}
}

// A pod annotated with the UID of another pod does not replace that pod, in whatever order they are added.
func TestNoPodTakesTheUIDOfAnother(t *testing.T) {
	victim, uid := pod("shop", "x", uidNumber(1), "a"), uidNumber(1)
	evil := pod("aaa", "evil", uidNumber(2), "a", func(p *v1.Pod) {
		p.Annotations = map[string]string{"kubernetes.io/config.mirror": uid}
	})
	for _, order := range [][]*v1.Pod{{victim, evil}, {evil, victim}} {
		d := intake.NewPodIndex(intake.PodIndexOptions{Now: time.Now, Strategy: unplaced})
		for _, p := range order {
			d.Saw(p)
		}
		d.Lost(evil)
		first, _ := d.Names(uid)
		second, _ := d.Names(uidNumber(2))
		if first.Pod != "x" || second.Pod != "evil" {
			t.Errorf("with %s first: pods = %q and %q", order[0].Name, first.Pod, second.Pod)
		}
	}
}

func TestDeletedPodsAreKnownForAWhile(t *testing.T) {
	w := newWorld(t)
	const most = 1000
	d := intake.NewPodIndex(intake.PodIndexOptions{Strategy: unplaced, Now: w.clock, MaxDeleted: most})
	p := pod("shop", "night-1-x", uidNumber(1), "a", owned("Job", "night-1"))
	d.Saw(job("shop", "night-1", "night"))
	d.Saw(p)
	d.Lost(p)
	d.Lost(job("shop", "night-1", "night"))
	d.Lost(p)
	w.add(119 * time.Minute)
	d.Saw(pod("shop", "other", uidNumber(2), "a"))
	if got, ok := d.Names(uidNumber(1)); !ok || got.Parent != "night" {
		t.Errorf("%+v", got)
	}
	if there, gone := d.Count(); there != 1 || gone != 1 {
		t.Errorf("unexpected Count(): %d, %d", there, gone)
	}
	w.add(2 * time.Minute)
	d.Saw(pod("shop", "other", uidNumber(2), "a"))
	if _, ok := d.Names(uidNumber(1)); ok {
		t.Error("the pod is still in the index")
	}
	if there, gone := d.Count(); there != 1 || gone != 0 {
		t.Errorf("Count() = %d, %d, want 1, 0 after the retention time", there, gone)
	}
	// Pods are created and deleted continuously.
	for i := range 10 * most {
		p := pod("shop", "p", uidNumber(10+i), "a")
		d.Saw(p)
		d.Lost(p)
	}
	if there, gone := d.Count(); there != 1 || gone > most+1 {
		t.Errorf("unexpected Count(): %d, %d", there, gone)
	}
}

// Energy that a node reports for pods of other nodes is charged to the node itself, and their names are not
// returned.
func TestForeignPods(t *testing.T) {
	w := newWorld(t)
	w.directory.Saw(pod("bank", "vault", uidNumber(1), "b"))
	w.directory.Saw(pod("shop", "web", uidNumber(2), "a"))
	w.directory.Saw(pod("bank", "waits", uidNumber(3), ""))
	b, ack := w.booked("token-a", of("a", 1, with("pod/"+uidNumber(1)+"/c", "pod/"+uidNumber(1)+"/d",
		"pod/"+uidNumber(2), "pod/"+uidNumber(3), "pod/"+uidNumber(4))))
	for i, want := range []ledger.Consumer{
		{Key: "pod/" + uidNumber(1), Account: ledger.Account{Kind: ledger.Foreign}},
		{Key: "pod/" + uidNumber(1), Account: ledger.Account{Kind: ledger.Foreign}},
		{Key: "pod/" + uidNumber(2), Pod: "web", Account: ledger.Account{
			Kind: ledger.Workload, Namespace: "shop", OwnerKind: "Pod", Owner: "web",
		}},
		{Key: "pod/" + uidNumber(3), Account: ledger.Account{Kind: ledger.Workload}},
		{Key: "pod/" + uidNumber(4), Account: ledger.Account{Kind: ledger.Workload}},
	} {
		if *b.Consumers[i] != want {
			t.Errorf("share %d: consumer = %+v, want %+v", i, *b.Consumers[i], want)
		}
	}
	if len(ack.Names) != 1 || ack.Names[uidNumber(2)].Pod != "web" {
		t.Errorf("unexpected names: %+v", ack.Names)
	}
}

// A node cannot fill the ledger with invented names.
func TestInventedConsumers(t *testing.T) {
	w := newWorld(t)
	names := map[string]bool{}
	for n := range 6 {
		var ids []string
		for i := range 5000 {
			k := n*5000 + i
			ids = append(ids, []string{
				"pod/" + uidNumber(k), fmt.Sprintf("vm/%d", k), fmt.Sprintf("cgroup/%d", k),
			}[k%3])
		}
		b, _ := w.booked("token-a", of("a", uint64(n+1), with(ids...), func(b *batch.Batch) { b.EndSinceBoot += 0 },
			func(b *batch.Batch) {
				for i := range b.Shares {
					b.Shares[i].CPU = 0
				}
			}))
		for _, c := range b.Consumers {
			names[c.Key] = true
		}
	}
	if len(names) > 20_001 || !names[batch.Others] {
		t.Errorf("recorded %d consumers, want at most 20,001 including others", len(names))
	}
	w.directory.Saw(pod("shop", "web", uidNumber(90_000), "a"))
	b, _ := w.booked("token-a", of("a", 7, with("pod/"+uidNumber(90_000), "vm/1")))
	if b.Consumers[0].Pod != "web" || b.Consumers[1].Key != "vm/1" {
		t.Errorf("consumers within the quota were replaced: %+v", b.Consumers)
	}
}

func TestTheDirectoryIsSafeForMany(t *testing.T) {
	w := newWorld(t)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				p := pod("shop", fmt.Sprint("p", i), uidNumber(i), "a", owned("Job", "j"))
				w.directory.Saw(p)
				w.directory.Saw(job("shop", "j", "c"))
				if i%10 == g {
					w.directory.Lost(p)
					w.directory.Lost(job("shop", "j", "c"))
				}
				w.directory.Names(uidNumber(i))
				w.handler.Implausible("a")
				if i%20 == 0 {
					_ = w.handler.Local(t.Context(), of(fmt.Sprint("n", g), uint64(i+1), with("pod/"+uidNumber(i))),
						false)
				}
			}
		})
	}
	wg.Wait()
}

// The index of the pods of a large cluster must fit into memory. Half of the pods have their own Job. The size
// includes their strings.
//
//test:norace
func TestMemoryOfADirectory(t *testing.T) {
	pods := 50_000
	if os.Getenv("KUBENERGY_LONG") != "" {
		pods = 500_000
	}
	d := intake.NewPodIndex(intake.PodIndexOptions{Strategy: func(*v1.Pod) string { return "carbon" }, Now: time.Now})
	before := heap()
	for i := range pods {
		var p *v1.Pod
		node, uid := fmt.Sprintf("worker-%04d.example.com", i/100), uidNumber(i)
		if i%2 == 0 {
			p = pod(fmt.Sprintf("namespace-%d", i%1000), fmt.Sprintf("checkout-service-7d9f8b6c5-%05d", i), uid, node,
				owned("ReplicaSet", "checkout-service-7d9f8b6c5"),
				labelled("pod-template-hash", "7d9f8b6c5", "kubenergy.io/team", fmt.Sprint("team-", i%50)))
		} else {
			name := fmt.Sprintf("nightly-report-%08d", i)
			p = pod(fmt.Sprintf("namespace-%d", i%1000), name+"-abcde", uid, node, owned("Job", name))
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses,
			v1.ContainerStatus{Name: "sidecar", ContainerID: "containerd://" + uid})
		d.Saw(p)
	}
	each := float64(int64(heap())-int64(before)) / float64(pods)
	t.Logf("%d pods of two containers: %.0f bytes each", pods, each)
	if each > 250 {
		t.Errorf("%.0f bytes per pod, want at most 250", each)
	}
	runtime.KeepAlive(d)
}

// BenchmarkRequest measures a request with a batch of a hundred containers, without the ledger.
func BenchmarkRequest(b *testing.B) {
	w := newWorld(b)
	var ids []string
	for i := range 100 {
		hash := fmt.Sprintf("%x", sha256.Sum256([]byte{byte(i)}))
		uid := strings.Join([]string{hash[:8], hash[8:12], "4" + hash[13:16], "8" + hash[17:20], hash[20:32]}, "-")
		w.directory.Saw(pod("shop", fmt.Sprintf("checkout-service-7d9f8b6c5-%05d", i), uid, "a",
			owned("ReplicaSet", "checkout-service-7d9f8b6c5"), labelled("pod-template-hash", "7d9f8b6c5"),
			func(p *v1.Pod) { p.Status.ContainerStatuses[0].ContainerID = "containerd://" + hash }))
		ids = append(ids, energy.ContainerID(uid, hash))
	}
	bodies := make([][]byte, 1000)
	for n := range bodies {
		bodies[n] = zip(w.encoded(of("a", uint64(n+1), with(ids...), func(b *batch.Batch) {
			for i := range b.Shares {
				b.Shares[i].CPU = 100 * time.Millisecond
			}
		})))
	}
	b.Logf("%d bytes, compressed", len(bodies[0]))
	benchmark(b, w, bodies)
}

// FuzzDirectory adds an arbitrary pod and Job to a PodIndex. The entries of all other pods must not change.
func FuzzDirectory(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"p",
		"annotations":{"kubernetes.io/config.mirror":"0123456789abcdef0123456789abcdef"},
		"ownerReferences":[{"kind":"Job","name":"night-1","controller":true}]},"spec":{"nodeName":"a"},"status":{
		"containerStatuses":[{"name":"c","containerID":"containerd://abc"}]}}`),
		[]byte(`{"metadata":{"name":"night-1","ownerReferences":[{"kind":"CronJob","name":"night",
		"controller":true}]}}`))
	f.Fuzz(func(t *testing.T, podText, jobText []byte) {
		defer memtest.Limit(t, 100*(len(podText)+len(jobText)))()
		var p v1.Pod
		var j batchv1.Job
		if json.Unmarshal(podText, &p) != nil || json.Unmarshal(jobText, &j) != nil {
			return
		}
		p.Namespace, p.UID, j.Namespace = "strange", types.UID(uidNumber(9)), "strange" // ensured by the API server
		d := intake.NewPodIndex(intake.PodIndexOptions{Now: time.Now, Strategy: unplaced})
		hash := "0123456789abcdef0123456789abcdef"
		static := pod("kube-system", "static-a", uidNumber(1), "a", func(p *v1.Pod) {
			p.Annotations = map[string]string{"kubernetes.io/config.mirror": hash}
		})
		good := map[string]*v1.Pod{
			hash: static, uidNumber(2): pod("shop", "night-1-x", uidNumber(2), "b", owned("Job", "night-1")),
		}
		before := map[string]intake.PodNames{}
		d.Saw(job("shop", "night-1", "night"))
		for uid, p := range good {
			d.Saw(p)
			before[uid], _ = d.Names(uid)
		}
		for _, notify := range []func(client.Object){d.Saw, d.Saw, d.Lost, d.Lost, d.Saw} {
			notify(&p)
			notify(&j)
			for uid := range good {
				if names, _ := d.Names(uid); names != before[uid] || names.Pod == "" {
					t.Fatalf("names of %s = %+v, want %+v", uid, names, before[uid])
				}
			}
		}
	})
}
