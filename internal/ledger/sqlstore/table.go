package sqlstore

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A table aggregates the rows of an answer.
type table struct {
	r      *reading
	q      *ledger.Query
	plan   ledger.Plan
	byTime bool

	now    int64 // start of the data being added
	groups map[string]*group
	known  map[memo]*part // nil if the query does not select it
}

// A group is a row of the answer.
type group struct {
	key   []string
	parts []*part
}

// A part contains the amounts of a group for one signal and one currency.
type part struct {
	signal, currency string
	sum              ledger.Amount
	tooLarge         bool
	first, last      int64
}

// A memo is the key that determines the group.
type memo struct {
	account, consumer, node int64
	at                      unique.Handle[place]
	transfer                bool
}

func newTable(r *reading, q *ledger.Query, plan ledger.Plan) *table {
	t := &table{r: r, q: q, plan: plan, groups: map[string]*group{}, known: map[memo]*part{}}
	t.byTime = plan.ByHour || slices.Contains(q.GroupBy, ledger.ByDay) || slices.Contains(q.GroupBy, ledger.ByWindow)
	return t
}

// begin sets the start of the data that is added next.
func (t *table) begin(at int64) {
	if t.byTime && at != t.now {
		clear(t.known)
	}
	t.now = at
}

// groupValues are the values that can be part of a key.
type groupValues struct {
	account  *ledger.Account
	node     string
	consumer ledger.Consumer // the name may have been stored after the energy
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
			out[i] = t.q.Key(v.account, by)
		}
	}
	return out
}

// part returns the part that an amount is added to, or nil if the query does not select it.
func (t *table) part(m memo, find func() (*groupValues, bool, error)) *part {
	if found, ok := t.known[m]; ok {
		return found
	}
	t.known[m] = nil
	v, asked, err := find()
	if !t.r.check(err) || !asked {
		return nil
	}
	key := t.key(v)
	id := strings.Join(key, "\x00")
	g := t.groups[id]
	if g == nil {
		if len(t.groups) >= maxRows {
			t.r.check(fmt.Errorf("%w: %w: more than %d rows: group by fewer dimensions, or select less data",
				ledger.ErrQuery, ledger.ErrTooLarge, maxRows))
			return nil
		}
		g = &group{key: key}
		t.groups[id] = g
	}
	i := slices.IndexFunc(g.parts, func(p *part) bool {
		return p.signal == v.account.Signal && p.currency == v.account.Currency
	})
	if i < 0 {
		i = len(g.parts)
		g.parts = append(g.parts, &part{
			signal: v.account.Signal, currency: v.account.Currency, first: math.MaxInt64, last: math.MinInt64,
		})
	}
	t.known[m] = g.parts[i]
	return g.parts[i]
}

// ofAccount returns the part for the sums of an account. Transfers are added to the host.
func (t *table) ofAccount(row *sumRow, transfer bool) *part {
	return t.part(memo{account: row.id, transfer: transfer}, func() (*groupValues, bool, error) {
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

// ofNode returns the part for the sums of a node.
func (t *table) ofNode(row *sumRow) *part {
	m := memo{at: row.at}
	if t.plan.ByNode {
		m.node = row.id
	}
	return t.part(m, func() (v *groupValues, selected bool, err error) {
		at := row.at.Value()
		v = &groupValues{account: &ledger.Account{
			Site: at.site, Signal: at.signal, Currency: at.currency, Host: at.host,
		}}
		if t.plan.ByNode {
			v.node, err = t.r.node(row.id)
		}
		return v, t.q.Selects(v.account) && t.selectsNode(v.node), err
	})
}

func (t *table) selectsNode(name string) bool {
	return len(t.q.Nodes) == 0 || slices.Contains(t.q.Nodes, name)
}

// add adds an amount. Transfers do not extend the interval.
func (p *part) add(a *ledger.Amount, first, last int64) {
	if p == nil {
		return
	}
	if !p.sum.Saturate(a) {
		p.tooLarge = true
	}
	if first != 0 || last != 0 {
		p.first, p.last = min(p.first, first), max(p.last, last)
	}
}

// row returns the sums of the group. It returns [ledger.ErrSum] if energy, emissions or costs overflow. Durations
// are clamped.
func (g *group) row() (ledger.Row, error) {
	rows := make([]ledger.Row, len(g.parts))
	for i, p := range g.parts {
		if p.tooLarge {
			return ledger.Row{}, ledger.ErrSum
		}
		r := &rows[i]
		r.Amount = p.sum
		r.Emit(p.signal, p.sum.Carbon)
		r.Charge(p.currency, p.sum.Cost)
		if p.first <= p.last {
			r.First, r.Last = time.Unix(p.first, 0).UTC(), time.Unix(p.last, 0).UTC()
		}
	}
	sum := ledger.Row{Key: g.key}
	err := sum.IncludeAll(rows)
	return sum, err
}

// rows returns the rows of the answer, sorted, and their total.
func (t *table) rows() (rows []ledger.Row, total ledger.Row, err error) {
	rows = make([]ledger.Row, 0, len(t.groups))
	for _, g := range t.groups {
		r, err := g.row()
		if err != nil {
			return nil, total, err
		}
		if !r.Empty() {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b ledger.Row) int { return slices.Compare(a.Key, b.Key) })
	err = total.IncludeAll(rows)
	return rows, total, err
}
