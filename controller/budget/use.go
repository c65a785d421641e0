package budget

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
)

// Ledger is what is asked.
type Ledger interface {
	Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error)
}

// use is what was used of a budget.
type use struct {
	ledger.Row
	asOf time.Time
}

const whole = 100 // percent

func (u *use) kWh() float64 { return u.Energy().Joules().KWh() }

// over returns how many kWh more than the limit were used, if there is a limit of energy and it is used up.
func (u *use) over(l *v1alpha1.BudgetLimits) (kWh float64, ok bool) {
	if u == nil || l.EnergyKWh == nil || u.kWh() < *l.EnergyKWh {
		return 0, false
	}
	return u.kWh() - *l.EnergyKWh, true
}

// signalOf is how the ledger calls the carbon intensity of a limit.
func signalOf(l *v1alpha1.BudgetLimits) string {
	return strings.ToLower(cmp.Or(l.CarbonSignal, "Average"))
}

// carbon returns the emissions that a limit is about.
func (u *use) carbon(l *v1alpha1.BudgetLimits) float64 {
	return float64(u.Emissions[signalOf(l)].Grams())
}

// percent returns the share of the limit of which most is used.
func (u *use) percent(l *v1alpha1.BudgetLimits) float64 {
	most := 0.0
	for _, r := range u.ratios(l) {
		most = max(most, r.ratio*whole)
	}
	return most
}

type ratio struct {
	resource string
	ratio    float64
}

// ratios returns the share of each limit that is used.
func (u *use) ratios(l *v1alpha1.BudgetLimits) (all []ratio) {
	if l.EnergyKWh != nil {
		all = append(all, ratio{"energy", u.kWh() / *l.EnergyKWh})
	}
	if l.CarbonGrams != nil {
		all = append(all, ratio{"carbon", u.carbon(l) / *l.CarbonGrams})
	}
	if l.Cost != nil {
		all = append(all, ratio{"cost", u.Costs[l.Cost.Currency].Money() / l.Cost.Amount})
	}
	return all
}

// tell writes what was used into a status.
func (u *use) tell(s *v1alpha1.EnergyBudgetStatus, l *v1alpha1.BudgetLimits) {
	used := &v1alpha1.BudgetUse{EnergyKWh: rounded(u.kWh())}
	if hasKey(u.Emissions, signalOf(l)) {
		used.CarbonGrams = new(rounded(u.carbon(l)))
	}
	if l.Cost != nil && hasKey(u.Costs, l.Cost.Currency) {
		used.Cost = new(rounded(u.Costs[l.Cost.Currency].Money()))
	}
	s.Used = used
	s.EstimatedShare = share(u.Estimated, u.Energy())
	s.UnchartedShare = share(u.Uncharted, u.Facility)
	s.UnpricedShare = share(u.Unpriced, u.Facility)
}

func hasKey[V any](m map[string]V, key string) bool { _, ok := m[key]; return ok }

func share(part, all energy.Microjoules) float64 {
	if all <= 0 {
		return 0
	}
	return math.Round(float64(part)/float64(all)*1000) / 1000
}

// rounded keeps six digits: more would make every status differ from the one before.
func rounded(v float64) float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	const digits = 6
	scale := math.Pow(10, digits-1-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// tenths keeps one digit of a percentage, for people. It rounds down, so that no threshold is said to be reached
// before it is; what a float is short of an exact share does not count.
func tenths(percent float64) float64 {
	const ten = 10
	return math.Floor(rounded(percent*ten)) / ten
}

// used names the limit of which most is used, and how much of it is.
func (u *use) used(l *v1alpha1.BudgetLimits) string {
	all := u.ratios(l)
	if len(all) == 0 {
		return ""
	}
	switch slices.MaxFunc(all, func(a, b ratio) int { return cmp.Compare(a.ratio, b.ratio) }).resource {
	case "carbon":
		return fmt.Sprintf("%.4g of %v gCO2e", u.carbon(l), *l.CarbonGrams)
	case "cost":
		return fmt.Sprintf("%.4g of %v %s", u.Costs[l.Cost.Currency].Money(), l.Cost.Amount, l.Cost.Currency)
	}
	return fmt.Sprintf("%.4g of %v kWh", u.kWh(), *l.EnergyKWh)
}

// unsaid names what a limit says nothing about, though it was used: emissions by another signal, money in another
// currency, and what nobody knows.
func (u *use) unsaid(l *v1alpha1.BudgetLimits) (why []string) {
	if l.CarbonGrams != nil {
		for _, other := range sortedKeys(u.Emissions) {
			if other != signalOf(l) {
				why = append(why, fmt.Sprintf("emissions by the %s intensity do not count", other))
			}
		}
		if s := share(u.Uncharted, u.Facility); s > 0 {
			why = append(why, fmt.Sprintf("of %.3g%% of the energy the emissions are not known", s*whole))
		}
	}
	if l.Cost != nil {
		for _, other := range sortedKeys(u.Costs) {
			if other != l.Cost.Currency {
				why = append(why, "costs in "+other+" do not count")
			}
		}
		if s := share(u.Unpriced, u.Facility); s > 0 {
			why = append(why, fmt.Sprintf("of %.3g%% of the energy the price is not known", s*whole))
		}
	}
	return why
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		if k != "" {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
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

// ask returns what was used of budgets, by their place in the list, as far as the ledger says so. Budgets that ask
// the same share one query.
func (e *Engine) ask(ctx context.Context, all []*budgetCase, now time.Time) error {
	together := map[question][]*budgetCase{}
	for _, c := range all {
		q := questionOf(c.budget, c.period, now)
		together[q] = append(together[q], c)
	}
	var failed error
	for q, cases := range together {
		if err := e.answer(ctx, q, cases); err != nil {
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

func (e *Engine) answer(ctx context.Context, q question, cases []*budgetCase) error {
	byNamespace := map[string][]*budgetCase{}
	for _, c := range cases {
		byNamespace[c.budget.Namespace] = append(byNamespace[c.budget.Namespace], c)
	}
	asked := e.o.Now()
	a, err := e.query(ctx, &ledger.Query{
		From: q.from, To: q.to, GroupBy: q.dimensions(), Namespaces: sortedKeys(byNamespace),
		Kinds: []ledger.Kind{ledger.Workload},
	})
	if err != nil {
		return err
	}
	for _, c := range cases {
		c.use = &use{asOf: asked}
	}
	for i := range a.Rows {
		row := &a.Rows[i]
		if len(row.Key) == 0 {
			continue
		}
		for _, c := range byNamespace[row.Key[0]] {
			if q.inScope(row.Key, &c.budget.Spec.Scope) {
				c.use.Include(row)
			}
		}
	}
	return nil
}

// queryTimeout keeps a store that hangs from ending all that does not need it.
const queryTimeout = 20 * time.Second

func (e *Engine) query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	a, err := e.o.Ledger.Query(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("asking the ledger: %w", err)
	}
	return a, nil
}
