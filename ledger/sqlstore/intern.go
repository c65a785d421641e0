package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// names remembers which rows nodes, accounts and consumers have. What it holds was committed.
type names struct {
	mu        sync.Mutex
	nodes     generations[string, int64]
	accounts  generations[ledger.Account, mention]
	consumers generations[consumerKey, mention]
	byID      generations[int64, *ledger.Account]
	forgotten int // how often
}

// forgetNames forgets which rows have which names.
func (d *DB) forgetNames() {
	n := &d.names
	n.mu.Lock()
	n.nodes.clear()
	n.accounts.clear()
	n.consumers.clear()
	n.byID.clear()
	n.forgotten++
	n.mu.Unlock()
	d.cache.mu.Lock()
	d.cache.nodes = nil
	d.cache.mu.Unlock()
}

type consumerKey struct {
	node int64
	key  string
}

// A mention is the number of a row, and when it was said last that it is used.
type mention struct {
	id    int64
	seen  int64 // Unix seconds
	named bool  // of consumers: the name is known
}

// How many rows are remembered: of the last 500,000 pods all, about 100 MB.
const (
	mostNodes     = 20_000
	mostAccounts  = 100_000
	mostConsumers = 500_000
)

func (n *names) init() {
	n.nodes.most, n.accounts.most, n.consumers.most, n.byID.most = mostNodes, mostAccounts, mostConsumers, mostAccounts
}

// generations is a map that forgets what was not asked for lately: it holds between most and twice as many.
type generations[K comparable, V any] struct {
	most       int
	young, old map[K]V
}

func (g *generations[K, V]) get(k K) (V, bool) {
	if v, ok := g.young[k]; ok {
		return v, true
	}
	v, ok := g.old[k]
	if ok {
		g.put(k, v)
	}
	return v, ok
}

func (g *generations[K, V]) clear() { g.young, g.old = nil, nil }

func (g *generations[K, V]) put(k K, v V) {
	if g.young == nil || len(g.young) >= g.most {
		g.young, g.old = map[K]V{}, g.young
	}
	g.young[k] = v
}

// What is used is said once a day, at different times for different rows, so that what was not used for long can be
// dropped: see Keep.
const (
	seenAtLeast = int64(12 * time.Hour / time.Second)
	seenSpread  = int64(12 * time.Hour / time.Second)
)

func (m mention) fresh(now int64) bool {
	const odd = 7919 // spreads numbers that follow each other
	return now-m.seen < seenAtLeast+m.id*odd%seenSpread
}

// An interning finds or makes rows within a transaction.
type interning struct {
	d   *DB
	s   *session
	now int64
	of  int // how often names had been forgotten when it began

	nodes     map[string]int64
	accounts  map[ledger.Account]mention
	consumers map[consumerKey]mention
}

func (d *DB) interning(s *session) *interning {
	d.names.mu.Lock()
	of := d.names.forgotten
	d.names.mu.Unlock()
	return &interning{
		d: d, s: s, now: d.now().Unix(), of: of,
		nodes: map[string]int64{}, accounts: map[ledger.Account]mention{}, consumers: map[consumerKey]mention{},
	}
}

// remember keeps what was found. It may only be called after the transaction is committed.
func (x *interning) remember() {
	n := &x.d.names
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.forgotten != x.of {
		return // they may be those of another server
	}
	for name, id := range x.nodes {
		n.nodes.put(name, id)
	}
	for a, m := range x.accounts {
		n.accounts.put(a, m)
	}
	for c, m := range x.consumers {
		n.consumers.put(c, m)
	}
}

// node returns the row of a node.
func (x *interning) node(ctx context.Context, name string) (int64, error) {
	if id, ok := x.nodes[name]; ok {
		return id, nil
	}
	x.d.names.mu.Lock()
	id, ok := x.d.names.nodes.get(name)
	x.d.names.mu.Unlock()
	if ok {
		return id, nil
	}
	sum := nodeCRC(name)
	id, err := x.row(ctx, "node "+name, sum,
		"SELECT id, crc, 0, 1 FROM nodes WHERE name = $1", []any{name},
		"INSERT INTO nodes (name, crc) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING id", []any{name, sum}, nil)
	if err == nil {
		x.nodes[name] = id
	}
	return id, err
}

// row returns the number of a row that is found by one statement or made by another.
func (x *interning) row(
	ctx context.Context, what string, sum int64, find string, by []any, add string, row []any, found *mention,
) (int64, error) {
	var m mention
	var have int64
	var named int
	for range 2 {
		ok, err := x.s.one(ctx, find, by, &m.id, &have, &m.seen, &named)
		if err != nil {
			return 0, err
		}
		if ok {
			if sum >= 0 && have != sum {
				return 0, fmt.Errorf("%w: the row of %s", ledger.ErrDamaged, what)
			}
			m.named = named != 0
			if found != nil {
				*found = m
			}
			return m.id, nil
		}
		ok, err = x.s.one(ctx, add, row, &m.id)
		if ok || err != nil {
			return m.id, err
		} // another process made it just now
	}
	return 0, fmt.Errorf("the row of %s is neither there nor can be made", what)
}

