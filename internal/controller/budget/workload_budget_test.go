package budget

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const (
	mergePatch = types.MergePatchType
	jsonPatch  = types.JSONPatchType
	gardener   = "compute-gardener-scheduler.kubernetes.io/"
)

func annotated(annotations map[string]string) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Annotations = annotations }
}

// TestGardenersBudget verifies the compatibility with the annotations and labels of Compute Gardener.
func TestGardenersBudget(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	theirs := func(action string) func(*batchv1.Job) {
		return annotated(map[string]string{
			gardener + "energy-budget-kwh": "0.5", gardener + "energy-budget-action": action,
		})
	}
	w := newWorld(
		t, newJob("annotate", theirs("annotate")), newJob("label", theirs("label")), newJob("log", theirs("log")),
		newJob("within", theirs("label")),
		newJob("plain", nil), newJob("nonsense", annotated(map[string]string{gardener + "energy-budget-kwh": "much"})),
		newJob("of-the-template", func(j *batchv1.Job) {
			j.Spec.Template.Annotations = map[string]string{
				gardener + "energy-budget-kwh": "0.25", gardener + "energy-budget-action": "annotate",
			}
		}),
	)
	e := w.engine("a", nil, clock.now)
	for _, name := range []string{"annotate", "label", "log", "within", "plain", "nonsense", "of-the-template"} {
		used := oneKWh * 3 / 4
		if name == "within" {
			used = oneKWh / 4
		}
		w.used(monday, monday.Add(time.Minute), used, "team", "Job/"+name)
	}
	for range 3 {
		e.sweepAndWork(t.Context())
	}
	for name, by := range map[string]string{"annotate": "0.250000", "of-the-template": "0.500000"} {
		j := w.job(name)
		if j.Annotations[gardener+"energy-budget-exceeded"] != "true" ||
			j.Annotations[gardener+"energy-budget-exceeded-by"] != by ||
			j.Annotations[v1alpha1.AnnotationBudgetExceededBy] != by ||
			j.Labels[gardener+"energy-budget-exceeded"] != "" {
			t.Errorf("%s: %v", name, j.Annotations)
		}
	}
	if j := w.job("label"); j.Labels[gardener+"energy-budget-exceeded"] != "true" ||
		j.Labels[v1alpha1.AnnotationBudgetExceeded] != "true" {
		t.Error(j.Labels)
	}
	events := w.events()
	for _, name := range []string{"annotate", "label", "log", "of-the-template"} {
		if count(events["Job/"+name], eventExceeded) != 1 || *w.job(name).Spec.Suspend {
			t.Errorf("%s: %v", name, events["Job/"+name])
		}
	}
	for _, name := range []string{"within", "plain", "nonsense"} {
		if len(events["Job/"+name]) > 0 || w.job(name).Annotations[v1alpha1.AnnotationBudgetActions] != "" {
			t.Errorf("%s: %v", name, events["Job/"+name])
		}
	}
	if n := testutil.ToFloat64(e.metrics.exceeded.WithLabelValues("team", "Job", "Label")); n != 1 {
		t.Error(n)
	}
	metric := `kubenergy_budget_usage_ratio{budget="Own",namespace="team",resource="energy",workload="Job/within"} 0.5`
	if err := testutil.CollectAndCompare(e.metrics, strings.NewReader(metric+"\n"),
		"kubenergy_budget_usage_ratio"); err == nil || !strings.Contains(err.Error(), metric[:60]) {
		t.Errorf("%v", err)
	}
}

func TestOwnSuspend(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newJob("j", annotated(map[string]string{
		v1alpha1.AnnotationBudgetKWh: "0.5", v1alpha1.AnnotationBudgetAction: "suspend",
	})))
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/j")
	e.sweepAndWork(t.Context())
	if j := w.job("j"); !*j.Spec.Suspend || j.Labels[v1alpha1.LabelBudgetSuspended] != policy.OwnBudget {
		t.Fatalf("%+v", j)
	}
	e.sweepAndWork(t.Context())
	change := func(change func(*batchv1.Job)) {
		j := w.job("j")
		change(j)
		if err := w.api.Update(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		e.sweepAndWork(t.Context())
		e.sweepAndWork(t.Context())
	}
	if change(func(j *batchv1.Job) {
		*j.Spec.Suspend = false
		delete(j.Labels,
			v1alpha1.LabelBudgetSuspended)
	}); !w.suspended("j") {
		t.Error("a resumed Job was not suspended again")
	}
	if change(func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationBudgetKWh] = "2" }); w.suspended("j") {
		t.Error("the Job was not resumed after the limit had been raised")
	}
	if change(func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationBudgetKWh] = "0.75" }); !w.suspended("j") {
		t.Error("the Job was not suspended after the limit had been lowered")
	}
	if n := count(w.events()["Job/j"], eventExceeded); n != 2 {
		t.Errorf("got %d events for two limits", n)
	}
	if change(func(j *batchv1.Job) { delete(j.Annotations, v1alpha1.AnnotationBudgetKWh) }); w.suspended("j") {
		t.Error("the Job was not resumed after its budget had been removed")
	}
}

