package budget

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestOverrun runs a Job with a budget of 1 kWh and the action Suspend. The agent samples every 15 s. The Job must
// not exceed its limit by more than the usage in one sampling interval before it is suspended.
func TestOverrun(t *testing.T) {
	const sampling = 15 * time.Second
	for _, watts := range []energy.Microjoules{2000, 7300, 120_000} { // joules per second
		for _, phase := range []time.Duration{0, 3 * time.Second, 14 * time.Second} {
			synctest.Test(t, func(t *testing.T) {
				budget := newBudget(func(b *v1alpha1.EnergyBudget) { b.Spec.Period.Type = v1alpha1.PeriodLifetime },
					do(v1alpha1.DeedSuspend)...)
				w := newWorld(t, budget, newJob("hungry",
					func(j *batchv1.Job) { j.CreationTimestamp = metav1.NewTime(time.Now()) }))
				ctx, cancel := context.WithCancel(t.Context())
				e := w.engine("a", nil, nil)
				ended := make(chan error)
				bubble.Advance(phase)
				go func() { ended <- e.Run(ctx) }()
				power, used := watts*1e6, oneKWh*97/100 // just below the limit
				w.used(time.Now().Add(-time.Hour), time.Now(), used, "team", "Job/hungry")
				for range 100 {
					from := time.Now()
					interval := energy.Microjoules(0)
					for range int(sampling / time.Second) {
						if !w.suspended("hungry") {
							interval += power
						}
						bubble.Advance(time.Second)
					}
					used += interval
					if interval > 0 {
						w.used(from, time.Now(), interval, "team", "Job/hungry")
						e.Booked()
						synctest.Wait()
					}
					if w.suspended("hungry") {
						break
					}
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				over, most := used-oneKWh, power*energy.Microjoules(sampling/time.Second)
				t.Logf("%d W, phase %v: exceeded by %.4f kWh, interval %.4f kWh", watts, phase, over.Joules().KWh(),
					most.Joules().KWh())
				if !w.suspended("hungry") || over < 0 || over > most {
					t.Errorf("%d W, phase %v: exceeded by %v µJ, want at most %v", watts, phase, over, most)
				}
			})
		}
	}
}

func TestSuspendAndResume(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(
		t, newBudget(nil, do(v1alpha1.DeedSuspend)...), newJob("running", nil), newJob("cron", func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "CronJob", Name: "c", Controller: new(true),
			}}
		}),
		newJob("paused", func(j *batchv1.Job) { j.Spec.Suspend = new(true) }),
		newJob("workflow", func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow", Name: "c",
			}}
		}),
		newJob("queued", func(j *batchv1.Job) { j.Labels = map[string]string{policy.LabelKueueQueue: "q"} }),
		newJob("over", func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
		}),
		newJob("queue", nil),
		newJob("drained", func(j *batchv1.Job) { j.Status.Succeeded = 1 }),
		newJob("draining", func(j *batchv1.Job) {
			j.Status.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{Succeeded: []types.UID{"pod"}}
		}),
		newJob("tasks", func(j *batchv1.Job) { j.Spec.Completions, j.Status.Succeeded = new(int32(9)), 1 }),
		newJob("let",
			func(j *batchv1.Job) { j.Annotations = map[string]string{v1alpha1.AnnotationBudgetReleased: "month"} }),
		newJob("elsewhere", func(j *batchv1.Job) { j.Namespace = "others" }),
	)
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh*9/10, "team", "Job/running")
	w.used(monday, monday.Add(time.Minute), oneKWh*9, "others", "Job/x")
	e.sweepAndWork(t.Context())
	if s := w.budget("month").Status; s.Percent != 90 || s.Exhausted || s.Used.EnergyKWh != 0.9 ||
		w.suspended("running") {
		t.Fatalf("%+v", s)
	}
	w.used(monday.Add(time.Minute), monday.Add(2*time.Minute), oneKWh/5, "team", "Deployment/shop")
	e.sweepAndWork(t.Context())
	for name, want := range map[string]bool{
		"running": true, "cron": true, "paused": true, "workflow": false, "queued": false, "over": false, "let": false,
		"queue": true, "drained": false, "draining": false, "tasks": true,
	} {
		j := w.job(name)
		_, labelled := j.Labels[v1alpha1.LabelBudgetSuspended]
		if *j.Spec.Suspend != want || labelled != (want && name != "paused") {
			t.Errorf("%s: suspended %v, labelled %v", name, *j.Spec.Suspend, labelled)
		}
	}
	if till := w.job("running").Annotations[v1alpha1.AnnotationBudgetSuspendedTill]; till != "2026-07-01T00:00:00Z" {
		t.Error(till)
	}
	s := w.budget("month").Status
	if !s.Exhausted || len(s.Actions) != 1 || s.Actions[0].Done == nil ||
		w.condition().Status != metav1.ConditionFalse {
		t.Errorf("%+v", s)
	}
	// Jobs that are created or resumed later are suspended too.
	if err := w.api.Create(t.Context(), newJob("late", nil)); err != nil {
		t.Fatal(err)
	}
	clock.at = clock.at.Add(time.Minute)
	e.sweepAndWork(t.Context())
	if !w.suspended("late") || w.budget("month").Status.Suspended != 4 {
		t.Error("a later Job was not suspended", w.budget("month").Status.Suspended)
	}

	for name, end := range map[string]func(){
		"the limit is raised": func() {
			w.update(func(b *v1alpha1.EnergyBudget) {
				b.Spec.Limits.EnergyKWh = new(5.0)
			})
		},
		"the period ends":       func() { clock.at = clock.at.AddDate(0, 1, 0) },
		"the action is removed": func() { w.update(func(b *v1alpha1.EnergyBudget) { b.Spec.Actions = nil }) },
		"the budget is deleted": func() {
			if err := w.api.Delete(t.Context(), w.budget("month")); err != nil {
				t.Fatal(err)
			}
		},
		"holding is disabled": func() { e.o.MaySuspend = func(context.Context) error { return ErrHoldsOff } },
	} {
		t.Run(name, func(t *testing.T) {
			previous, budget := *clock, w.budget("month")
			for _, j := range []string{"running", "late"} {
				if !w.suspended(j) {
					t.Fatal("a Job is not suspended at the start")
				}
			}
			end()
			e.sweepAndWork(t.Context())
			for _, j := range []string{"running", "cron", "late"} {
				if o := w.job(j); *o.Spec.Suspend || o.Labels[v1alpha1.LabelBudgetSuspended] != "" ||
					o.Annotations[v1alpha1.AnnotationBudgetSuspendedTill] != "" {
					t.Errorf("%s: %+v", j, o)
				}
			}
			if !w.suspended("paused") {
				t.Error("a Job suspended by its user was resumed")
			}
			// Restore the initial state.
			*clock = previous
			e.o.MaySuspend = func(context.Context) error { return nil }
			_ = w.api.Delete(t.Context(), budget.DeepCopy())
			budget.ResourceVersion, budget.Status = "", v1alpha1.EnergyBudgetStatus{}
			budget.Spec.Limits.EnergyKWh, budget.Spec.Actions = new(1.0), do(v1alpha1.DeedSuspend)
			if err := w.api.Create(t.Context(), budget); err != nil {
				t.Fatal(err)
			}
			e.sweepAndWork(t.Context())
			e.sweepAndWork(t.Context())
		})
	}
}

