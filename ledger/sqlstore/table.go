package sqlstore

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/kubenergy/kubenergy/ledger"
)

// A table adds up rows of an answer.
type table struct {
	r      *reading
	q      *ledger.Query
	plan   ledger.Plan
	byHour bool
	byTime bool
	nodes  bool // nodes are asked for
	pods   bool // pods are

	now    int64 // beginning of what is added
	groups map[string]*group
	known  map[memo]*target
	err    error
}

// A group is a row that is being added up.
type group struct {
	key         []string
	amount      [fields]wide // as ledger.Amount.Fields
	emissions   []named
	costs       []named
	first, last int64
}

type named struct {
	name string
	sum  wide
}

// A target is the group that something is added to, and where in it. Without a group it is not asked for.
type target struct {
	group            *group
	signal, currency int
}

// A memo is what decides on the group.
type memo struct {
	account, consumer, node int64
	at                      unique.Handle[place]
	transfer                bool
}

func newTable(r *reading, q *ledger.Query, plan ledger.Plan) *table {
	t := &table{r: r, q: q, plan: plan, groups: map[string]*group{}, known: map[memo]*target{}, byHour: byHour(q)}
	t.byTime = t.byHour || slices.Contains(q.GroupBy, ledger.ByDay) || slices.Contains(q.GroupBy, ledger.ByWindow)
	t.nodes = len(q.Nodes) > 0 || slices.Contains(q.GroupBy, ledger.ByNode)
	t.pods = len(q.Pods) > 0 || slices.Contains(q.GroupBy, ledger.ByPod) || slices.Contains(q.GroupBy, ledger.ByUID)
	return t
}

// begin says when what is added next was used.
func (t *table) begin(at int64) {
	if t.byTime && at != t.now {
		clear(t.known)
	}
	t.now = at
}

// groupValues are all that a key may tell.
type groupValues struct {
	account  *ledger.Account
	node     string
	consumer ledger.Consumer // its key, and its name, which may have come later than its energy
}

func (t *table) key(v *groupValues) []string {
	out := make([]string, len(t.q.GroupBy))
	for i, by := range t.q.GroupBy {
		switch by {
		case ledger.ByNode:
			out[i] = v.node
		case ledger.ByPod:
			out[i] = v.consumer.PodName()
		case ledger.ByUID:
			out[i] = v.consumer.UID()
		case ledger.ByWindow:
			out[i] = stamp(floorTo(t.now, windowSeconds))
		case ledger.ByHour:
			out[i] = stamp(floorTo(t.now, anHour))
		case ledger.ByDay:
			out[i] = stamp(floorTo(t.now, aDay))
		default:
			out[i], _ = v.account.Key(by)
		}
	}
	return out
}

func (t *table) target(m memo, find func() (*groupValues, bool, error)) *target {
	if found, ok := t.known[m]; ok {
		return found
	}
	out := new(target)
	t.known[m] = out
	v, asked, err := find()
	if err != nil || !asked {
		t.fail(err)
		return out
	}
	key := t.key(v)
	id := strings.Join(key, "\x00")
	g := t.groups[id]
	if g == nil {
		if len(t.groups) >= mostRows {
			t.fail(fmt.Errorf("%w: %w: more than %d rows: group by less, or ask for less", ledger.ErrQuery,
				ledger.ErrTooLarge, mostRows))
			return out
		}
		g = &group{key: key, first: math.MaxInt64, last: math.MinInt64}
		t.groups[id] = g
	}
	out.group = g
	out.signal = spot(&g.emissions, v.account.Signal)
	out.currency = spot(&g.costs, v.account.Currency)
	return out
}

func (t *table) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// spot returns where a name is in a list, which it is added to.
func spot(list *[]named, name string) int {
	for i := range *list {
		if (*list)[i].name == name {
			return i
		}
	}
	*list = append(*list, named{name: name})
	return len(*list) - 1
}

