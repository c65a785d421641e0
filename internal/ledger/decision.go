package ledger

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of records.
const (
	maxRecord     = 16 << 10 // total size of texts in bytes
	MaxSnapshot   = 1 << 20  // in bytes; larger snapshots are omitted
	maxRecordID   = 128
	defaultRows   = 1000
	maxRecordRows = 100_000
	maxLabel      = 253
)

// Validate returns an error if the record cannot be stored.
func (r *Record) Validate() error {
	if r.ID == "" || len(r.ID) > maxRecordID {
		return fmt.Errorf("the ID of a record must have 1 to %d bytes, not %d", maxRecordID, len(r.ID))
	}
	if r.At.Year() < firstYear || r.At.Year() > lastYear {
		return fmt.Errorf("record %s has an invalid year %d", r.ID, r.At.Year())
	}
	texts := len(r.Reason) + len(r.Message)
	for _, text := range []string{
		r.ID, r.Action, r.Namespace, r.OwnerKind, r.Owner, r.UID, r.Strategy, r.Node, r.Digest,
	} {
		if len(text) > maxLabel {
			return fmt.Errorf("record %s: name with %d bytes: %w", r.ID, len(text), ErrTooLarge)
		}
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			return fmt.Errorf("record %s: %q is not valid text", r.ID, text)
		}
		texts += len(text)
	}
	if texts > maxRecord {
		return fmt.Errorf("record %s: texts with a total of %d bytes: %w", r.ID, texts, ErrTooLarge)
	}
	return nil
}

// Kept returns the record as it is stored, with times in UTC, At truncated to milliseconds, and without a snapshot
// that is too large.
func (r *Record) Kept() Record {
	k := *r
	k.At, k.Start, k.End = k.At.UTC().Truncate(time.Millisecond), k.Start.UTC(), k.End.UTC()
	if len(k.Snapshot) > MaxSnapshot || len(k.Snapshot) == 0 {
		k.Snapshot = nil
	}
	return k
}

// OwnerName returns the owner as kind/name, as used in filters.
func (r *Record) OwnerName() string { return r.OwnerKind + "/" + r.Owner }

// Rows returns the maximum number of records of the result.
func (q *RecordQuery) Rows() int {
	if q.Limit <= 0 {
		return defaultRows
	}
	return min(q.Limit, maxRecordRows)
}
