package sqlstore

import (
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/codec"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A posting is what a consumer used in a window, by the numbers of the rows that name it and its account.
type posting struct {
	Consumer, Account int64
	ledger.Amount     // Unmeasured is not stored
}

// A base is the account of a node's unknown energy: it tells where the node was. Time without a meter's value is
// booked there.
type base struct {
	Account    int64
	Unmeasured time.Duration
}

// A window is a row of windows. Postings are sorted by consumer and account, each pair once; bases by account.
type window struct {
	Start, Node int64 // Unix seconds; row of nodes
	By          int64 // byAgent or byEstimate
	First, Last int64 // Unix seconds: of the time that is booked in it
	Bases       []base
	Postings    []posting
}

// Most windows hold a hundred postings of some 20 bytes, so almost all that is kept is these. Numbers are written as
// variable-length integers, and as differences from what can be expected: consumers and accounts from those before,
// energy at the site from energy times the window's mean PUE, carbon and cost from that energy times the window's
// mean rates. What is estimated, and what has no rate, is mostly all or nothing.
const windowVersion = 1

// What of an amount is estimated, of its energy at the site without carbon intensity, or without price, and a GPU's:
// nothing in windows of before GPUs were metered.
const (
	nothing = iota
	all
	some // the number follows
)

const (
	modeBits   = 2
	modeMask   = 1<<modeBits - 1
	minPosting = 8 // bytes of the shortest
	minBase    = 2
)

func modeOf(part, of energy.Microjoules) byte {
	switch part {
	case 0:
		return nothing
	case of:
		return all
	}
	return some
}

func modesOf(a *ledger.Amount) byte {
	return modeOf(a.Estimated, a.Energy()) | modeOf(a.Uncharted, a.Facility)<<modeBits |
		modeOf(a.Unpriced, a.Facility)<<(2*modeBits) | modeOf(a.GPU, a.Energy())<<(3*modeBits)
}

// rates are a window's means.
type rates struct{ pue, carbon, cost float64 }

func ratesOf(postings []posting) rates {
	var used, facility, charted, priced, carbon, cost float64
	for i := range postings {
		a := &postings[i].Amount
		used += float64(a.Energy())
		facility += float64(a.Facility)
		charted += float64(a.Facility - a.Uncharted)
		priced += float64(a.Facility - a.Unpriced)
		carbon += float64(a.Carbon)
		cost += float64(a.Cost)
	}
	return rates{ratio(facility, used), ratio(carbon, charted), ratio(cost, priced)}
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// expected is the same on all machines: there is nothing to fuse the product with. What is out of range may be any
// number.
func expected(of energy.Microjoules, rate float64) int64 {
	v := math.RoundToEven(float64(of) * rate)
	if v > -math.MaxInt64/2 && v < math.MaxInt64/2 {
		return int64(v)
	}
	return 0
}

// encode returns the payload of the window's row.
func (w *window) encode() []byte {
	const most, head = 26, 64
	c := codec.Writer(make([]byte, 0, head+most*len(w.Postings)))
	w.code(&c)
	return sealBlob(c.Data(), w.key()...)
}

// decodeWindow reads the payload of a row of windows. It fails if a bit of it has changed.
func decodeWindow(start, node, by int64, payload []byte) (*window, error) {
	w := &window{Start: start, Node: node, By: by}
	body, err := openBlob(payload, w.key()...)
	if err != nil {
		return nil, fmt.Errorf("window %d of node %d: %w", start, node, err)
	}
	c := codec.Reader(body)
	w.code(&c)
	if !c.Whole() {
		return nil, fmt.Errorf("window %d of node %d: %w: it cannot be read", start, node, ledger.ErrDamaged)
	}
	return w, nil
}

// code writes or reads the window.
func (w *window) code(c *codec.Codec) {
	c.Version(windowVersion)
	from, account, consumer := w.Start, int64(0), int64(0)
	step(c, &from, &w.First)
	step(c, &from, &w.Last)
	var r rates
	var usual, fine byte
	if !c.Reading() {
		r, fine = ratesOf(w.Postings), fineCPU(w.Postings)
		if len(w.Postings) > 0 {
			usual = modesOf(&w.Postings[0].Amount)
		}
	}
	for _, rate := range []*float64{&r.pue, &r.carbon, &r.cost} {
		c.Float64(rate)
	}
	for i := range codec.Elements(c, &w.Bases, minBase) {
		step(c, &account, &w.Bases[i].Account)
		codec.Int(c, &w.Bases[i].Unmeasured)
	}
	postings := codec.Elements(c, &w.Postings, minPosting)
	c.Byte(&usual)
	c.Byte(&fine)
	for i := range postings { // accounts go on from that of the last base
		p := &postings[i]
		step(c, &consumer, &p.Consumer)
		p.code(c, &account, usual, fine, &r)
	}
}

func (w *window) key() []int64 { return []int64{w.Start, w.Node, w.By} }

// fineCPU is 0 if all CPU times are whole microseconds, as kernels count them.
func fineCPU(postings []posting) byte {
	for i := range postings {
		if postings[i].CPU%time.Microsecond != 0 {
			return 1
		}
	}
	return 0
}

// code writes or reads the posting but for its consumer.
func (p *posting) code(c *codec.Codec, account *int64, usual, fine byte, r *rates) {
	m, by := usual, p.Account-*account
	if !c.Reading() {
		m = modesOf(&p.Amount)
	}
	head := uint64(by<<1^by>>63) << 1 //nolint:mnd // the sign
	if m != usual {
		head |= 1
	}
	codec.Uint(c, &head)
	if head&1 != 0 {
		c.Byte(&m)
	}
	*account += int64(head>>2) ^ -int64(head>>1&1) //nolint:mnd // the sign and the number
	p.Account = *account
	cpu, unit := int64(p.CPU), int64(1)
	if fine == 0 {
		unit = int64(time.Microsecond)
	}
	cpu /= unit
	codec.Int(c, &p.Dynamic, &p.Idle)
	codec.Int(c, &cpu)
	p.CPU = time.Duration(cpu * unit)
	parts := [...]*energy.Microjoules{&p.Estimated, &p.Uncharted, &p.Unpriced, &p.GPU}
	for i, part := range parts {
		if m>>(i*modeBits)&modeMask == some {
			codec.Int(c, part)
		}
	}
	near(c, &p.Facility, expected(p.Energy(), r.pue))
	for i, whole := range [...]energy.Microjoules{p.Energy(), p.Facility, p.Facility, p.Energy()} {
		if m>>(i*modeBits)&modeMask == all {
			*parts[i] = whole
		}
	}
	near(c, &p.Carbon, expected(p.Facility-p.Uncharted, r.carbon))
	near(c, &p.Cost, expected(p.Facility-p.Unpriced, r.cost))
}

const selectWindows = "SELECT start, node, agentless, payload FROM windows"

// scanWindow reads a row of windows. The first two results are right even where the rest is damaged.
func scanWindow(rows *sql.Rows) (k windowKey, by int64, w *window, err error) {
	var payload []byte
	if err := rows.Scan(&k.start, &k.node, &by, &payload); err != nil {
		return k, by, nil, err
	}
	if by != byAgent && by != byEstimate {
		return k, byAgent, nil, fmt.Errorf("%w: a window of kind %d of node %d", ledger.ErrDamaged, by, k.node)
	}
	w, err = decodeWindow(k.start, k.node, by, payload)
	return k, by, w, err
}