func TestHoldNewWork(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newBudget(nil, do(v1alpha1.DeedHoldNewWork)...))
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh*2, "team", "Job/j")
	e.sweepAndWork(t.Context())
	s := w.budget("month").Status
	if s.ClosedUntil == nil || !s.ClosedUntil.Equal(s.PeriodEnd) || s.AsOf == nil {
		t.Fatalf("%+v", s)
	}
	// Consumers ignore old statuses, so it must be updated even without changes.
	for range 40 {
		clock.at = clock.at.Add(5 * time.Second)
		e.sweepAndWork(t.Context())
		if age := clock.at.Sub(w.budget("month").Status.AsOf.Time); age > refreshEvery {
			t.Fatalf("the age of the status is %v", age)
		}
	}
	// It must not be updated more often.
	version := w.budget("month").ResourceVersion
	for range 10 {
		clock.at = clock.at.Add(time.Second)
		e.sweepAndWork(t.Context())
	}
	if w.budget("month").ResourceVersion != version {
		t.Error("the status was updated without a change")
	}
	w.update(func(b *v1alpha1.EnergyBudget) { b.Spec.Period.Type = v1alpha1.PeriodLifetime })
	e.sweepAndWork(t.Context())
	if s := w.budget("month").Status; s.ClosedUntil == nil || s.ClosedUntil.Year() != 2200 || s.PeriodEnd != nil {
		t.Errorf("%+v", s)
	}
	w.update(func(b *v1alpha1.EnergyBudget) { b.Spec.Limits.EnergyKWh = new(3.0) })
	e.sweepAndWork(t.Context())
	if s := w.budget("month").Status; s.ClosedUntil != nil || s.Exhausted {
		t.Errorf("%+v", s)
	}
}

