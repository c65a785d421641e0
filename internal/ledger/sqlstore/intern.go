package sqlstore

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// names caches the row IDs of nodes, accounts and consumers.
type names struct {
	mu        sync.Mutex
	forgotten int // number of times the cache was cleared
	remembered
}

type remembered struct {
	nodes     generations[string, mention]
	accounts  generations[ledger.Account, mention]
	consumers generations[consumerKey, mention]
	nodeOf    generations[int64, string]
	accountOf generations[int64, *ledger.Account]
}

// Cache sizes. 500,000 consumers require about 100 MB.
const (
	maxNodes     = 20_000
	maxAccounts  = 100_000
	maxConsumers = 500_000
)

// forgetNames clears the cache of row IDs.
func (d *DB) forgetNames() {
	d.names.mu.Lock()
	defer d.names.mu.Unlock()
	d.names.forgotten++
	d.names.remembered = remembered{
		generations[string, mention]{most: maxNodes},
		generations[ledger.Account, mention]{most: maxAccounts},
		generations[consumerKey, mention]{most: maxConsumers},
		generations[int64, string]{most: maxNodes},
		generations[int64, *ledger.Account]{most: maxAccounts},
	}
}

type consumerKey struct {
	node int64
	key  string
}

// A mention is the ID of a row and the recorded time of its last use.
type mention struct {
	id    int64
	seen  int64 // Unix seconds
	named bool  // whether the name of a consumer is stored
}

// generations is a cache that evicts entries that were not used recently. It contains between most and twice as
// many entries. An LRU list would have a constant size, but requires more memory for each of a million consumers.
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

func (g *generations[K, V]) put(k K, v V) {
	if g.young == nil || len(g.young) >= g.most {
		g.young, g.old = map[K]V{}, g.young
	}
	g.young[k] = v
}

// The last use of a row is recorded about once a day, at different times for different rows. Keep drops rows that
// were not used for a long time.
const (
	seenAtLeast = int64(12 * time.Hour / time.Second)
	seenSpread  = int64(12 * time.Hour / time.Second)
)

func (m mention) fresh(now int64) bool {
	const odd = 7919 // spreads consecutive IDs
	return now-m.seen < seenAtLeast+m.id*odd%seenSpread
}

// An interning finds or creates rows within a transaction. Rows are cached immediately. If the transaction fails,
// the cache is cleared.
type interning struct {
	d   *DB
	s   *session
	now int64
	of  int // value of names.forgotten at the start of the transaction
}

func (d *DB) interning(s *session) *interning {
	d.names.mu.Lock()
	defer d.names.mu.Unlock()
	return &interning{d: d, s: s, now: d.now().Unix(), of: d.names.forgotten}
}

// A naming describes how to find or create the row of a name.
type naming struct {
	table, what string
	keys, more  []string // columns that identify the row, and columns that are only set on creation
	row         []any    // values of keys and more
	returns     string   // columns to read: ID, checksum, last use, and whether the name is stored
	sum         int64
	lock        string // statement to run before, or empty
}

// use returns the row of a name, creates it if necessary, and periodically records its use.
func use[K comparable](x *interning, rows *generations[K, mention], k *K, name func() naming) mention {
	x.d.names.mu.Lock()
	m, ok := rows.get(*k)
	x.d.names.mu.Unlock()
	if ok && m.fresh(x.now) {
		return m
	}
	n := name()
	if n.lock != "" {
		x.s.exec(n.lock)
	}
	if !ok || !x.refresh(n.table, &m) {
		m = x.row(&n)
		x.refresh(n.table, &m)
	}
	remember(x, rows, k, m)
	return m
}

// remember caches a row unless the transaction failed or the cache was cleared meanwhile, because the row may be of
// another server then.
func remember[K comparable](x *interning, rows *generations[K, mention], k *K, m mention) {
	x.d.names.mu.Lock()
	defer x.d.names.mu.Unlock()
	if x.s.err == nil && x.of == x.d.names.forgotten {
		rows.put(*k, m)
	}
}

