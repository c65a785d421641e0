package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// scan reads a batch. It is an order of magnitude faster than encoding/json, which a central unit of thousands of nodes
// needs, and stricter: keys that are there twice in an object, or not written as they should be, with other capitals or
// escapes, are refused. Other readers would take something else from them.
func scan(data []byte) (*Batch, error) {
	s := scanner{data: data}
	b := new(Batch)
	object(&s, b, ofBatch)
	if s.space(); s.err == nil && s.at < len(data) {
		s.fail("something follows the value")
	}
	return b, s.err
}

// scanner goes through JSON. Once it has failed, what it returns means nothing.
type scanner struct {
	data []byte
	at   int
	err  error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("at byte %d: "+format, append([]any{s.at}, args...)...)
	}
}

// check fails with the error of a value.
func (s *scanner) check(err error) {
	if err != nil {
		s.fail("%w", err)
	}
}

// A field is a key of an object, and what reads its value.
type field[T any] struct {
	key  string
	read func(s *scanner, to *T)
}

var ofBatch = []field[Batch]{
	{"version", func(s *scanner, b *Batch) { b.Version = int(s.integer(math.MaxInt)) }},
	{"stream", func(s *scanner, b *Batch) { object(s, &b.Stream, ofStream) }},
	{"first", func(s *scanner, b *Batch) { b.First = s.integer(math.MaxUint64) }},
	{"last", func(s *scanner, b *Batch) { b.Last = s.integer(math.MaxUint64) }},
	{"parent", func(s *scanner, b *Batch) { b.Parent = object(s, new(Parent), ofParent) }},
	{"start", func(s *scanner, b *Batch) { b.Start = s.time() }},
	{"end", func(s *scanner, b *Batch) { b.End = s.time() }},
	{"startSinceBoot", func(s *scanner, b *Batch) { b.StartSinceBoot = s.duration() }},
	{"endSinceBoot", func(s *scanner, b *Batch) { b.EndSinceBoot = s.duration() }},
	{"unmeasured", func(s *scanner, b *Batch) { b.Unmeasured = s.duration() }},
	{"source", func(s *scanner, b *Batch) { b.Source = s.text() }},
	{"quality", func(s *scanner, b *Batch) { s.check(b.Quality.UnmarshalText(s.bytes())) }},
	{"idlePolicy", func(s *scanner, b *Batch) { b.IdlePolicy = s.text() }},
	{"measured", func(s *scanner, b *Batch) { b.Measured = s.energy() }},
	{"idle", func(s *scanner, b *Batch) { b.Idle = s.energy() }},
	{"platform", func(s *scanner, b *Batch) { b.Platform = s.energy() }},
	{"unknown", func(s *scanner, b *Batch) { b.Unknown = s.energy() }},
	{"gpuIdle", func(s *scanner, b *Batch) { b.GPUIdle = s.energy() }},
	{"gpuUnknown", func(s *scanner, b *Batch) { b.GPUUnknown = s.energy() }},
	{"shares", func(s *scanner, b *Batch) { b.Shares = s.shares() }},
}

var ofStream = []field[Stream]{
	{"node", func(s *scanner, to *Stream) { to.Node = s.text() }},
	{"boot", func(s *scanner, to *Stream) { to.Boot = s.text() }},
	{"epoch", func(s *scanner, to *Stream) { to.Epoch = s.text() }},
}

var ofParent = []field[Parent]{
	{"host", func(s *scanner, to *Parent) { to.Host = s.text() }},
	{"vm", func(s *scanner, to *Parent) { to.VM = s.text() }},
}

var ofShare = []field[energy.Share]{
	{"id", func(s *scanner, to *energy.Share) { to.ID = s.text() }},
	{"dynamic", func(s *scanner, to *energy.Share) { to.Dynamic = s.energy() }},
	{"idle", func(s *scanner, to *energy.Share) { to.Idle = s.energy() }},
	{"gpu", func(s *scanner, to *energy.Share) { to.GPU = s.energy() }},
	{"cpu", func(s *scanner, to *energy.Share) { to.CPU = s.duration() }},
	{"ended", func(s *scanner, to *energy.Share) { to.Ended = s.truth() }},
}