// TestTeamOfANamespace verifies that a Job without a label belongs to the team of its namespace wherever budgets
// are evaluated. Otherwise the Job could be suspended and resumed repeatedly, deleting its pods each time.
func TestTeamOfANamespace(t *testing.T) {
	for _, per := range []string{v1alpha1.PerScope, v1alpha1.PerWorkload} {
		clock := &clockAt{monday.Add(time.Hour)}
		w := newWorld(t, newJob("j", nil), newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Spec.Per, b.Spec.Scope = per, v1alpha1.BudgetScope{Teams: []string{"vision"}}
			if per == v1alpha1.PerWorkload {
				b.Spec.Period.Type = v1alpha1.PeriodLifetime
			}
		}, do(v1alpha1.DeedSuspend, v1alpha1.DeedLabel)...))
		w.book(monday, monday.Add(time.Minute), oneKWh*2, ledger.Consumer{
			Key: "pod/" + uidOf("Job/j"), Pod: "j-x", Account: ledger.Account{
				Kind: ledger.Workload, Namespace: "team", OwnerKind: "Job", Owner: "j", Team: "vision",
			},
		})
		e := w.engine("a", nil, clock.now)
		e.o.TeamOf = func(string, string) string { return "vision" }
		for range 4 {
			e.sweepAndWork(t.Context())
			clock.at = clock.at.Add(time.Minute)
		}
		j := w.job("j")
		if !*j.Spec.Suspend || j.Labels[v1alpha1.AnnotationBudgetExceeded] != "true" {
			t.Errorf("%s: suspended is %v, got labels %v", per, *j.Spec.Suspend, j.Labels)
		}
		if got := w.events()["Job/j"]; slices.Contains(got, eventResumed) {
			t.Errorf("%s: the Job was suspended and resumed repeatedly: %v", per, got)
		}
	}
}

// TestClustersThatCount verifies the cluster scope with 2 kWh in this cluster and 3 kWh in another one.
func TestClustersThatCount(t *testing.T) {
	for _, c := range []struct {
		clusters []string
		percent  float64
	}{
		{nil, 20},
		{[]string{"."}, 20},
		{[]string{"home"}, 20},
		{[]string{"alpha"}, 30},
		{[]string{".", "alpha"}, 50},
		{[]string{"alpha", "home"}, 50},
		{[]string{"beta"}, 0},
	} {
		w := newWorld(t, newBudget(func(b *v1alpha1.EnergyBudget) {
			b.Spec.Limits.EnergyKWh, b.Spec.Scope.Clusters = new(10.0), c.clusters
		}))
		w.used(monday, monday.Add(time.Minute), oneKWh*2, "team", "Job/j")
		w.bookIn("alpha/", monday, monday.Add(time.Minute), oneKWh, ledger.Consumer{
			Key: "pod/" + uidOf("Job/k"), Account: ledger.Account{
				Kind: ledger.Workload, Namespace: "team", OwnerKind: "Job", Owner: "k",
			},
		})
		e := w.engine("a", nil, (&clockAt{monday.Add(time.Hour)}).now)
		e.o.Cluster = "home"
		e.sweepAndWork(t.Context())
		if got := w.budget("month").Status.Percent; got != c.percent {
			t.Errorf("clusters %q: got %v %%, want %v", c.clusters, got, c.percent)
		}
	}
}