// TestNames verifies that a Job is not charged for an earlier Job with the same name.
func TestNames(t *testing.T) {
	clock := &clockAt{monday.Add(5 * time.Hour)}
	w := newWorld(t, newJob("j", func(j *batchv1.Job) {
		j.Annotations = map[string]string{v1alpha1.AnnotationBudgetKWh: "2", v1alpha1.AnnotationBudgetAction: "suspend"}
		j.CreationTimestamp = metav1.NewTime(monday.Add(3 * time.Hour))
	}), newJob("older", annotated(map[string]string{v1alpha1.AnnotationBudgetKWh: "10"})))
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), 5*oneKWh, "team", "Job/j")
	w.used(monday.Add(4*time.Hour), monday.Add(4*time.Hour+time.Minute), oneKWh, "team", "Job/j")
	e.sweepAndWork(t.Context())
	if w.suspended("j") {
		t.Error("the Job was charged for another one")
	}
	w.used(monday.Add(4*time.Hour+time.Minute), monday.Add(4*time.Hour+2*time.Minute), oneKWh, "team", "Job/j")
	e.sweepAndWork(t.Context())
	if !w.suspended("j") {
		t.Error("the Job was not suspended")
	}
}

// counting counts the queries of a ledger.
type counting struct {
	Ledger
	asked atomic.Int32
}

func (c *counting) Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	c.asked.Add(1)
	return c.Ledger.Query(ctx, q)
}

// TestNamesAreAskedTogether verifies that many Jobs with reused names need few queries and are charged correctly.
func TestNamesAreAskedTogether(t *testing.T) {
	clock := &clockAt{monday.AddDate(0, 0, 5)}
	w := newWorld(t)
	e := w.engine("a", nil, clock.now)
	books := &counting{Ledger: w.books}
	e.o.Ledger = books
	const jobs = 60
	for i := range jobs {
		made := clock.at.Add(-time.Duration(i%30+1) * time.Hour) // within the last 30 hours
		if i >= jobs/2 {
			made = clock.at.AddDate(0, 0, -4).Add(time.Duration(i%2) * time.Hour)
		}
		j := newJob(fmt.Sprint("j", i), func(j *batchv1.Job) {
			j.Annotations = map[string]string{
				v1alpha1.AnnotationBudgetKWh: "1", v1alpha1.AnnotationBudgetAction: "suspend",
			}
			j.CreationTimestamp = metav1.NewTime(made)
		})
		if err := w.api.Create(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		owner := "Job/" + j.Name
		w.used(monday.Add(-time.Hour), monday.Add(-time.Hour+time.Minute), 5*oneKWh, "team", owner)
		used := oneKWh / 4
		if i%3 == 0 {
			used = oneKWh / 2
		}
		w.used(made.Add(time.Minute), made.Add(2*time.Minute), used, "team", owner)
		w.used(clock.at.Add(-10*time.Minute), clock.at.Add(-9*time.Minute), used, "team", owner)
	}
	// An older Job extends the time range of the first query.
	old := newJob("old", annotated(map[string]string{v1alpha1.AnnotationBudgetKWh: "9"}))
	old.CreationTimestamp = metav1.NewTime(monday.AddDate(0, 0, -7))
	if err := w.api.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	e.sweepAndWork(t.Context())
	for i := range jobs {
		if name := fmt.Sprint("j", i); w.suspended(name) != (i%3 == 0) {
			t.Errorf("%s: suspended is %v", name, w.suspended(name))
		}
	}
	if n := books.asked.Load(); n > 4 {
		t.Errorf("got %d queries for %d Jobs", n, jobs)
	}
}

func TestPodsAndNamespaces(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	pod := func(name string, owner *metav1.OwnerReference, annotations map[string]string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(uidOf(name)), Annotations: annotations,
			CreationTimestamp: metav1.NewTime(monday),
			Labels:            map[string]string{"pod-template-hash": "5d8"},
		}}
		if owner != nil {
			owner.Controller = new(true)
			p.OwnerReferences = []metav1.OwnerReference{*owner}
		}
		return p
	}
	own := map[string]string{v1alpha1.AnnotationBudgetKWh: "0.5", v1alpha1.AnnotationBudgetAction: "label"}
	space := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "team", Labels: map[string]string{gardener + "energy-policies": "enabled"},
		Annotations: map[string]string{
			gardener + "workload-service-policy-energy-budget-kwh": "0.1",
			gardener + "policy-energy-budget-action":               "label",
		},
	}}
	all := []*v1.Pod{
		pod("bare", nil, own), pod("shop-5d8-x", &metav1.OwnerReference{Kind: "ReplicaSet", Name: "shop-5d8"}, own),
		pod("other-5d8-x", &metav1.OwnerReference{Kind: "ReplicaSet", Name: "other-5d8"}, nil),
		pod("of-a-job", &metav1.OwnerReference{Kind: "Job", Name: "j"}, own),
		pod("plain", nil, nil),
	}
	w := newWorld(t, space, all[0], all[1], all[2], all[3], all[4])
	e := w.engine("a", nil, clock.now)
	for _, p := range all {
		account := ledger.Account{Kind: ledger.Workload, Namespace: "team", OwnerKind: "Pod", Owner: p.Name}
		if len(p.OwnerReferences) > 0 {
			account.OwnerKind, account.Owner = "Deployment", "shop"
		}
		w.book(monday, monday.Add(time.Minute), oneKWh,
			ledger.Consumer{Key: "pod/" + string(p.UID), Pod: p.Name, Account: account})
	}
	for range 2 {
		e.sweepAndWork(t.Context())
	}
	for name, want := range map[string]bool{
		"bare": true, "shop-5d8-x": true, "other-5d8-x": true, "of-a-job": false, "plain": false,
	} {
		p := &v1.Pod{}
		if err := w.api.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: name}, p); err != nil {
			t.Fatal(err)
		}
		if got := p.Labels[v1alpha1.AnnotationBudgetExceeded] == "true"; got != want {
			t.Errorf("%s: %v", name, p.Labels)
		}
		if p.Labels["pod-template-hash"] != "5d8" {
			t.Errorf("pod %s has lost a label", name)
		}
	}
}

