package energy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// stateVersion is the first byte of an attributor's state. Another version is refused: the agent then begins anew.
const stateVersion = 2

const longestName = 4096 // of a domain or a consumer; a control group's path is shorter

// AppendState appends what the attributor knows, so that another one goes on as this one would. The state is of one
// boot and one node, and its options are not part of it. What was learned of idle power belongs to the counters in
// the state.
func (a *Attributor) AppendState(b []byte) []byte {
	b = append(b, stateVersion)
	b = appendBool(b, a.begun)
	b = appendDurations(b, a.at, a.end, a.since)
	b = binary.AppendVarint(b, int64(a.platformCarry))
	b = binary.AppendVarint(b, int64(a.idleCarry))
	b = binary.AppendUvarint(b, uint64(len(a.root)))
	for i := range a.root {
		b = a.root[i].append(b)
	}
	b = binary.AppendUvarint(b, uint64(len(a.parts)))
	for i := range a.parts {
		p := &a.parts[i]
		b = p.append(b)
		b = binary.AppendVarint(b, int64(p.rise))
		b = appendDurations(b, p.over)
		b = append(b, byte(p.known))
	}
	b = a.roster.append(b)
	return a.fit.AppendState(b)
}

// RestoreState makes a as it was when the state was appended. If the state is damaged or of another version, it
// returns an error and leaves a as it is.
func (a *Attributor) RestoreState(state []byte) error {
	if len(state) == 0 || state[0] != stateVersion {
		return errors.New("restoring attribution: not a state of this version")
	}
	n := NewAttributor(a.o)
	d := decoder{rest: state[1:]}
	n.begun = d.bool()
	n.at, n.end, n.since = d.duration(), d.duration(), d.duration()
	n.platformCarry, n.idleCarry = Microjoules(d.varint()), Microjoules(d.varint())
	for range d.count(leastTrack) {
		n.root = append(n.root, d.track())
	}
	for range d.count(leastTrack) {
		n.parts = append(n.parts, part{
			track: d.track(), rise: Microjoules(d.varint()), over: d.duration(), known: knowledge(d.byte()),
			restored: true,
		})
	}
	d.roster(&n.roster)
	if d.err == nil {
		d.err = n.checkState()
	}
	if d.err != nil {
		return fmt.Errorf("restoring attribution: %w", d.err)
	}
	rest, err := n.fit.RestoreState(d.rest)
	if err != nil {
		return fmt.Errorf("restoring attribution: %w", err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("restoring attribution: %d bytes too many", len(rest))
	}
	*a = *n
	return nil
}

// checkState holds what the rest of the attributor relies on.
func (a *Attributor) checkState() error {
	if !a.begun && (len(a.root)+len(a.parts) > 0 || a.roster.begun) {
		return errors.New("there are counters before the first observation")
	}
	if a.at < 0 || a.since < 0 || a.since > a.end {
		return errors.New("energy is booked beyond what is reported")
	}
	if a.idleCarry < 0 || a.idleCarry > math.MaxInt64/2 {
		return errors.New("idle energy that is due is out of range")
	}
	if err := a.checkCounters(); err != nil {
		return err
	}
	return a.roster.check(a.at)
}

func (a *Attributor) checkCounters() error {
	for i := range a.root {
		t := &a.root[i]
		if t.booked < 0 || t.booked > t.last.Total || t.fresh != (t.last.At < a.since) ||
			tracked(a.root[:i], t.last.Domain) {
			return fmt.Errorf("counter %q contradicts what is booked", t.last.Domain.Name)
		}
	}
	for i := range a.parts {
		if p := &a.parts[i]; p.rise < 0 || p.over < 0 || p.known > lost {
			return fmt.Errorf("counter %q fell", p.last.Domain.Name)
		}
	}
	return nil
}

func (r *roster) check(at time.Duration) error {
	if r.busy < 0 || r.found < 0 || r.worked < 0 || r.span < 0 || (r.begun && r.swept > at) {
		return errors.New("times of the last sweep are out of range")
	}
	for i := range r.entries {
		e := &r.entries[i]
		if e.cpu < 0 || e.used < 0 || e.id == "" || (i > 0 && r.entries[i-1].id >= e.id) {
			return fmt.Errorf("consumer %q is out of order", e.id)
		}
	}
	return nil
}

func (t *track) append(b []byte) []byte {
	r := &t.last
	b = append(b, byte(r.Domain.Kind), byte(r.Quality))
	b = appendString(b, r.Domain.Name)
	b = appendDurations(b, r.At)
	b = binary.AppendVarint(b, int64(r.Total))
	b = binary.AppendUvarint(b, uint64(r.Run))
	b = binary.AppendUvarint(b, r.Raw)
	b = binary.AppendUvarint(b, r.Rest)
	b = binary.AppendVarint(b, int64(t.booked))
	return appendBool(b, t.fresh)
}

func (r *roster) append(b []byte) []byte {
	b = appendBool(b, r.begun)
	b = appendDurations(b, r.swept, r.busy, r.found, r.worked, r.span, r.gap)
	b = binary.AppendUvarint(b, uint64(len(r.entries)))
	for i := range r.entries {
		e := &r.entries[i]
		b = appendString(b, e.id)
		b = appendDurations(b, e.cpu, e.used)
		b = binary.AppendUvarint(b, e.weight)
		b = append(b, e.absent)
		b = appendBool(b, e.ended)
	}
	return b
}

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendDurations(b []byte, durations ...time.Duration) []byte {
	for _, v := range durations {
		b = binary.AppendVarint(b, int64(v))
	}
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// The least bytes that an element takes: counts above what the rest can hold are not believed.
const (
	leastTrack = 10
	leastEntry = 6
)

var errTruncated = errors.New("truncated or malformed")

// A decoder reads a state; after the first error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail() { d.rest, d.err = nil, errTruncated }

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

func (d *decoder) duration() time.Duration { return time.Duration(d.varint()) }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	v := d.rest[0]
	d.rest = d.rest[1:]
	return v
}

func (d *decoder) bool() bool { return d.byte() != 0 }

func (d *decoder) count(least int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/least) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.uvarint()
	if n > longestName || n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) track() (t track) {
	t.last.Domain.Kind, t.last.Quality = DomainKind(d.byte()), Quality(d.byte())
	t.last.Domain.Name = d.string()
	t.last.At = d.duration()
	t.last.Total = Microjoules(d.varint())
	run := d.uvarint()
	t.last.Run = uint32(run)
	t.last.Raw = d.uvarint()
	t.last.Rest = d.uvarint()
	t.booked = Microjoules(d.varint())
	t.fresh = d.bool()
	if t.last.Total < 0 || run > math.MaxUint32 {
		d.fail()
	}
	return t
}

func (d *decoder) roster(r *roster) {
	r.begun = d.bool()
	r.swept, r.busy, r.found = d.duration(), d.duration(), d.duration()
	r.worked, r.span, r.gap = d.duration(), d.duration(), d.duration()
	n := d.count(leastEntry)
	r.entries = make([]entry, 0, n)
	for range n {
		r.entries = append(r.entries, entry{
			id: d.string(), cpu: d.duration(), used: d.duration(), weight: d.uvarint(), absent: d.byte(),
			ended: d.bool(),
		})
	}
}
