package sqlstore

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// transfers returns the transfers of a day, by hour and account, that count because the host has bookings in the
// same hour. If hours are no longer retained, it uses the sums of the day, which only contain transfers that count.
// See Keep.
func (r *reading) transfers(day int64) (b *block) {
	late := day < r.hoursFrom
	load := func(b *block) {
		if late {
			r.load(b, sumsOf(false, true), fmt.Sprintf("start = %d AND account IN (%s)", day, transferAccounts))
			return
		}
		t := r.transferred(day)
		b.hosts = t.hosts
		for i := range t.all {
			if t.counts(&t.all[i], false) {
				b.rows = append(b.rows, t.all[i])
			}
		}
	}
	b = &block{}
	r.within("reading the transfers of "+stamp(day), func() { b = r.cached(blockKey{start: day, late: late}, load) })
	return b
}

// A transferred contains all transfers of a day by hour, including transfers that do not count.
type transferred struct {
	all   []sumRow
	host  map[int64]string // host of each account
	hosts map[string]hours // hours with bookings of the hosts
}

// counts reports whether a transfer counts. If late is true, the hours of hosts have been dropped and the day is
// used.
func (t *transferred) counts(row *sumRow, late bool) bool {
	host := t.host[row.id]
	return t.hosts[host].has(row.start) || late && t.hosts[host]>>dayBit&1 != 0
}

func (r *reading) transferred(day int64) *transferred {
	where := fmt.Sprintf("start IN (%s) AND account IN (SELECT account FROM account_days WHERE start = %d AND "+
		"account IN (%s))", ids(hoursOf(day)), day, transferAccounts)
	if r.maxTransferred > 0 {
		where += fmt.Sprintf(" LIMIT %d", r.maxTransferred+1)
	}
	all := &block{}
	r.load(all, sumsOf(false, false), where)
	t := &transferred{all: all.rows, host: map[int64]string{}}
	if r.maxTransferred > 0 && len(all.rows) > r.maxTransferred {
		r.check(fmt.Errorf("%w: %w: virtual machines have more than %d transfers from their hosts on %s: select an "+
			"interval without that day", ledger.ErrQuery, ledger.ErrTooLarge, r.maxTransferred, stamp(day)))
		return t
	}
	names := map[string]bool{}
	for i := range all.rows {
		a, err := r.account(all.rows[i].id)
		if !r.check(err) {
			return t
		}
		t.host[all.rows[i].id] = a.Host
		names[a.Host] = true
	}
	t.hosts = r.hosts(day, slices.Sorted(maps.Keys(names)))
	return t
}

func hoursOf(day int64) (all []int64) {
	for hour := day; hour < day+aDay; hour += anHour {
		all = append(all, hour)
	}
	return all
}

// hosts returns the hours of a day with bookings of the given hosts. Nodes that are their own hosts, directly or
// indirectly, are excluded on that day. Counting energy twice is noticed and investigated, but missing energy is
// not.
func (r *reading) hosts(day int64, names []string) map[string]hours {
	booked := map[string]hours{}
	byName := r.nodeIDs(names)
	if len(byName) == 0 {
		return booked
	}
	above := r.above(day)
	name := map[int64]string{}
	for host, id := range byName {
		if !circles(above, host, host, map[string]bool{}) {
			name[id] = host
		}
	}
	for chunk := range slices.Chunk(slices.Sorted(maps.Keys(name)), listed) {
		r.each("", func(rows *sql.Rows) error {
			var bit, node int64
			err := rows.Scan(&bit, &node)
			booked[name[node]] |= 1 << bit
			return err
		}, fmt.Sprintf(`SELECT (start - %[1]d) / %[2]d, node FROM node_hours WHERE start IN (%[3]s) AND node IN (%[4]s)
			UNION SELECT %[5]d, node FROM node_days WHERE start = %[1]d AND node IN (%[4]s)`,
			day, anHour, ids(hoursOf(day)), ids(chunk), dayBit))
	}
	return booked
}

// above returns the hosts of each node on a day.
func (r *reading) above(day int64) map[string][]string {
	above := map[string][]string{}
	r.each("", func(rows *sql.Rows) error {
		var id, crc int64
		var node, host string
		err := rows.Scan(&id, &host, &node, &crc)
		if err == nil && crc != rowCRC(node) {
			err = fmt.Errorf("%w: row of node %d", ledger.ErrDamaged, id)
		}
		above[node] = append(above[node], host)
		return err
	}, `SELECT DISTINCT node_days.node, node_days.host, COALESCE(nodes.name, ''), COALESCE(nodes.crc, -1)
		FROM node_days LEFT JOIN nodes ON nodes.id = node_days.node
		WHERE node_days.start = $1 AND node_days.host <> ''`, day)
	return above
}

// circles reports whether target is a direct or indirect host of a node.
func circles(above map[string][]string, from, target string, seen map[string]bool) bool {
	return slices.ContainsFunc(above[from], func(host string) bool {
		before := seen[host]
		seen[host] = true
		return host == target || !before && circles(above, host, target, seen)
	})
}
