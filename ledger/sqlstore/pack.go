package sqlstore

import (
	"database/sql"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
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
	Agentless   bool
	First, Last int64 // Unix seconds: of the time that is booked in it
	Bases       []base
	Postings    []posting
}

// Most windows hold a hundred postings of some 20 bytes, so almost all that is kept is these. Numbers are written as
// variable-length integers, and as differences from what can be expected: consumers and accounts from those before,
// energy at the site from energy times the window's mean PUE, carbon and cost from that energy times the window's
// mean rates. What is estimated, and what has no rate, is mostly all or nothing.
const windowVersion = 1

// What of an amount is estimated, of its energy at the site without carbon intensity, or without price.
const (
	nothing = iota
	all
	some // the number follows
)

const (
	modeBits     = 2
	modeMask     = 1<<modeBits - 1
	leastPosting = 8 // bytes of the shortest
	leastBase    = 2
)

type modes uint8

func modeOf(part, of energy.Microjoules) modes {
	switch part {
	case 0:
		return nothing
	case of:
		return all
	}
	return some
}

func modesOf(a *ledger.Amount) modes {
	return modeOf(a.Estimated, a.Energy()) | modeOf(a.Uncharted, a.Facility)<<modeBits | modeOf(a.Unpriced,
		a.Facility)<<(2*modeBits)
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
	b := make([]byte, 0, head+most*len(w.Postings))
	r := ratesOf(w.Postings)
	b = append(b, windowVersion)
	b = appendVarints(b, w.First-w.Start, w.Last-w.First)
	b = appendFloats(b, r.pue, r.carbon, r.cost)
	b = binary.AppendUvarint(b, uint64(len(w.Bases)))
	var account, consumer int64
	for _, base := range w.Bases {
		b = appendVarints(b, base.Account-account, int64(base.Unmeasured))
		account = base.Account
	}
	b = binary.AppendUvarint(b, uint64(len(w.Postings)))
	usual := modes(0)
	if len(w.Postings) > 0 {
		usual = modesOf(&w.Postings[0].Amount)
	}
	fine := fineCPU(w.Postings)
	b = append(b, byte(usual), fine)
	for i := range w.Postings {
		p := &w.Postings[i]
		b = binary.AppendVarint(b, p.Consumer-consumer)
		b = p.encode(b, p.Account-account, usual, fine, &r)
		consumer, account = p.Consumer, p.Account
	}
	return sealBlob(b, w.key()...)
}

func (w *window) key() []int64 {
	agentless := int64(0)
	if w.Agentless {
		agentless = 1
	}
	return []int64{w.Start, w.Node, agentless}
}

// fineCPU is 0 if all CPU times are whole microseconds, as kernels count them.
func fineCPU(postings []posting) byte {
	for i := range postings {
		if postings[i].CPU%time.Microsecond != 0 {
			return 1
		}
	}
	return 0
}

func (p *posting) encode(b []byte, account int64, usual modes, fine byte, r *rates) []byte {
	m := modesOf(&p.Amount)
	head := uint64(account<<1^account>>63) << 1
	if m == usual {
		b = binary.AppendUvarint(b, head)
	} else {
		b = append(binary.AppendUvarint(b, head|1), byte(m))
	}
	cpu := int64(p.CPU)
	if fine == 0 {
		cpu /= int64(time.Microsecond)
	}
	b = appendVarints(b, int64(p.Dynamic), int64(p.Idle), cpu)
	for mode, part := range [...]energy.Microjoules{p.Estimated, p.Uncharted, p.Unpriced} {
		if m>>(mode*modeBits)&modeMask == some {
			b = binary.AppendVarint(b, int64(part))
		}
	}
	return appendVarints(b, int64(p.Facility)-expected(p.Energy(), r.pue),
		int64(p.Carbon)-expected(p.Facility-p.Uncharted, r.carbon),
		int64(p.Cost)-expected(p.Facility-p.Unpriced, r.cost))
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
	w, err = decodeWindow(k.start, k.node, by == byEstimate, payload)
	return k, by, w, err
}

// decodeWindow reads the payload of a row of windows. It fails if a bit of it has changed.
func decodeWindow(start, node int64, agentless bool, payload []byte) (*window, error) {
	w := &window{Start: start, Node: node, Agentless: agentless}
	body, err := openBlob(payload, w.key()...)
	if err != nil {
		return nil, fmt.Errorf("window %d of node %d: %w", start, node, err)
	}
	d := decoder{b: body}
	if v := d.byte(); v != windowVersion {
		return nil, fmt.Errorf("window %d of node %d: %w: version %d of its form", start, node, ledger.ErrDamaged, v)
	}
	w.First = start + d.varint()
	w.Last = w.First + d.varint()
	r := rates{d.float(), d.float(), d.float()}
	var account, consumer int64
	w.Bases = make([]base, d.count(leastBase))
	for i := range w.Bases {
		account += d.varint()
		w.Bases[i] = base{account, time.Duration(d.varint())}
	}
	w.Postings = make([]posting, d.count(leastPosting))
	usual, fine := modes(d.byte()), d.byte()
	for i := range w.Postings {
		p := &w.Postings[i]
		consumer += d.varint()
		p.Consumer = consumer
		account = p.decode(&d, account, usual, fine, &r)
	}
	if !d.ended() {
		return nil, fmt.Errorf("window %d of node %d: %w: it cannot be read", start, node, ledger.ErrDamaged)
	}
	return w, nil
}

func (p *posting) decode(d *decoder, account int64, usual modes, fine byte, r *rates) int64 {
	head, m := d.uvarint(), usual
	if head&1 != 0 {
		m = modes(d.byte())
	}
	head >>= 1
	p.Account = account + (int64(head>>1) ^ -int64(head&1))
	p.Dynamic = energy.Microjoules(d.varint())
	p.Idle = energy.Microjoules(d.varint())
	p.CPU = time.Duration(d.varint())
	if fine == 0 {
		p.CPU *= time.Microsecond
	}
	var parts [3]energy.Microjoules
	for mode := range parts {
		if m>>(mode*modeBits)&modeMask == some {
			parts[mode] = energy.Microjoules(d.varint())
		}
	}
	of := func(mode int, whole energy.Microjoules) energy.Microjoules {
		if m>>(mode*modeBits)&modeMask == all {
			return whole
		}
		return parts[mode]
	}
	p.Estimated = of(0, p.Energy())
	p.Facility = energy.Microjoules(d.varint() + expected(p.Energy(), r.pue))
	p.Uncharted, p.Unpriced = of(1, p.Facility), of(2, p.Facility) //nolint:mnd // the modes' order
	p.Carbon = ledger.Micrograms(d.varint() + expected(p.Facility-p.Uncharted, r.carbon))
	p.Cost = ledger.Nanos(d.varint() + expected(p.Facility-p.Unpriced, r.cost))
	return p.Account
}

func appendVarints(b []byte, all ...int64) []byte {
	for _, v := range all {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func appendFloats(b []byte, all ...float64) []byte {
	for _, f := range all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
	}
	return b
}

// A decoder reads numbers until there are no more; afterwards they are 0, and it has not ended well.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) varint() int64 {
	u := d.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.bad = true
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) float() float64 {
	const size = 8
	if len(d.b) < size {
		d.bad, d.b = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[size:]
	return math.Float64frombits(v)
}

// count reads how many things follow, each of at least so many bytes.
func (d *decoder) count(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.b)/least) {
		d.bad, d.b = true, nil
		return 0
	}
	return int(n)
}

func (d *decoder) ended() bool { return !d.bad && len(d.b) == 0 }
