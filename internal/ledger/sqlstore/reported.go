package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// reported is the total time that a node's agent has reported. The key told/NODE in meta contains since and
// dropped.
type reported struct {
	since   int64 // creation time of the node in Unix seconds
	dropped int64 // total length of dropped spans in nanoseconds
	spans   int64 // total length of stored spans in nanoseconds
}

const (
	unknownBacklog = 7 * 24 * time.Hour

	reportedKey  = "told/"
	reportedText = "%d %d"
	seenKey      = "seen/"
	seenText     = "%d %d %d %d" // fields of [ledger.Seen]
	seenOf       = "SELECT value FROM meta WHERE key = $1"
	reportedOf   = "SELECT COALESCE((SELECT value FROM meta WHERE key = $1), ''), " + lengths +
		" FROM spans WHERE node = $2"
	lengths = "COALESCE(CAST(SUM(last - first) AS BIGINT), 0)" // total length of spans
)

func (t *reported) meta(node string) (key, value string) {
	return reportedKey + node, fmt.Sprintf(reportedText, t.since, t.dropped)
}

// read parses the result of [reportedOf]. Older stores have no entry in meta. In this case, the creation time is
// estimated from the reported time plus a margin for data that may still be reported.
func (t *reported) read(node, meta string, now time.Time) error {
	if meta == "" {
		t.since = now.Unix()
		if t.spans > 0 {
			t.since = now.Add(-time.Duration(t.spans) - unknownBacklog).Unix()
		}
		return nil
	}
	if _, err := fmt.Sscanf(meta, reportedText, &t.since, &t.dropped); err != nil {
		return fmt.Errorf("%w: reported time of node %s", ledger.ErrDamaged, node)
	}
	return nil
}

// Reported implements [ledger.Store].
func (d *DB) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	var t reported
	var meta string
	err := d.reads.QueryRowContext(ctx, reportedOf, reportedKey+node, node).Scan(&meta, &t.spans)
	if err == nil {
		err = t.read(node, meta, d.now())
	}
	switch {
	case err != nil:
		return ledger.Reported{}, fmt.Errorf("reading the reported time of a node: %w", err)
	case meta == "" && t.spans == 0:
		return ledger.Reported{}, nil
	}
	all := ledger.Reported{Time: time.Duration(t.spans + t.dropped), Since: time.Unix(t.since, 0)}
	switch err = d.reads.QueryRowContext(ctx, seenOf, seenKey+node).Scan(&meta); {
	case errors.Is(err, sql.ErrNoRows):
		return all, nil
	case err != nil:
		return ledger.Reported{}, fmt.Errorf("reading the capacity of a node: %w", err)
	}
	all.Seen, err = readSeen(node, meta)
	return all, err
}

// readSeen parses the value of seen/NODE in meta.
func readSeen(node, meta string) (s ledger.Seen, err error) {
	if _, err := fmt.Sscanf(meta, seenText, &s.Made, &s.Cores, &s.GPUs, &s.Bytes); err != nil {
		return s, fmt.Errorf("%w: capacity of node %s", ledger.ErrDamaged, node)
	}
	return s, nil
}

// sees adds to the stored capacity of a node. Another controller may have stored more fields than are known here.
func (b *booker) sees(node string, news *ledger.Seen) {
	var meta string
	s := *news
	if b.s.one(seenOf, []any{seenKey + node}, &meta) {
		stored, err := readSeen(node, meta)
		b.s.check(err)
		s = stored.Add(*news)
	}
	b.s.setMeta(seenKey+node, fmt.Sprintf(seenText, s.Made, s.Cores, s.GPUs, s.Bytes))
}

func (s *session) reported(node string, now time.Time) (t reported) {
	var meta string
	s.one(reportedOf, []any{reportedKey + node, node}, &meta, &t.spans)
	s.check(t.read(node, meta, now))
	return t
}

// hears records the creation time of a node before the interval of its first booking is recorded.
func (b *booker) hears(booking *ledger.Booking) {
	node := booking.Batch.Stream.Node
	t := b.s.reported(node, booking.Received)
	t.since = min(t.since, booking.CameToBe().Unix())
	key, value := t.meta(node)
	b.s.insert("meta", []string{"key", "value"}, [][]any{{key, value}}, "ON CONFLICT (key) DO NOTHING")
}

// spans drops spans of boots that will not receive more batches. Their total length is retained.
func (k *keeper) spans(before int64) {
	const old = ` FROM spans WHERE seen < $1 AND EXISTS (SELECT 1 FROM spans AS other
		WHERE other.node = spans.node AND other.boot <> spans.boot AND other.seen > spans.seen)`
	k.update(func(s *session) {
		lost := map[string]int64{}
		s.each(func(rows *sql.Rows) error {
			var node string
			var length int64
			err := rows.Scan(&node, &length)
			lost[node] = length
			return err
		}, "SELECT node, "+lengths+old+" GROUP BY node", before)
		for node, length := range lost {
			t := s.reported(node, k.d.now())
			t.dropped += length
			s.setMeta(t.meta(node))
		}
		s.exec("DELETE"+old, before)
	})
}
