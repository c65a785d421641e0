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
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/policy"
)

// Ledger answers what was used.
type Ledger interface {
	Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error)
}

// question is what several budgets have in common that one query can answer.
type question struct {
	from, to time.Time
	owner    bool // grouped by what is charged
	parent   bool // or only by what made it
	team     bool
}

func (q *question) dimensions() []ledger.Dimension {
	d := []ledger.Dimension{ledger.ByNamespace}
	if q.owner {
		d = append(d, ledger.ByOwner)
	}
	if q.owner || q.parent {
		d = append(d, ledger.ByParent)
	}
	if q.team {
		d = append(d, ledger.ByTeam)
	}
	return d
}

// questionOf returns the question that a budget needs the answer to.
func questionOf(b *v1alpha1.EnergyBudget, p period, now time.Time) question {
	a := p.asked(now)
	q := question{from: a.from, to: a.to, team: len(b.Spec.Scope.Teams) > 0}
	for _, owner := range b.Spec.Scope.Owners {
		if strings.HasPrefix(owner, cronJob) {
			q.parent = true
		} else {
			q.owner = true
		}
	}
	return q
}

const cronJob = "CronJob/"

// inScope reports whether a row of an answer counts for a scope.
func (q *question) inScope(key []string, s *v1alpha1.BudgetScope) bool {
	owner, parent, team, i := "", "", "", 1
	if q.owner {
		owner, i = key[i], i+1
	}
	if q.owner || q.parent {
		parent, i = key[i], i+1
	}
	if q.team {
		team = key[i]
	}
	if len(s.Teams) > 0 && !slices.Contains(s.Teams, team) {
		return false
	}
	if len(s.Owners) == 0 || owner != "" && slices.Contains(s.Owners, owner) {
		return true
	}
	if parent == "" || parent == owner {
		return slices.Contains(s.Owners, parent)
	}
	// Of what a CronJob has made the parent may be a bare name.
	return slices.Contains(s.Owners, parent) || !strings.Contains(parent, "/") &&
		slices.Contains(s.Owners, cronJob+parent)
}

// ask sets what was used of budgets, as far as the ledger says so. Budgets that ask the same share one query.
func (e *Engine) ask(ctx context.Context, all []*budgetCase, now time.Time) error {
	together := map[question][]*budgetCase{}
	for _, c := range all {
		q := questionOf(c.budget, c.period, now)
		together[q] = append(together[q], c)
	}
	var failed error
	for q, cases := range together {
		failed = cmp.Or(failed, e.answer(ctx, q, cases))
	}
	return failed
}

func (e *Engine) answer(ctx context.Context, q question, cases []*budgetCase) error {
	byNamespace := map[string][]*budgetCase{}
	for _, c := range cases {
		byNamespace[c.budget.Namespace] = append(byNamespace[c.budget.Namespace], c)
	}
	asked := e.o.Now()
	rows, err := e.query(ctx, &ledger.Query{
		From: q.from, To: q.to, GroupBy: q.dimensions(), Namespaces: sortedKeys(byNamespace),
		Kinds: []ledger.Kind{ledger.Workload},
	})
	if err != nil {
		return err
	}
	for _, c := range cases {
		c.use = &use{asOf: asked}
	}
	for i := range rows {
		for _, c := range byNamespace[rows[i].Key[0]] {
			if q.inScope(rows[i].Key, &c.budget.Spec.Scope) {
				c.use.Include(&rows[i])
			}
		}
	}
	return nil
}

// queryTimeout keeps a store that hangs from ending all that does not need it.
const queryTimeout = 20 * time.Second

