package budget

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Ledger is the interface for querying the usage.
type Ledger interface {
	Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error)
}

// question contains the query parameters shared by several budgets. Budgets with equal questions share a query.
type question struct {
	period
	by, clusters string // space-separated dimensions and clusters
}

// questionOf returns the query parameters for a budget.
func questionOf(b *v1alpha1.EnergyBudget, p period, now time.Time) question {
	by, scope := string(ledger.ByNamespace), &b.Spec.Scope
	if slices.ContainsFunc(scope.Owners, func(owner string) bool { return !strings.HasPrefix(owner, cronJob) }) {
		by += " " + string(ledger.ByOwner)
	}
	if len(scope.Owners) > 0 {
		by += " " + string(ledger.ByParent)
	}
	if len(scope.Teams) > 0 {
		by += " " + string(ledger.ByTeam)
	}
	return question{p.asked(now), by, cmp.Or(strings.Join(scope.Clusters, " "), ledger.OwnCluster)}
}

const cronJob = "CronJob/"

// inScope reports whether a row of the result is in a scope.
func inScope(by []ledger.Dimension, key []string, s *v1alpha1.BudgetScope) bool {
	var o policy.Owners
	for i, d := range by {
		switch d {
		case ledger.ByOwner:
			o.Owner = key[i]
		case ledger.ByParent:
			o.Parent = key[i]
		case ledger.ByTeam:
			o.Team = key[i]
		}
	}
	if o.InScope(s) || o.Parent == "" || strings.Contains(o.Parent, "/") {
		return o.InScope(s)
	}
	o.Parent = cronJob + o.Parent // the parent of a CronJob's Job may lack the kind
	return o.InScope(s)
}

// ask queries the ledger and sets the usage of budgets. If a query fails, the usage of its budgets remains unknown.
// Budgets with equal parameters share a query.
func (e *Engine) ask(ctx context.Context, all []*budgetCase, now time.Time) (failed error) {
	together := map[question][]*budgetCase{}
	for _, c := range all {
		if c.err == nil {
			q := questionOf(c.budget, c.period, now)
			together[q] = append(together[q], c)
		}
	}
	for q, cases := range together {
		by := grouped(cases, func(c *budgetCase) string { return c.budget.Namespace })
		groupBy := sliceutil.Map(strings.Fields(q.by), func(d string) ledger.Dimension { return ledger.Dimension(d) })
		failed = cmp.Or(failed, sum(ctx, e, by, 1, func(c *budgetCase, key []string) bool {
			return inScope(groupBy, key, &c.budget.Spec.Scope)
		}, &ledger.Query{
			From: q.from, To: q.to, GroupBy: groupBy, Namespaces: sortedKeys(by),
			Kinds: ledger.Workloads(), Clusters: strings.Fields(q.clusters), Own: e.o.Cluster,
		}))
	}
	return failed
}

func grouped[T any](all []T, by func(T) string) map[string][]T {
	groups := map[string][]T{}
	for _, one := range all {
		groups[by(one)] = append(groups[by(one)], one)
	}
	return groups
}

// queryTimeout limits each query, so that a store that hangs does not block budgets that are independent of it.
const queryTimeout = 20 * time.Second

// sum runs a query and sets the usage of accounts. It adds each row to the accounts with the row's first keys if
// counts returns true. Late energy is added separately because it does not trigger actions.
func sum[T interface{ base() *account }](ctx context.Context, e *Engine, by map[string][]T, keys int,
	counts func(T, []string) bool, q *ledger.Query,
) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	q.GroupBy = append(slices.Clip(q.GroupBy), ledger.ByKind)
	if len(q.Clusters) == 0 {
		q.Clusters = []string{ledger.OwnCluster} // Jobs of other clusters may have the same name
	}
	asked := e.o.Now()
	answer, err := e.o.Ledger.Query(ctx, q)
	if err != nil {
		return fmt.Errorf("querying the ledger: %w", err)
	}
	for _, some := range by {
		for _, a := range some {
			a.base().use = &use{asOf: asked}
		}
	}
	for i := range answer.Rows {
		key := answer.Rows[i].Key
		for _, a := range by[strings.Join(key[:keys], " ")] {
			switch {
			case !counts(a, key):
			case key[len(key)-1] == ledger.Late.String():
				a.base().use.late += answer.Rows[i].Energy()
			default:
				a.base().use.Include(&answer.Rows[i])
			}
		}
	}
	return nil
}