func TestEachActionOnce(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	actions := append(do(v1alpha1.DeedLog, v1alpha1.DeedEvent, v1alpha1.DeedNotify, v1alpha1.DeedAnnotate,
		v1alpha1.DeedLabel),
		v1alpha1.BudgetAction{At: 80, Do: v1alpha1.DeedEvent})
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "shop", UID: "shop"}}
	w := newWorld(t, newBudget(nil, actions...), newJob("j", nil), pod)
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh*85/100, "team", "Job/j")
	for range 3 {
		e.sweepAndWork(t.Context())
	}
	if got := w.events()["EnergyBudget/month"]; !slices.Equal(got, []string{eventWarning}) || w.posted() != 0 {
		t.Fatal(got, w.posted())
	}
	w.used(monday.Add(time.Minute), monday.Add(2*time.Minute), oneKWh*45/100, "team", "Job/j")
	for range 5 {
		clock.at = clock.at.Add(time.Minute)
		e.sweepAndWork(t.Context())
	}
	got := w.events()["EnergyBudget/month"]
	slices.Sort(got)
	if !slices.Equal(got, []string{eventExceeded, eventWarning}) || w.posted() != 1 ||
		strings.Count(w.logged(), "Energy budget has reached") != 1 {
		t.Error(got, w.posted(), w.logged())
	}
	m := w.posts[0]
	if m.Percent != 130 || m.Budget != "month" || m.Namespace != "team" || !m.Exhausted || m.Key == "" ||
		m.Used.EnergyKWh != 1.3 || *m.Used.CarbonGrams != 650 {
		t.Errorf("%+v", m)
	}
	j := w.job("j")
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	for _, o := range []metav1.Object{j, pod} {
		if o.GetAnnotations()[v1alpha1.AnnotationBudgetExceededBy] != "0.300000" ||
			o.GetLabels()[v1alpha1.AnnotationBudgetExceeded] != "true" {
			t.Errorf("%+v", o)
		}
	}
	// In the next period all actions are carried out again.
	clock.at = clock.at.AddDate(0, 1, 0)
	from := clock.at.Add(-time.Minute)
	w.used(from, clock.at, oneKWh*2, "team", "Job/j")
	for range 3 {
		e.sweepAndWork(t.Context())
	}
	if w.posted() != 2 || w.posts[1].Key == m.Key || len(w.events()["EnergyBudget/month"]) != 4 {
		t.Error(w.posted(), w.events())
	}
}

func TestScopesAndLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*v1alpha1.EnergyBudget)
		percent float64
	}{
		"all":       {nil, 600},
		"a Job":     {func(b *v1alpha1.EnergyBudget) { b.Spec.Scope.Owners = []string{"Job/a"} }, 100},
		"two":       {func(b *v1alpha1.EnergyBudget) { b.Spec.Scope.Owners = []string{"Job/a", "Deployment/b"} }, 300},
		"a CronJob": {func(b *v1alpha1.EnergyBudget) { b.Spec.Scope.Owners = []string{"CronJob/c"} }, 300},
		"both":      {func(b *v1alpha1.EnergyBudget) { b.Spec.Scope.Owners = []string{"CronJob/c", "Job/a"} }, 400},
		"a team":    {func(b *v1alpha1.EnergyBudget) { b.Spec.Scope.Teams = []string{"red"} }, 300},
		"owner in a team": {func(b *v1alpha1.EnergyBudget) {
			b.Spec.Scope.Teams, b.Spec.Scope.Owners = []string{"red"}, []string{"Job/a"}
		}, 0},
		"carbon": {
			func(b *v1alpha1.EnergyBudget) { b.Spec.Limits = v1alpha1.BudgetLimits{CarbonGrams: new(1000.0)} },
			300,
		},
		"another signal": {func(b *v1alpha1.EnergyBudget) {
			b.Spec.Limits = v1alpha1.BudgetLimits{CarbonGrams: new(1000.0), CarbonSignal: "Marginal"}
		}, 0},
		"cost": {func(b *v1alpha1.EnergyBudget) {
			b.Spec.Limits = v1alpha1.BudgetLimits{Cost: &v1alpha1.BudgetCost{Amount: 3, Currency: "EUR"}}
		}, 50},
		"another currency": {func(b *v1alpha1.EnergyBudget) {
			b.Spec.Limits = v1alpha1.BudgetLimits{Cost: &v1alpha1.BudgetCost{Amount: 3, Currency: "USD"}}
		}, 0},
		"the highest": {func(b *v1alpha1.EnergyBudget) { b.Spec.Limits.CarbonGrams = new(10.0) }, 30000},
		"this day":    {func(b *v1alpha1.EnergyBudget) { b.Spec.Period.Type = v1alpha1.PeriodDay }, 600},
		"last year": {
			func(b *v1alpha1.EnergyBudget) { b.Spec.Period = fixed(-365*24*time.Hour, -24*time.Hour) },
			0,
		},
		"next year":   {func(b *v1alpha1.EnergyBudget) { b.Spec.Period = fixed(24*time.Hour, 48*time.Hour) }, 0},
		"a lifetime":  {func(b *v1alpha1.EnergyBudget) { b.Spec.Period.Type = v1alpha1.PeriodLifetime }, 600},
		"this hour":   {func(b *v1alpha1.EnergyBudget) { b.Spec.Period = fixed(0, 2*time.Hour) }, 600},
		"a time zone": {func(b *v1alpha1.EnergyBudget) { b.Spec.Period.TimeZone = "Pacific/Auckland" }, 600},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &clockAt{monday.Add(time.Hour)}
			w := newWorld(t, newBudget(tc.change))
			w.used(monday, monday.Add(time.Minute), oneKWh, "team", "Job/a")
			w.used(monday, monday.Add(time.Minute), 2*oneKWh, "team", "Deployment/b")
			w.book(monday, monday.Add(time.Minute), 3*oneKWh, consumer("Job/c-1", "c", "red"))
			e := w.engine("a", nil, clock.now)
			e.sweepAndWork(t.Context())
			s := w.budget("month").Status
			if s.Percent != tc.percent || s.AsOf == nil {
				t.Errorf("got %v%%, want %v: %+v", s.Percent, tc.percent, s)
			}
		})
	}
}