func TestPerWorkload(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	each := newBudget(func(b *v1alpha1.EnergyBudget) {
		b.Spec.Per, b.Spec.Period.Type = v1alpha1.PerWorkload, v1alpha1.PeriodLifetime
	}, append(do(v1alpha1.DeedSuspend, v1alpha1.DeedNotify), v1alpha1.BudgetAction{At: 50, Do: v1alpha1.DeedEvent})...)
	w := newWorld(t, each, newJob("a", nil), newJob("b", nil), newJob("c", nil))
	e := w.engine("a", nil, clock.now)
	for job, used := range map[string]float64{"a": 0.4, "b": 0.75, "c": 1.5} {
		w.used(monday, monday.Add(time.Minute), energyOf(used), "team", "Job/"+job)
	}
	for range 3 {
		e.sweepAndWork(t.Context())
	}
	for job, want := range map[string]bool{"a": false, "b": false, "c": true} {
		if w.suspended(job) != want {
			t.Errorf("%s: %v", job, w.suspended(job))
		}
	}
	events := w.events()
	if count(events["Job/a"], eventWarning) != 0 || count(events["Job/b"], eventWarning) != 1 ||
		count(events["Job/c"], eventWarning) != 1 || w.posted() != 1 {
		t.Error(events, w.posted())
	}
	clock.at = clock.at.Add(writeEvery + time.Second) // after the minimum interval between numeric updates
	e.sweepAndWork(t.Context())
	s := w.budget("month").Status
	if s.Percent != 150 || s.Used.EnergyKWh != 1.5 || s.Suspended != 1 || !s.Exhausted {
		t.Errorf("%+v", s)
	}
	if m := w.posts[0]; m.Workload != "Job/c" || m.Budget != "month" {
		t.Errorf("%+v", m)
	}
	if err := w.api.Delete(t.Context(), w.budget("month"), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	e.sweepAndWork(t.Context())
	if w.suspended("c") {
		t.Error("the Job was not resumed after its budget had been deleted")
	}
}

func energyOf(kWh float64) energy.Microjoules { return energy.Microjoules(kWh * float64(oneKWh)) }

func FuzzReadRecord(f *testing.F) {
	f.Add("3fa9c01b22:d 0011223344:1770000000.2")
	f.Add(":: a:d a:1.1 b:-1.0 c:9999999999999999999.1")
	f.Fuzz(func(t *testing.T, text string) {
		defer memtest.Limit(t, 100*len(text))()
		all := readRecord(text)
		if len(all) > maxRecord {
			t.Fatal(len(all))
		}
		delete(all, "") // keys are never empty
		if again := readRecord(all.String()); len(again) != len(all) {
			t.Fatalf("%q was parsed as %q", all, again)
		}
	})
}
