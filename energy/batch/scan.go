package batch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// scan reads a batch. It is an order of magnitude faster than encoding/json, which a central unit of thousands of nodes
// needs, and stricter: keys that are there twice in an object, or not written as they should be, with other capitals or
// escapes, are refused. Other readers would take something else from them.
func scan(data []byte) (*Batch, error) {
	s := scanner{data: data}
	b := new(Batch)
	s.object(func(key []byte) { s.batch(b, key) })
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
	seen uint32 // keys of the object that it is in
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

// keys are the fields of a batch and of what is in it. Those that are called alike mean the same.
var keys = func() map[string]uint {
	numbers := map[string]uint{}
	for i, key := range []string{
		"version", "stream", "node", "boot", "epoch", "first", "last", "parent", "host", "vm",
		"start", "end", "startSinceBoot", "endSinceBoot", "unmeasured", "source", "quality", "idlePolicy",
		"measured", "idle", "platform", "unknown", "shares", "id", "dynamic", "cpu", "ended",
	} {
		numbers[key] = uint(i)
	}
	return numbers
}()

func (s *scanner) batch(b *Batch, key []byte) {
	switch string(key) {
	case "version":
		b.Version = int(s.integer(math.MaxInt))
	case "stream":
		s.object(func(key []byte) { s.stream(&b.Stream, key) })
	case "first":
		b.First = s.integer(math.MaxUint64)
	case "last":
		b.Last = s.integer(math.MaxUint64)
	case "parent":
		b.Parent = new(Parent)
		s.object(func(key []byte) { s.parent(b.Parent, key) })
	case "shares":
		b.Shares = s.shares()
	case "source":
		b.Source = s.text()
	case "idlePolicy":
		b.IdlePolicy = s.text()
	case "quality":
		s.check(b.Quality.UnmarshalText(s.bytes()))
	case "start":
		b.Start = s.time()
	case "end":
		b.End = s.time()
	default:
		s.amount(b, key)
	}
}

func (s *scanner) amount(b *Batch, key []byte) {
	switch string(key) {
	case "startSinceBoot":
		b.StartSinceBoot = s.duration()
	case "endSinceBoot":
		b.EndSinceBoot = s.duration()
	case "unmeasured":
		b.Unmeasured = s.duration()
	case "measured":
		b.Measured = s.energy()
	case "idle":
		b.Idle = s.energy()
	case "platform":
		b.Platform = s.energy()
	case "unknown":
		b.Unknown = s.energy()
	default:
		s.fail("key %.40q is not one of this object", key)
	}
}

func (s *scanner) stream(to *Stream, key []byte) {
	switch string(key) {
	case "node":
		to.Node = s.text()
	case "boot":
		to.Boot = s.text()
	case "epoch":
		to.Epoch = s.text()
	default:
		s.fail("key %.40q is not one of this object", key)
	}
}

func (s *scanner) parent(to *Parent, key []byte) {
	switch string(key) {
	case "host":
		to.Host = s.text()
	case "vm":
		to.VM = s.text()
	default:
		s.fail("key %.40q is not one of this object", key)
	}
}

func (s *scanner) share(to *energy.Share, key []byte) {
	switch string(key) {
	case "id":
		to.ID = s.text()
	case "dynamic":
		to.Dynamic = s.energy()
	case "idle":
		to.Idle = s.energy()
	case "cpu":
		to.CPU = s.duration()
	case "ended":
		to.Ended = s.truth()
	default:
		s.fail("key %.40q is not one of this object", key)
	}
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
		var share energy.Share
		s.object(func(key []byte) { s.share(&share, key) })
		all = append(all, share)
		if s.next() != ',' {
			s.expect(']')
			return all
		}
		s.at++
	}
	return nil
}

// object reads an object whose keys are known and each there once.
func (s *scanner) object(value func(key []byte)) {
	outer := s.seen
	s.seen = 0
	defer func() { s.seen = outer }()
	s.expect('{')
	if s.next() == '}' {
		s.at++
		return
	}
	for s.err == nil {
		key, _ := s.raw()
		s.once(key)
		s.expect(':')
		if s.next() == 'n' {
			s.word("null") // as if the key were not there
		} else {
			value(key)
		}
		if s.next() != ',' {
			s.expect('}')
			return
		}
		s.at++
	}
}

func (s *scanner) once(key []byte) {
	number, known := keys[string(key)]
	bit := uint32(1) << number
	if !known || s.seen&bit != 0 {
		s.fail("key %.40q is not known, or there twice", key)
	}
	s.seen |= bit
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