// query returns rows with as many keys as were asked for.
func (e *Engine) query(ctx context.Context, q *ledger.Query) ([]ledger.Row, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := e.o.Ledger.Query(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("asking the ledger: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(a.Rows), func(r ledger.Row) bool { return len(r.Key) != len(q.GroupBy) }), nil
}

// maxNames is how many owners or pods one query names.
const maxNames = 500

// askOwn asks what was used since each Job or pod was made.
func (e *Engine) askOwn(ctx context.Context, all []*allowance, now time.Time) error {
	byOwner, byPod := map[string][]*allowance{}, map[string][]*allowance{}
	for _, a := range all {
		// What a pod's owner uses is not its own.
		if p, ok := a.object.(*v1.Pod); ok && policy.PodOwners(p).Owner != a.workload() {
			byPod[string(p.UID)] = append(byPod[string(p.UID)], a)
		} else {
			byOwner[a.workload()] = append(byOwner[a.workload()], a)
		}
	}
	for chunk := range slices.Chunk(sortedKeys(byOwner), maxNames) {
		var some []*allowance
		for _, owner := range chunk {
			some = append(some, byOwner[owner]...)
		}
		if err := e.askOwners(ctx, some, now); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(sortedKeys(byPod), maxNames) {
		if err := e.askPods(ctx, chunk, byPod, now); err != nil {
			return err
		}
	}
	return nil
}

// since returns when the first of some was made.
func since(all []*allowance) time.Time {
	return slices.MinFunc(all, func(a, b *allowance) int {
		return a.object.GetCreationTimestamp().Compare(b.object.GetCreationTimestamp().Time)
	}).object.GetCreationTimestamp().Time
}

// hourly bounds the age of Jobs whose names were used before and that are asked about hour by hour, all in one query. A
// query about older Jobs would have too many rows: Jobs that were made in the same hour share a query.
const hourly = 48 * time.Hour

func (e *Engine) askOwners(ctx context.Context, all []*allowance, now time.Time) error {
	if err := e.sumOwners(ctx, all, since(all), now, false); err != nil {
		return err
	}
	var recent []*allowance
	older := map[time.Time][]*allowance{}
	for _, a := range all {
		// Another one had this name before: ask about the time since this one was made, to the hour.
		switch made := a.made(); {
		case a.use.First.IsZero() || !a.use.First.Before(made):
			continue
		case now.Sub(made) < hourly:
			recent = append(recent, a)
		default:
			older[made] = append(older[made], a)
		}
		a.use = nil
	}
	if len(recent) > 0 {
		if err := e.sumOwners(ctx, recent, since(recent), now, true); err != nil {
			return err
		}
	}
	for made, some := range older {
		if err := e.sumOwners(ctx, some, made, now, false); err != nil {
			return err
		}
	}
	return nil
}

// made is the hour in which it was made; the ledger knows no shorter times for long.
func (a *allowance) made() time.Time {
	return a.object.GetCreationTimestamp().UTC().Truncate(time.Hour)
}

// sumOwners asks what several used from a time on; byHour: each only since the hour in which it was made.
func (e *Engine) sumOwners(ctx context.Context, all []*allowance, from, now time.Time, byHour bool) error {
	byAccount := map[[2]string][]*allowance{}
	owners, namespaces := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		account := [2]string{a.object.GetNamespace(), a.workload()}
		namespaces[account[0]], owners[account[1]] = true, true
		byAccount[account] = append(byAccount[account], a)
	}
	dimensions := []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}
	if byHour {
		dimensions = append(dimensions, ledger.ByHour)
	}
	asked, p := e.o.Now(), period{from: from}.asked(now)
	rows, err := e.query(ctx, &ledger.Query{
		From: p.from.Truncate(time.Hour), To: p.to, GroupBy: dimensions, Owners: sortedKeys(owners),
		Namespaces: sortedKeys(namespaces), Kinds: []ledger.Kind{ledger.Workload},
	})
	if err != nil {
		return err
	}
	used := map[*allowance]*use{}
	for _, a := range all {
		used[a] = &use{asOf: asked}
	}
	for i := range rows {
		row, hour := &rows[i], time.Time{}
		if byHour {
			if hour, err = time.Parse(time.RFC3339, row.Key[2]); err != nil {
				return fmt.Errorf("the ledger's answer: %w", err)
			}
		}
		for _, a := range byAccount[[2]string{row.Key[0], row.Key[1]}] {
			if !byHour || !hour.Before(a.made()) {
				used[a].Include(row)
			}
		}
	}
	for a, u := range used {
		a.use = u
	}
	return nil
}

func (e *Engine) askPods(ctx context.Context, uids []string, byUID map[string][]*allowance, now time.Time) error {
	var all []*allowance
	for _, uid := range uids {
		all = append(all, byUID[uid]...)
	}
	asked, p := e.o.Now(), period{from: since(all)}.asked(now)
	rows, err := e.query(ctx, &ledger.Query{
		From: p.from, To: p.to, GroupBy: []ledger.Dimension{ledger.ByUID}, Pods: uids,
	})
	if err != nil {
		return err
	}
	for _, a := range all {
		a.use = &use{asOf: asked}
	}
	for i := range rows {
		for _, a := range byUID[rows[i].Key[0]] {
			a.use.Include(&rows[i])
		}
	}
	return nil
}