const (
	accountColumns = "kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency"
	findAccount    = `SELECT id, crc, seen, 1 FROM accounts WHERE kind = $1 AND namespace = $2 AND owner_kind = $3 AND owner = $4 AND parent = $5
		AND team = $6 AND strategy = $7 AND host = $8 AND site = $9 AND signal = $10 AND currency = $11`
	addAccount = `INSERT INTO accounts (` + accountColumns + `, seen, crc)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT DO NOTHING RETURNING id`
)

// account returns the row of an account.
func (x *interning) account(ctx context.Context, a *ledger.Account) (int64, error) {
	m, ok := x.accounts[*a]
	if !ok {
		x.d.names.mu.Lock()
		m, ok = x.d.names.accounts.get(*a)
		x.d.names.mu.Unlock()
	}
	if ok {
		if there, err := x.refresh(ctx, "accounts", &m); there || err != nil {
			x.keepAccount(a, m)
			return m.id, err
		}
	}
	sum := accountCRC(a)
	by := []any{
		int64(a.Kind), a.Namespace, a.OwnerKind, a.Owner, a.Parent, a.Team, a.Strategy, a.Host, a.Site, a.Signal,
		a.Currency,
	}
	m = mention{seen: x.now}
	id, err := x.row(ctx, fmt.Sprintf("account %s %s/%s", a.Kind, a.Namespace, a.Owner), sum, findAccount, by,
		addAccount,
		append(slices.Clip(by), x.now, sum), &m)
	if err != nil {
		return 0, err
	}
	m.id = id
	if _, err := x.refresh(ctx, "accounts", &m); err != nil {
		return 0, err
	}
	x.accounts[*a] = m
	return id, nil
}

func (x *interning) keepAccount(a *ledger.Account, m mention) {
	if m.seen == x.now {
		x.accounts[*a] = m
	}
}

// refresh says from time to time that a row is used. It is false if the row is gone.
func (x *interning) refresh(ctx context.Context, table string, m *mention) (bool, error) {
	if m.fresh(x.now) {
		return true, nil
	}
	result, err := x.s.exec(ctx, "UPDATE "+table+" SET seen = $1 WHERE id = $2", x.now, m.id)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	m.seen = x.now
	return n > 0, err
}

const (
	findConsumer = "SELECT id, crc, seen, CASE WHEN pod = '' THEN 0 ELSE 1 END FROM consumers WHERE node = $1 AND " +
		"key = $2"
	addConsumer = `INSERT INTO consumers (node, key, pod, namespace, seen, crc) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT DO NOTHING RETURNING id`
	nameConsumer = "UPDATE consumers SET pod = $1, namespace = $2, crc = $3 WHERE id = $4"
)

// consumer returns the row of a consumer of a node. The name of a pod is added when it is known.
func (x *interning) consumer(ctx context.Context, node int64, c *ledger.Consumer) (int64, error) {
	key := consumerKey{node, c.Key}
	m, ok := x.consumers[key]
	if !ok {
		x.d.names.mu.Lock()
		m, ok = x.d.names.consumers.get(key)
		x.d.names.mu.Unlock()
	}
	if ok && m.fresh(x.now) && (m.named || c.Pod == "") {
		return m.id, nil
	}
	if ok {
		there, err := x.refresh(ctx, "consumers", &m)
		if err != nil {
			return 0, err
		}
		ok = there
	}
	if !ok {
		var err error
		if m, err = x.findConsumer(ctx, key, c); err != nil {
			return 0, err
		}
	}
	if !m.named && c.Pod != "" {
		sum := consumerCRC(node, c.Key, c.Pod, c.Account.Namespace)
		if _, err := x.s.exec(ctx, nameConsumer, c.Pod, c.Account.Namespace, sum, m.id); err != nil {
			return 0, err
		}
		m.named = true
	}
	x.consumers[key] = m
	return m.id, nil
}

func (x *interning) findConsumer(ctx context.Context, key consumerKey, c *ledger.Consumer) (mention, error) {
	m := mention{seen: x.now, named: c.Pod != ""}
	const unknown = -1 // the name in the row may be another
	id, err := x.row(ctx, "consumer "+c.Key, unknown, findConsumer, []any{key.node, key.key}, addConsumer,
		[]any{
			key.node, key.key, c.Pod, c.Account.Namespace, x.now,
			consumerCRC(key.node, key.key, c.Pod, c.Account.Namespace),
		}, &m)
	if err != nil {
		return mention{}, err
	}
	m.id = id
	_, err = x.refresh(ctx, "consumers", &m)
	return m, err
}

// accountOf returns the account of a row.
func (d *DB) accountOf(ctx context.Context, s *session, id int64) (*ledger.Account, error) {
	d.names.mu.Lock()
	a, ok := d.names.byID.get(id)
	d.names.mu.Unlock()
	if ok {
		return a, nil
	}
	a = new(ledger.Account)
	var sum int64
	found, err := s.one(ctx, "SELECT "+accountColumns+", crc FROM accounts WHERE id = $1", []any{id}, &a.Kind,
		&a.Namespace, &a.OwnerKind, &a.Owner,
		&a.Parent, &a.Team, &a.Strategy, &a.Host, &a.Site, &a.Signal, &a.Currency, &sum)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("%w: account %d is not there", ledger.ErrDamaged, id)
	case sum != accountCRC(a):
		return nil, fmt.Errorf("%w: the row of account %d", ledger.ErrDamaged, id)
	}
	d.names.mu.Lock()
	d.names.byID.put(id, a)
	d.names.mu.Unlock()
	return a, nil
}