// maxNames is the maximum number of owners or pods in a query.
const maxNames = 500

// askOwn queries the usage of Jobs and pods since their creation.
func (e *Engine) askOwn(ctx context.Context, all []*allowance, now time.Time) error {
	var pods, owners []*allowance
	for _, a := range all {
		// The usage of a pod's owner may include other pods, so it is queried by the pod's UID.
		if p, ok := a.object.(*v1.Pod); ok && policy.PodOwners(p).Owner != a.workload() {
			pods = append(pods, a)
		} else {
			owners = append(owners, a)
		}
	}
	for some := range slices.Chunk(owners, maxNames) {
		if err := e.askOwners(ctx, some, now); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(pods, maxNames) {
		by, p := grouped(some, func(a *allowance) string { return string(a.object.GetUID()) }), since(some, now)
		if err := sum(ctx, e, by, 1, anyRow, &ledger.Query{
			From: p.from, To: p.to, GroupBy: []ledger.Dimension{ledger.ByUID}, Pods: sortedKeys(by),
		}); err != nil {
			return err
		}
	}
	return nil
}

func anyRow(*allowance, []string) bool { return true }

// since returns the time range of a query that starts at the earliest creation time of the workloads.
func since(all []*allowance, now time.Time) period {
	first := slices.MinFunc(all, func(a, b *allowance) int {
		return a.object.GetCreationTimestamp().Compare(b.object.GetCreationTimestamp().Time)
	})
	return period{from: first.object.GetCreationTimestamp().Time}.asked(now)
}

// hourly is the maximum age of Jobs with reused names that are queried by hour in a single query. For older Jobs
// such a query would return too many rows, so these are grouped by the hour of their creation.
const hourly = 48 * time.Hour

func (e *Engine) askOwners(ctx context.Context, all []*allowance, now time.Time) error {
	if err := e.sumOwners(ctx, all, now, false); err != nil {
		return err
	}
	again := map[time.Time][]*allowance{} // by hour of creation; zero for recent Jobs
	for _, a := range all {
		// Another object had the same name before, so query the time since the creation of this one, rounded to
		// hours.
		made := a.made()
		if a.use.First.IsZero() || !a.use.First.Before(made) {
			continue
		}
		if now.Sub(made) < hourly {
			made = time.Time{}
		}
		again[made] = append(again[made], a)
		a.use = nil
	}
	for made, some := range again {
		if err := e.sumOwners(ctx, some, now, made.IsZero()); err != nil {
			return err
		}
	}
	return nil
}

// made returns the creation time truncated to the hour, because the ledger does not retain finer time ranges for
// long.
func (a *allowance) made() time.Time {
	return a.object.GetCreationTimestamp().UTC().Truncate(time.Hour)
}

// sumOwners queries the usage of workloads since the earliest creation time. If byHour is true, it adds up only the
// hours since the creation of each workload.
func (e *Engine) sumOwners(ctx context.Context, all []*allowance, now time.Time, byHour bool) error {
	namespaceOf := func(a *allowance) string { return a.object.GetNamespace() }
	p := since(all, now)
	q := &ledger.Query{
		From: p.from.Truncate(time.Hour), To: p.to, GroupBy: []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner},
		Owners:     sortedKeys(grouped(all, (*allowance).workload)),
		Namespaces: sortedKeys(grouped(all, namespaceOf)), Kinds: ledger.Workloads(),
	}
	counts := anyRow
	if byHour {
		q.GroupBy = append(q.GroupBy, ledger.ByHour)
		counts = func(a *allowance, key []string) bool {
			hour, err := time.Parse(time.RFC3339, key[2])
			return err != nil || !hour.Before(a.made())
		}
	}
	by := grouped(all, func(a *allowance) string { return namespaceOf(a) + " " + a.workload() })
	return sum(ctx, e, by, 2, counts, q)
}