// ofAccount returns where the sums of an account belong. What is transferred belongs to the host.
func (t *table) ofAccount(row *sumRow, transfer bool) *target {
	return t.target(memo{account: row.id, transfer: transfer}, func() (*groupValues, bool, error) {
		a, err := t.r.account(row.id)
		if err != nil {
			return nil, false, err
		}
		v := &groupValues{account: a}
		if transfer {
			v.node = a.Host
		}
		return v, t.q.Selects(a) && t.selectsNode(v.node), nil
	})
}

// ofNode returns where the sums of a node belong.
func (t *table) ofNode(row *sumRow) *target {
	m := memo{at: row.at}
	if t.nodes {
		m.node = row.id
	}
	return t.target(m, func() (v *groupValues, selected bool, err error) {
		at := row.at.Value()
		v = &groupValues{account: &ledger.Account{
			Site: at.site, Signal: at.signal, Currency: at.currency, Host: at.host,
		}}
		if t.nodes {
			v.node, err = t.r.node(row.id)
		}
		return v, t.q.Selects(v.account) && t.selectsNode(v.node), err
	})
}

func (t *table) selectsNode(name string) bool {
	return len(t.q.Nodes) == 0 || slices.Contains(t.q.Nodes, name)
}

// add adds an amount. What is transferred has no first and last.
func (t *table) add(to *target, a *ledger.Amount, first, last int64) {
	g := to.group
	if g == nil {
		return
	}
	for i, v := range a.Fields() {
		g.amount[i].add(*v)
	}
	g.emissions[to.signal].sum.add(int64(a.Carbon))
	g.costs[to.currency].sum.add(int64(a.Cost))
	if first != 0 || last != 0 {
		g.first, g.last = min(g.first, first), max(g.last, last)
	}
}

// row returns the group's sums. Those of energy, emissions and money that are more than can be told are an error;
// times stay at what can be.
func (g *group) row() (ledger.Row, error) {
	fits := g.amount[dynamic].plus(g.amount[idle]).fits()
	r := ledger.Row{Key: g.key}
	for i, to := range r.Fields() {
		switch i {
		case carbon, cost: // are those of the only signal and currency: see below
		case cpu, unmeasured:
			*to = g.amount[i].clamped()
		default:
			*to = g.amount[i].clamped()
			fits = fits && g.amount[i].fits()
		}
	}
	for _, e := range g.emissions {
		fits = fits && e.sum.fits()
		if carbon := e.sum.clamped(); carbon != 0 {
			r.Emit(e.name, ledger.Micrograms(carbon))
		}
	}
	for _, c := range g.costs {
		fits = fits && c.sum.fits()
		if cost := c.sum.clamped(); cost != 0 {
			r.Charge(c.name, ledger.Nanos(cost))
		}
	}
	if g.first <= g.last {
		r.First, r.Last = time.Unix(g.first, 0).UTC(), time.Unix(g.last, 0).UTC()
	}
	if !fits {
		return r, ledger.ErrSum
	}
	return r, nil
}

// include adds another group, as part of a total.
func (g *group) include(o *group) {
	for i := range g.amount {
		g.amount[i] = g.amount[i].plus(o.amount[i])
	}
	for _, e := range o.emissions {
		at := spot(&g.emissions, e.name)
		g.emissions[at].sum = g.emissions[at].sum.plus(e.sum)
	}
	for _, c := range o.costs {
		at := spot(&g.costs, c.name)
		g.costs[at].sum = g.costs[at].sum.plus(c.sum)
	}
	g.first, g.last = min(g.first, o.first), max(g.last, o.last)
}

// rows returns the rows of the answer, sorted, and their total.
func (t *table) rows() (rows []ledger.Row, total ledger.Row, err error) {
	all := &group{first: math.MaxInt64, last: math.MinInt64}
	rows = make([]ledger.Row, 0, len(t.groups))
	for _, g := range t.groups {
		r, err := g.row()
		if err != nil {
			return nil, total, err
		}
		if !r.Empty() {
			rows = append(rows, r)
			all.include(g)
		}
	}
	slices.SortFunc(rows, func(a, b ledger.Row) int { return slices.Compare(a.Key, b.Key) })
	total, err = all.row()
	return rows, total, err
}
