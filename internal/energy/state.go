package energy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// stateVersion is the first byte of an attributor's state. A state of another version is rejected, and the agent
// starts without one.
const stateVersion = 2

// AppendState appends the state of the attributor, from which another attributor can continue seamlessly. The state
// belongs to one boot of one node and does not include the options. The learned idle power belongs to the counters
// in the state.
func (a *Attributor) AppendState(b []byte) []byte {
	c := codec.Writer(b)
	a.code(&c)
	return c.Data()
}

// RestoreState restores the state that AppendState has encoded. It returns an error and leaves a unchanged if the
// state is damaged or of another version.
func (a *Attributor) RestoreState(state []byte) error {
	n := NewAttributor(a.o)
	c := codec.Reader(state)
	n.code(&c)
	err := n.checkState()
	if !c.Whole() {
		err = errors.New("state is damaged or of another version")
	}
	if err != nil {
		return fmt.Errorf("restoring attribution: %w", err)
	}
	*a = *n
	return nil
}

// The minimum number of bytes of an element.
const (
	minTrack = 10
	minEntry = 6
)

func (a *Attributor) code(c *codec.Codec) {
	c.Version(stateVersion)
	c.Flags(&a.begun)
	codec.Int(c, &a.at, &a.end, &a.since)
	codec.Int(c, &a.platformCarry, &a.idleCarry)
	for i := range codec.Elements(c, &a.root, minTrack) {
		a.root[i].code(c)
	}
	for i := range codec.Elements(c, &a.parts, minTrack) {
		p := &a.parts[i]
		p.code(c)
		codec.Int(c, &p.rise)
		codec.Int(c, &p.over)
		c.Byte((*byte)(&p.known))
		p.restored = p.restored || c.Reading()
	}
	a.roster.code(c)
	a.fit.code(c)
}

func (t *track) code(c *codec.Codec) {
	r, run := &t.last, uint64(t.last.Run)
	c.Byte((*byte)(&r.Domain.Kind))
	c.Byte((*byte)(&r.Quality))
	c.Text(&r.Domain.Name)
	codec.Int(c, &r.At)
	codec.Int(c, &r.Total)
	codec.Uint(c, &run, &r.Raw, &r.Rest)
	codec.Int(c, &t.booked)
	c.Flags(&t.fresh)
	if r.Run = uint32(run); r.Total < 0 || run > math.MaxUint32 {
		c.Fail()
	}
}

func (r *roster) code(c *codec.Codec) {
	c.Flags(&r.begun)
	codec.Int(c, &r.swept, &r.busy, &r.found, &r.worked, &r.span, &r.gap)
	for i := range codec.Elements(c, &r.entries, minEntry) {
		e := &r.entries[i]
		c.Text(&e.id)
		codec.Int(c, &e.cpu, &e.used)
		codec.Uint(c, &e.weight)
		c.Byte(&e.absent)
		c.Flags(&e.ended)
	}
}

// checkState validates the invariants that the rest of the attributor relies on.
func (a *Attributor) checkState() error {
	if !a.begun && (len(a.root)+len(a.parts) > 0 || a.roster.begun) {
		return errors.New("counters exist before the first observation")
	}
	if a.at < 0 || a.since < 0 || a.since > a.end {
		return errors.New("energy is recorded beyond the end of the reported interval")
	}
	if a.idleCarry < 0 || a.idleCarry > math.MaxInt64/2 {
		return errors.New("carried idle energy is out of range")
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
			return fmt.Errorf("counter %q is inconsistent with the recorded energy", t.last.Domain.Name)
		}
	}
	for i := range a.parts {
		if p := &a.parts[i]; p.rise < 0 || p.over < 0 || p.known > lost {
			return fmt.Errorf("counter %q decreased", p.last.Domain.Name)
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