// row finds or creates the row of a name.
func (x *interning) row(n *naming) (m mention) {
	var sum int64
	find := "SELECT " + n.returns + " FROM " + n.table + whereAll(n.keys)
	add := insertText(n.table, slices.Concat(n.keys, n.more), 1, "ON CONFLICT DO NOTHING RETURNING "+n.returns)
	for range 2 {
		if x.s.one(find, n.row[:len(n.keys)], &m.id, &sum, &m.seen, &m.named) ||
			x.s.one(add, n.row, &m.id, &sum, &m.seen, &m.named) {
			if sum != n.sum {
				x.s.check(fmt.Errorf("%w: row of %s", ledger.ErrDamaged, n.what))
			}
			return m
		} // another process created it concurrently
	}
	x.s.check(fmt.Errorf("the row of %s neither exists nor can be created", n.what))
	return m
}

// refresh periodically records that a row is used. It returns false if the row no longer exists.
func (x *interning) refresh(table string, m *mention) bool {
	if m.fresh(x.now) {
		return true
	}
	m.seen = x.now
	return x.s.exec("UPDATE "+table+" SET seen = $1 WHERE id = $2", x.now, m.id) > 0
}

const accountColumns = "kind, namespace, owner_kind, owner, parent, team, strategy, host, site, signal, currency"

// node returns the row of a node. The use of nodes is not recorded.
func (x *interning) node(name string) int64 {
	return use(x, &x.d.names.nodes, &name, func() naming {
		sum := rowCRC(name)
		return naming{
			table: "nodes", what: "node " + name, keys: []string{"name"}, more: []string{"crc"},
			row: []any{name, sum}, returns: "id, crc, 1000000000000000000, 1 = 1", sum: sum,
		}
	}).id
}

// account returns the row of an account.
func (x *interning) account(a *ledger.Account) int64 {
	return use(x, &x.d.names.accounts, a, func() naming {
		row := accountRow(a)
		sum := rowCRC(row...)
		what := fmt.Sprintf("account %s %s/%s", a.Kind, a.Namespace, a.Owner)
		return naming{
			table: "accounts", what: what, keys: strings.Split(accountColumns, ", "), more: []string{"seen", "crc"},
			row: append(row, x.now, sum), returns: "id, crc, seen, 1 = 1", sum: sum, lock: x.d.dialect.LockAccounts,
		}
	}).id
}

// accountRow returns the columns of an account.
func accountRow(a *ledger.Account) []any {
	return []any{
		int64(a.Kind), a.Namespace, a.OwnerKind, a.Owner, a.Parent, a.Team, a.Strategy, a.Host, a.Site, a.Signal,
		a.Currency,
	}
}

// consumer returns the row of a consumer of a node. It adds the name of a pod once it is known.
func (x *interning) consumer(node int64, c *ledger.Consumer) int64 {
	key := consumerKey{node, c.Key}
	m := use(x, &x.d.names.consumers, &key, func() naming {
		row := []any{node, c.Key, c.Pod, c.Account.Namespace, x.now, rowCRC(node, c.Key, c.Pod, c.Account.Namespace)}
		// The stored name may differ, so the checksum is not compared.
		return naming{
			table: "consumers", what: "consumer " + c.Key, keys: []string{"node", "key"},
			more: []string{"pod", "namespace", "seen", "crc"}, row: row, returns: "id, 0, seen, pod <> ''",
		}
	})
	if !m.named && c.Pod != "" {
		sum := rowCRC(node, c.Key, c.Pod, c.Account.Namespace)
		x.s.exec("UPDATE consumers SET pod = $1, namespace = $2, crc = $3 WHERE id = $4", c.Pod, c.Account.Namespace,
			sum, m.id)
		m.named = true
		remember(x, &x.d.names.consumers, &key, m)
	}
	return m.id
}
