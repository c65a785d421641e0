package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/codec"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// An entry is a row of the journal. It contains a booking with row IDs instead of names.
type entry struct {
	ID         int64 // 0 until it is inserted
	Node       int64
	Start, End time.Time
	Agentless  bool
	Estimated  bool
	Unmeasured time.Duration
	Measured   energy.Microjoules // total energy of the postings
	Rates      ledger.Rates       // only the numbers; the texts are part of the accounts
	Base       int64              // account of the node's unknown energy
	Guest      posting            // transfer from the host; its Account is 0 if the node is not a guest
	Postings   []posting          // without prices; only energy, GPU energy and CPU time are encoded
}

const (
	entryVersion = 1
	minUnpriced  = 5 // minimum size of an encoded posting in bytes
)

// encode returns the payload of the entry's row.
func (e *entry) encode() []byte {
	const most, head = 24, 96
	c := codec.Writer(make([]byte, 0, head+most*len(e.Postings)))
	e.code(&c)
	return sealBlob(c.Data(), e.key()...)
}

// code encodes or decodes the entry.
func (e *entry) code(c *codec.Codec) {
	c.Version(entryVersion)
	guest, gpus := e.Guest.Account != 0, e.gpus()
	c.Flags(&e.Agentless, &e.Estimated, &guest, &gpus)
	start, end, from := e.Start.UnixNano(), e.End.UnixNano(), int64(0)
	step(c, &from, &start)
	step(c, &from, &end)
	e.Start, e.End = time.Unix(0, start).UTC(), time.Unix(0, end).UTC()
	codec.Int(c, &e.Unmeasured)
	codec.Int(c, &e.Measured)
	for _, rate := range []*float64{&e.Rates.PUE, &e.Rates.Carbon, &e.Rates.Price} {
		c.Float64(rate)
	}
	codec.Int(c, &e.Base)
	if guest {
		codec.Int(c, &e.Guest.Consumer, &e.Guest.Account)
	}
	consumer, account := int64(0), e.Base
	for i := range codec.Elements(c, &e.Postings, minUnpriced) {
		p := &e.Postings[i]
		step(c, &consumer, &p.Consumer)
		step(c, &account, &p.Account)
		codec.Int(c, &p.Dynamic, &p.Idle)
		codec.Int(c, &p.CPU)
		if gpus {
			codec.Int(c, &p.GPU)
		}
	}
}

// gpus reports whether the entry contains GPU energy.
func (e *entry) gpus() bool {
	return slices.ContainsFunc(e.Postings, func(p posting) bool { return p.GPU != 0 })
}

// key returns the values of the key columns.
func (e *entry) key() []int64 { return []int64{e.Node, e.Start.UnixMilli(), e.End.UnixMilli()} }

const selectEntries = "SELECT id, node, start, finish, payload FROM journal"

// scanEntry reads a row of the journal. The returned ID is valid even if the row is damaged.
func scanEntry(rows *sql.Rows) (id int64, e *entry, err error) {
	var node, start, finish int64
	var payload []byte
	if err := rows.Scan(&id, &node, &start, &finish, &payload); err != nil {
		return 0, nil, err
	}
	e, err = decodeEntry(id, node, start, finish, payload)
	return id, e, err
}

// decodeEntry decodes the payload of a journal row. It returns an error if any bit has changed.
func decodeEntry(id, node, start, finish int64, payload []byte) (*entry, error) {
	body, err := openBlob(payload, node, start, finish)
	if err != nil {
		return nil, fmt.Errorf("booking %d: %w", id, err)
	}
	e := &entry{ID: id, Node: node}
	c := codec.Reader(body)
	e.code(&c)
	sum := energy.Microjoules(0)
	for i := range e.Postings {
		sum += e.Postings[i].Energy()
	}
	uncharged := e.Guest.Account == 0 && e.Guest.Consumer != 0 // a guest without an account for the transfer
	if !c.Whole() || e.End.Before(e.Start) || sum != e.Measured || uncharged {
		return nil, fmt.Errorf("booking %d: %w: invalid payload", id, ledger.ErrDamaged)
	}
	return e, nil
}