func (s *scanner) shares() []energy.Share {
	const usual = 128 // bytes of a share
	all := make([]energy.Share, 0, min((len(s.data)-s.at)/usual+1, MaxShares))
	s.expect('[')
	if s.next() == ']' {
		s.at++
		return all
	}
	for s.err == nil {
		if len(all) == MaxShares {
			s.fail("more than %d shares", MaxShares)
			return nil
		}
		all = append(all, energy.Share{})
		object(s, &all[len(all)-1], ofShare)
		if s.next() != ',' {
			s.expect(']')
			return all
		}
		s.at++
	}
	return nil
}

// object reads an object whose keys are known and each there once.
func object[T any](s *scanner, to *T, known []field[T]) *T {
	s.expect('{')
	if s.next() == '}' {
		s.at++
		return to
	}
	for seen := uint32(0); s.err == nil; s.at++ {
		key, _ := s.raw()
		i := slices.IndexFunc(known, func(f field[T]) bool { return f.key == string(key) })
		if i < 0 || seen&(1<<i) != 0 {
			s.fail("key %.40q is not known, or there twice", key)
			break
		}
		seen |= 1 << i
		s.expect(':')
		if s.next() == 'n' {
			s.word("null") // as if the key were not there
		} else {
			known[i].read(s, to)
		}
		if s.next() != ',' {
			s.expect('}')
			break
		}
	}
	return to
}

func (s *scanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// next returns the byte that follows, without going on to the one after it; 0 if there is none.
func (s *scanner) next() byte {
	s.space()
	if s.at < len(s.data) {
		return s.data[s.at]
	}
	s.fail("it ends too early")
	return 0
}

func (s *scanner) expect(c byte) {
	if s.next() != c {
		s.fail("want %q", c)
		return
	}
	s.at++
}

// raw returns a text as it stands there, and whether that is what it means: without escapes, of ASCII.
func (s *scanner) raw() (text []byte, plain bool) {
	s.expect('"')
	plain = true
	for i := s.at; i < len(s.data) && s.err == nil; i++ {
		switch c := s.data[i]; {
		case c == '"':
			text, s.at = s.data[s.at:i], i+1
			return text, plain
		case c == '\\':
			plain = false
			i++
		case c < ' ' || c >= 0x7f:
			plain = false
		}
	}
	s.fail("a text without an end")
	return nil, true
}

// bytes returns what a text means.
func (s *scanner) bytes() []byte {
	start := s.at
	text, plain := s.raw()
	if plain {
		return text
	}
	var meant string
	s.check(json.Unmarshal(s.data[start:s.at], &meant))
	return []byte(meant)
}

// text copies: what is kept of a batch must not keep all of its bytes.
func (s *scanner) text() string { return string(s.bytes()) }

func (s *scanner) time() (t time.Time) {
	s.check(t.UnmarshalText(s.bytes()))
	return t
}

func (s *scanner) energy() energy.Microjoules { return energy.Microjoules(s.signed()) }

func (s *scanner) duration() time.Duration { return time.Duration(s.signed()) }

// signed reads a number that may have a sign, but not be negative: -0 is.
func (s *scanner) signed() int64 {
	if s.next() != '-' {
		return int64(s.integer(math.MaxInt64))
	}
	s.at++
	return int64(s.integer(0))
}

// integer reads a whole number that is not negative.
func (s *scanner) integer(most uint64) uint64 {
	const base = 10
	s.space()
	first := s.at
	var v uint64
	for ; s.at < len(s.data); s.at++ {
		d := uint64(s.data[s.at]) - '0'
		if d >= base {
			break
		}
		if d > most || v > (most-d)/base {
			s.fail("a number that is too large, or negative")
			return 0
		}
		v = v*base + d
	}
	digits := s.at - first
	if digits == 0 || digits > 1 && s.data[first] == '0' {
		s.fail("want a whole number")
	}
	return v // a fraction or an exponent is not what may follow
}

func (s *scanner) truth() bool {
	if s.next() == 't' {
		s.word("true")
		return true
	}
	s.word("false")
	return false
}

func (s *scanner) word(word string) {
	if !bytes.HasPrefix(s.data[s.at:], []byte(word)) {
		s.fail("want %s", word)
		return
	}
	s.at += len(word)
}
