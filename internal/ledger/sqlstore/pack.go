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

// A posting is the usage of a consumer in a window. Consumer and Account are row IDs.
type posting struct {
	Consumer, Account int64
	ledger.Amount     // Unmeasured is not stored
}

// A base is the account of a node's unknown energy, which identifies the location of the node. Unmeasured time is
// charged to it.
type base struct {
	Account    int64
	Unmeasured time.Duration
}

// A window is a row of windows. Postings are sorted by consumer and account and unique, bases are sorted by
// account.
type window struct {
	Start, Node int64 // in Unix seconds; ID of the row of nodes
	By          int64 // byAgent or byEstimate
	First, Last int64 // in Unix seconds; interval of the recorded data
	Bases       []base
	Postings    []posting
}

// Most windows contain a hundred postings of about 20 bytes, which make up almost all of the stored data. Numbers
// are encoded as variable-length integers relative to an expected value. Consumers and accounts are relative to the
// previous ones, energy at the site to the energy multiplied by the window's mean PUE, and carbon and cost to the
// energy at the site multiplied by the window's mean rates. The estimated part and the parts without rates are
// usually all or nothing.
const windowVersion = 1

// Modes of a part of an amount, which are used for estimated energy, energy without carbon intensity, energy
// without price, and GPU energy. Windows written before GPUs were metered use nothing for GPU energy.
const (
	nothing = iota
	all
	some // the number is encoded
)

const (
	modeBits   = 2
	modeMask   = 1<<modeBits - 1
	minPosting = 8 // minimum size in bytes
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

// rates are the mean rates of a window.
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

// expected returns the rounded product, which is the same on all machines because there is no operation to fuse it
// with. It returns 0 if the product is out of range.
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

// decodeWindow decodes the payload of a row of windows. It returns an error if any bit has changed.
func decodeWindow(start, node, by int64, payload []byte) (*window, error) {
	w := &window{Start: start, Node: node, By: by}
	body, err := openBlob(payload, w.key()...)
	if err != nil {
		return nil, fmt.Errorf("window %d of node %d: %w", start, node, err)
	}
	c := codec.Reader(body)
	w.code(&c)
	if !c.Whole() {
		return nil, fmt.Errorf("window %d of node %d: %w: invalid payload", start, node, ledger.ErrDamaged)
	}
	return w, nil
}

// code encodes or decodes the window.
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
	for i := range postings { // accounts are relative to the last base
		p := &postings[i]
		step(c, &consumer, &p.Consumer)
		p.code(c, &account, usual, fine, &r)
	}
}

func (w *window) key() []int64 { return []int64{w.Start, w.Node, w.By} }

// fineCPU returns 0 if all CPU times are whole microseconds, the unit of kernels, and 1 otherwise.
func fineCPU(postings []posting) byte {
	for i := range postings {
		if postings[i].CPU%time.Microsecond != 0 {
			return 1
		}
	}
	return 0
}

// code encodes or decodes the posting without its consumer.
func (p *posting) code(c *codec.Codec, account *int64, usual, fine byte, r *rates) {
	m, by := usual, p.Account-*account
	if !c.Reading() {
		m = modesOf(&p.Amount)
	}
	head := uint64(by<<1^by>>63) << 1 //nolint:mnd // zigzag encoding
	if m != usual {
		head |= 1
	}
	codec.Uint(c, &head)
	if head&1 != 0 {
		c.Byte(&m)
	}
	*account += int64(head>>2) ^ -int64(head>>1&1) //nolint:mnd // zigzag decoding
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

// scanWindow reads a row of windows. The key and by are valid even if the payload is damaged.
func scanWindow(rows *sql.Rows) (k windowKey, by int64, w *window, err error) {
	var payload []byte
	if err := rows.Scan(&k.start, &k.node, &by, &payload); err != nil {
		return k, by, nil, err
	}
	if by != byAgent && by != byEstimate {
		return k, byAgent, nil, fmt.Errorf("%w: window with invalid kind %d of node %d", ledger.ErrDamaged, by, k.node)
	}
	w, err = decodeWindow(k.start, k.node, by, payload)
	return k, by, w, err
}