func fixed(from, to time.Duration) v1alpha1.BudgetPeriod {
	a, b := metav1.NewTime(monday.Add(from)), metav1.NewTime(monday.Add(to))
	return v1alpha1.BudgetPeriod{Type: v1alpha1.PeriodFixed, From: &a, To: &b}
}

// TestUnknownIsNotNothing verifies that unknown values are reported and that no action is started or reverted while
// the ledger is unavailable.
func TestUnknownIsNotNothing(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newBudget(func(b *v1alpha1.EnergyBudget) {
		b.Spec.Limits = v1alpha1.BudgetLimits{
			EnergyKWh: new(1.0), CarbonGrams: new(400.0), Cost: &v1alpha1.BudgetCost{Amount: 1, Currency: "EUR"},
		}
	}, do(v1alpha1.DeedSuspend)...), newJob("j", nil))
	w.used(monday, monday.Add(time.Minute), oneKWh/4, "team", "Job/j")
	w.rates.Carbon, w.rates.Price = nan, nan
	w.used(monday.Add(time.Minute), monday.Add(2*time.Minute), oneKWh/4, "team", "Job/j")
	e := w.engine("a", nil, clock.now)
	e.sweepAndWork(t.Context())
	s := w.budget("month").Status
	if s.UnchartedShare != 0.5 || s.UnpricedShare != 0.5 || *s.Used.CarbonGrams != 125 ||
		!strings.Contains(w.condition().Message, "50% of the energy has unknown emissions") {
		t.Errorf("%+v %s", s, w.condition().Message)
	}
	good := e.o.Ledger
	e.o.Ledger = broken{}
	clock.at = clock.at.Add(10 * time.Minute)
	e.sweepAndWork(t.Context())
	if c := w.condition(); c.Status != metav1.ConditionUnknown || c.Reason != reasonUnknown ||
		w.budget("month").Status.Percent != 50 {
		t.Errorf("%+v", c)
	}
	e.o.Ledger = good
	w.used(monday.Add(2*time.Minute), monday.Add(3*time.Minute), oneKWh, "team", "Job/j")
	e.sweepAndWork(t.Context())
	if !w.suspended("j") {
		t.Fatal("the Job was not suspended")
	}
	e.o.Ledger = broken{}
	for range 5 {
		clock.at = clock.at.Add(10 * time.Minute)
		e.sweepAndWork(t.Context())
	}
	if !w.suspended("j") {
		t.Error("the Job was resumed while the ledger is unavailable")
	}
	clock.at = monday.AddDate(0, 1, 0)
	e.sweepAndWork(t.Context())
	if w.suspended("j") {
		t.Error("the Job was not resumed after its period")
	}
}

type broken struct{ Ledger }

func (broken) Query(context.Context, *ledger.Query) (*ledger.Answer, error) {
	return nil, errors.New("the disk is unavailable")
}

// TestLateEnergyDoesNotSuspend verifies that energy reported more than an hour late, which a compromised agent
// could fabricate, is mentioned in the condition but does not suspend Jobs.
func TestLateEnergyDoesNotSuspend(t *testing.T) {
	clock := &clockAt{monday.Add(time.Hour)}
	w := newWorld(t, newBudget(nil, do(v1alpha1.DeedSuspend)...), newJob("running", nil))
	e := w.engine("a", nil, clock.now)
	w.used(monday, monday.Add(time.Minute), oneKWh/2, "team", "Job/running")
	w.book(monday, monday.Add(time.Minute), 4000*oneKWh, ledger.Consumer{
		Key: "pod/" + uidOf("Job/other"), Pod: "other-x",
		Account: ledger.Account{Kind: ledger.Late, Namespace: "team", OwnerKind: "Job", Owner: "running"},
	})
	e.sweepAndWork(t.Context())
	if s := w.budget("month").Status; s.Percent != 50 || s.Exhausted || w.suspended("running") {
		t.Fatalf("%+v", s)
	}
	if text := w.condition().Message; !strings.Contains(text, "4000 kWh were over an hour late") {
		t.Error(text)
	}
}
