package sqlstore

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// sumWindows adds up the windows of a query.
func (r *reading) sumWindows(t *table) {
	where := r.windowsOf(t)
	if where == "" {
		return
	}
	s := &scan{t: t, consumers: map[int64]*ledger.Consumer{}}
	for _, part := range r.slices(where) {
		s.add(r.windows(fmt.Sprintf("%s AND start >= %d AND start <= %d", where, part[0], part[1])))
	}
}

// windowsAtOnce is the maximum number of windows in memory, about 20 MB.
const windowsAtOnce = 2000

// slices divides the matching windows by start time into intervals of about windowsAtOnce windows. It returns an
// error if there are too many windows.
func (r *reading) slices(where string) (out [][2]int64) {
	n, all := 0, 0
	r.each("looking up windows", func(rows *sql.Rows) error {
		var start int64
		var count int
		if err := rows.Scan(&start, &count); err != nil {
			return err
		}
		if all += count; all > maxWindows {
			return fmt.Errorf("%w: %w: more than %d windows of nodes: select a shorter interval or fewer nodes, or "+
				"omit pods and windows", ledger.ErrQuery, ledger.ErrTooLarge, maxWindows)
		}
		if n == 0 || n+count > windowsAtOnce {
			out, n = append(out, [2]int64{start, start}), 0
		}
		out[len(out)-1][1] = start
		n += count
		return nil
	}, fmt.Sprintf("SELECT start, COUNT(*) FROM (SELECT start FROM windows WHERE %s ORDER BY start LIMIT %d) AS w "+
		"GROUP BY start ORDER BY start", where, maxWindows+1))
	return out
}

func (r *reading) windows(where string) (held []*window) {
	r.each("reading windows", func(rows *sql.Rows) error {
		_, _, w, err := scanWindow(rows)
		if err == nil {
			held = append(held, w)
		}
		return err
	}, selectWindows+" WHERE "+where+" ORDER BY start, node")
	return held
}

// windowsOf returns the condition for the windows of a query, or "" if no window matches.
func (r *reading) windowsOf(t *table) (where string) {
	where = fmt.Sprintf("start >= %d AND start < %d", t.plan.From.Unix(), t.plan.To.Unix())
	if len(t.q.Nodes) == 0 {
		return where
	}
	needed := slices.Collect(maps.Values(r.nodeIDs(t.q.Nodes)))
	// Transfers from a host are part of the windows of its guests.
	for _, host := range t.q.Nodes {
		needed = append(needed, r.numbers("looking up the guests of "+host,
			"SELECT DISTINCT node FROM node_days WHERE start >= $1 AND start < $2 AND host = $3",
			floorTo(t.plan.From.Unix(), aDay), t.plan.To.Unix(), host)...)
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	if len(needed) == 0 {
		return ""
	}
	return where + " AND node IN (" + ids(needed) + ")"
}

// A scan adds windows to a table.
type scan struct {
	t         *table
	consumers map[int64]*ledger.Consumer // keys and names of consumers read so far
}

func (s *scan) add(held []*window) {
	s.name(held)
	for _, w := range held {
		if s.t.r.err != nil {
			return
		}
		s.addWindow(w)
	}
	s.t.r.check(s.t.r.ctx.Err())
}

func (s *scan) addWindow(w *window) {
	t := s.t
	t.begin(w.Start)
	if t.plan.Nodes { // query about whole nodes
		for _, b := range w.Bases {
			s.part(w, 0, b.Account).add(&ledger.Amount{Unmeasured: b.Unmeasured}, w.First, w.Last)
		}
	}
	for i := range w.Postings {
		p := &w.Postings[i]
		a, err := t.r.account(p.Account)
		if !t.r.check(err) {
			return
		}
		first, last := w.First, w.Last
		if a.Kind == ledger.Transfer {
			if !t.r.transfers(floorTo(w.Start, aDay)).hosts[a.Host].has(w.Start) {
				continue
			}
			first, last = 0, 0
		}
		s.part(w, p.Consumer, p.Account).add(&p.Amount, first, last)
	}
}

// part returns the part to which the usage of a consumer is added. Consumer 0 is the whole node.
func (s *scan) part(w *window, consumer, account int64) *part {
	t := s.t
	m := memo{account: account}
	if t.plan.ByNode {
		m.node = w.Node
	}
	if t.plan.ByPod {
		m.consumer = consumer
	}
	return t.part(m, func() (*groupValues, bool, error) {
		a, err := t.r.account(account)
		if err != nil {
			return nil, false, err
		}
		v := &groupValues{account: a}
		if t.plan.ByPod && consumer != 0 {
			if s.consumers[consumer] == nil {
				return nil, false, fmt.Errorf("%w: consumer %d does not exist", ledger.ErrDamaged, consumer)
			}
			v.consumer = *s.consumers[consumer]
		}
		if t.plan.ByNode {
			v.node = a.Host
			if a.Kind != ledger.Transfer {
				if v.node, err = t.r.node(w.Node); err != nil {
					return nil, false, err
				}
			}
		}
		return v, t.q.Selects(a) && t.selectsNode(v.node) && t.q.SelectsPod(&v.consumer), nil
	})
}

// name reads the names of the consumers of windows if the query requires them.
func (s *scan) name(held []*window) {
	if !s.t.plan.ByPod {
		return
	}
	missing := map[int64]bool{}
	for _, w := range held {
		for i := range w.Postings {
			if id := w.Postings[i].Consumer; s.consumers[id] == nil {
				missing[id] = true
			}
		}
	}
	if len(s.consumers)+len(missing) > maxNamed {
		s.t.r.check(fmt.Errorf("%w: %w: more than %d consumers: select a shorter interval, or fewer namespaces or "+
			"nodes", ledger.ErrQuery, ledger.ErrTooLarge, maxNamed))
		return
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(missing)), listed) {
		s.t.r.each("reading consumers", func(rows *sql.Rows) error {
			var id, node, crc int64
			c := new(ledger.Consumer)
			if err := rows.Scan(&id, &node, &c.Key, &c.Pod, &c.Account.Namespace, &crc); err != nil {
				return err
			}
			if crc != rowCRC(node, c.Key, c.Pod, c.Account.Namespace) {
				return fmt.Errorf("%w: row of consumer %d", ledger.ErrDamaged, id)
			}
			s.consumers[id] = c
			return nil
		}, "SELECT id, node, key, pod, namespace, crc FROM consumers WHERE id IN ("+ids(chunk)+")")
	}
}
