package budget

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

// world is a fake API server, a ledger and a webhook receiver.
type world struct {
	t     *testing.T
	api   client.WithWatch
	books *ledgertest.Store
	rates ledger.Rates
	last  map[string]uint64

	mu    sync.Mutex
	posts []*Message
	fails func(*Message) error
	log   strings.Builder
}

var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
})

var monday = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, books: &ledgertest.Store{}, last: map[string]uint64{},
		rates: ledger.Rates{Site: "de", PUE: 1, Carbon: 500, Signal: "average", Price: 0.25, Currency: "EUR"},
	}
	w.api = fake.NewClientBuilder().WithScheme(scheme()).WithObjects(objects...).WithStatusSubresource(
		&v1alpha1.EnergyBudget{}).WithIndex(&batchv1.Job{}, cached.AllowanceIndex, cached.ByAllowance).WithIndex(
		&v1.Pod{}, cached.AllowanceIndex, cached.ByAllowance).Build()
	return w
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *world) post(_ context.Context, _ string, m *Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails != nil {
		if err := w.fails(m); err != nil {
			return err
		}
	}
	w.posts = append(w.posts, m)
	return nil
}

func (w *world) posted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.posts)
}

// engine returns an Engine with the given client and clock. If they are nil, the defaults are used.
func (w *world) engine(name string, api client.Client, now func() time.Time) *Engine {
	w.t.Helper()
	if api == nil {
		api = w.api
	}
	if now == nil {
		now = time.Now
	}
	e, err := New(Options{
		Ledger: w.books, Client: api, Direct: api, Identity: name, Now: now, Webhook: "https://hooks.example",
		MaySuspend: func(context.Context) error { return nil }, Ready: func() bool { return true },
		TeamOf: func(_, named string) string { return named },
		Log:    slog.New(slog.NewTextHandler(w, nil)), deliver: w.post, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

// sweepAndWork runs a sweep and all tasks that it adds to the lanes.
func (e *Engine) sweepAndWork(ctx context.Context) {
	e.sweep(ctx)
	for {
		select {
		case x := <-e.tasks.waiting[telling]:
			e.runTask(ctx, x)
		case x := <-e.tasks.waiting[marking]:
			e.runTask(ctx, x)
		case x := <-e.tasks.waiting[posting]:
			e.runTask(ctx, x)
		default:
			return
		}
	}
}

// used records the energy of a pod of an owner.
func (w *world) used(from, to time.Time, used energy.Microjoules, namespace, owner string) {
	w.t.Helper()
	kind, name, _ := strings.Cut(owner, "/")
	w.book(from, to, used, ledger.Consumer{
		Key: "pod/" + uidOf(owner), Pod: name + "-x",
		Account: ledger.Account{Kind: ledger.Workload, Namespace: namespace, OwnerKind: kind, Owner: name},
	})
}

func uidOf(owner string) string {
	sum := digest(owner, "")
	return fmt.Sprintf("%s-0000-4000-8000-000000000000", sum[:8])
}

// book records the energy of a consumer in this cluster and, under the same names, in another cluster that budgets
// ignore by default.
func (w *world) book(from, to time.Time, used energy.Microjoules, c ledger.Consumer) {
	w.t.Helper()
	for _, cluster := range []string{"", "alpha/"} {
		w.bookIn(cluster, from, to, used, c)
	}
}

func (w *world) bookIn(cluster string, from, to time.Time, used energy.Microjoules, c ledger.Consumer) {
	w.t.Helper()
	c.Account.Signal, c.Account.Currency, c.Account.Site = w.rates.Signal, w.rates.Currency, w.rates.Site
	node := cluster + "node-" + digest(c.Key)[:6]
	w.last[node]++
	began := from.Sub(time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC))
	_, errs, err := w.books.Book(context.Background(), []*ledger.Booking{{
		Batch: &batch.Batch{
			Version: batch.Version, Stream: batch.Stream{Node: node, Boot: "b", Epoch: "e"}, First: w.last[node],
			Last:  w.last[node],
			Start: from, End: to, StartSinceBoot: began, EndSinceBoot: began + to.Sub(from), Quality: energy.Measured,
			Measured: used,
			Shares:   []energy.Share{{ID: c.Key, Dynamic: used}},
		},
		Received: to, Consumers: []*ledger.Consumer{&c}, Rates: w.rates,
	}})
	if err != nil || errs[0] != nil {
		w.t.Fatal(err, errs)
	}
}

const oneKWh = energy.Microjoules(3.6e12)

func newBudget(change func(*v1alpha1.EnergyBudget), actions ...v1alpha1.BudgetAction) *v1alpha1.EnergyBudget {
	b := &v1alpha1.EnergyBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "month", UID: "budget", Generation: 1},
		Spec: v1alpha1.EnergyBudgetSpec{
			Limits: v1alpha1.BudgetLimits{EnergyKWh: new(1.0)},
			Period: v1alpha1.BudgetPeriod{Type: v1alpha1.PeriodMonth}, Actions: actions,
		},
	}
	if change != nil {
		change(b)
	}
	return b
}

func do(deeds ...v1alpha1.BudgetDeed) (actions []v1alpha1.BudgetAction) {
	for _, d := range deeds {
		actions = append(actions, v1alpha1.BudgetAction{At: 100, Do: d})
	}
	return actions
}

func newJob(name string, change func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(monday),
		},
		Spec: batchv1.JobSpec{Suspend: new(false)},
	}
	if change != nil {
		change(j)
	}
	return j
}

func (w *world) budget(name string) *v1alpha1.EnergyBudget {
	w.t.Helper()
	b := &v1alpha1.EnergyBudget{}
	if err := w.api.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: name}, b); err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) job(name string) *batchv1.Job {
	w.t.Helper()
	j := &batchv1.Job{}
	if err := w.api.Get(context.Background(), types.NamespacedName{Namespace: "team", Name: name}, j); err != nil {
		w.t.Fatal(err)
	}
	return j
}

func (w *world) suspended(name string) bool { return *w.job(name).Spec.Suspend }

// events returns the reasons of events by kind/name of their objects.
func (w *world) events() map[string][]string {
	w.t.Helper()
	var list eventsv1.EventList
	if err := w.api.List(context.Background(), &list); err != nil {
		w.t.Fatal(err)
	}
	all := map[string][]string{}
	for i := range list.Items {
		about := list.Items[i].Regarding.Kind + "/" + list.Items[i].Regarding.Name
		all[about] = append(all[about], list.Items[i].Reason)
	}
	return all
}

func (w *world) update(change func(*v1alpha1.EnergyBudget)) {
	w.t.Helper()
	b := w.budget("month")
	change(b)
	b.Generation++
	if err := w.api.Update(context.Background(), b); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) condition() metav1.Condition {
	for _, c := range w.budget("month").Status.Conditions {
		if c.Type == v1alpha1.ConditionWithinBudget {
			return c
		}
	}
	return metav1.Condition{}
}

// clockAt is a clock that advances only manually.
type clockAt struct{ at time.Time }

func (c *clockAt) now() time.Time { return c.at }

var nan = math.NaN()

func consumer(owner, cronJob, team string) ledger.Consumer {
	kind, name, _ := strings.Cut(owner, "/")
	return ledger.Consumer{Key: "pod/" + uidOf(owner), Pod: name + "-x", Account: ledger.Account{
		Kind: ledger.Workload, Namespace: "team", OwnerKind: kind, Owner: name, Parent: cronJob, Team: team,
	}}
}
