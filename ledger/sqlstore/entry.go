package sqlstore

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
)

// An entry is a row of the journal: a booking whose names are numbers of rows.
type entry struct {
	ID         int64 // 0 until it is written
	Node       int64
	Start, End time.Time
	Agentless  bool
	Estimated  bool
	Unmeasured time.Duration
	Measured   energy.Microjoules // sum of the postings
	Rates      ledger.Rates       // without texts: they are in the accounts
	Base       int64              // account of the node's unknown energy
	Guest      posting            // who takes from the host; its Account is 0 if the node is no guest
	Postings   []posting          // not priced; their energy and CPU time alone are written
}

const (
	entryVersion   = 1
	leastUnpriced  = 5 // bytes
	flagAgentless  = 1
	flagEstimated  = 2
	flagGuest      = 4
	entryFlagsMask = flagAgentless | flagEstimated | flagGuest
)

// encode returns the payload of the entry's row.
func (e *entry) encode() []byte {
	const most, head = 24, 96
	b := make([]byte, 0, head+most*len(e.Postings))
	flags := byte(0)
	if e.Agentless {
		flags |= flagAgentless
	}
	if e.Estimated {
		flags |= flagEstimated
	}
	if e.Guest.Account != 0 {
		flags |= flagGuest
	}
	b = append(b, entryVersion, flags)
	start := e.Start.UnixNano()
	b = appendVarints(b, start, e.End.UnixNano()-start, int64(e.Unmeasured), int64(e.Measured))
	b = appendFloats(b, e.Rates.PUE, e.Rates.Carbon, e.Rates.Price)
	b = binary.AppendVarint(b, e.Base)
	if e.Guest.Account != 0 {
		b = appendVarints(b, e.Guest.Consumer, e.Guest.Account)
	}
	b = binary.AppendUvarint(b, uint64(len(e.Postings)))
	consumer, account := int64(0), e.Base
	for i := range e.Postings {
		p := &e.Postings[i]
		b = appendVarints(b, p.Consumer-consumer, p.Account-account, int64(p.Dynamic), int64(p.Idle), int64(p.CPU))
		consumer, account = p.Consumer, p.Account
	}
	return sealBlob(b, e.key()...)
}

// key is what the columns of the row say.
func (e *entry) key() []int64 { return []int64{e.Node, e.Start.UnixMilli(), e.End.UnixMilli()} }

const selectEntries = "SELECT id, node, start, finish, payload FROM journal"

// scanEntry reads a row of the journal. Its number is right even where the rest is damaged.
func scanEntry(rows *sql.Rows) (id int64, e *entry, err error) {
	var node, start, finish int64
	var payload []byte
	if err := rows.Scan(&id, &node, &start, &finish, &payload); err != nil {
		return 0, nil, err
	}
	e, err = decodeEntry(id, node, start, finish, payload)
	return id, e, err
}

// decodeEntry reads the payload of a row of the journal. It fails if a bit of it has changed.
func decodeEntry(id, node, start, finish int64, payload []byte) (*entry, error) {
	body, err := openBlob(payload, node, start, finish)
	if err != nil {
		return nil, fmt.Errorf("booking %d: %w", id, err)
	}
	e := &entry{ID: id, Node: node}
	d := decoder{b: body}
	version, flags := d.byte(), d.byte()
	e.Agentless, e.Estimated = flags&flagAgentless != 0, flags&flagEstimated != 0
	from := d.varint()
	e.Start, e.End = time.Unix(0, from).UTC(), time.Unix(0, from+d.varint()).UTC()
	e.Unmeasured = time.Duration(d.varint())
	e.Measured = energy.Microjoules(d.varint())
	e.Rates.PUE, e.Rates.Carbon, e.Rates.Price = d.float(), d.float(), d.float()
	e.Base = d.varint()
	if flags&flagGuest != 0 {
		e.Guest.Consumer = d.varint()
		e.Guest.Account = d.varint()
	}
	e.Postings = make([]posting, d.count(leastUnpriced))
	consumer, account := int64(0), e.Base
	sum := energy.Microjoules(0)
	for i := range e.Postings {
		p := &e.Postings[i]
		consumer += d.varint()
		account += d.varint()
		p.Consumer, p.Account = consumer, account
		p.Dynamic, p.Idle = energy.Microjoules(d.varint()), energy.Microjoules(d.varint())
		p.CPU = time.Duration(d.varint())
		sum += p.Energy()
	}
	if version != entryVersion || flags&^entryFlagsMask != 0 || !d.ended() || e.End.Before(e.Start) ||
		sum != e.Measured {
		return nil, fmt.Errorf("booking %d: %w: it cannot be read", id, ledger.ErrDamaged)
	}
	return e, nil
}
