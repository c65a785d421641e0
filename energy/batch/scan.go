package batch

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// scan reads a batch in the form in which all agents send it: with no escapes in texts, no null, nothing that is not
// ASCII. It is an order of magnitude faster than encoding/json, which a central unit of thousands of nodes needs.
// Whatever it does not know at once, wrong or merely unusual, it leaves to the decoder that is slow and complete: ok
// is false, without an error.
func scan(data []byte) (b *Batch, ok bool) {
	s := scanner{data: data}
	b = new(Batch)
	s.object(func(key []byte) { s.batch(b, key) })
	s.space()
	return b, !s.failed && s.at == len(data)
}

// scanner goes through JSON. Once it has failed, what it returns means nothing.
type scanner struct {
	data   []byte
	at     int
	failed bool
	seen   uint32 // keys of the object that it is in
}

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
		s.failed = s.failed || b.Quality.UnmarshalText(s.bytes()) != nil
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
		s.failed = true
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
		s.failed = true
	}
}

func (s *scanner) parent(to *Parent, key []byte) {
	switch string(key) {
	case "host":
		to.Host = s.text()
	case "vm":
		to.VM = s.text()
	default:
		s.failed = true
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
		s.failed = true
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
	for !s.failed {
		if len(all) == MaxShares {
			s.failed = true
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
	for !s.failed {
		key := s.bytes()
		s.once(key)
		s.expect(':')
		value(key)
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
	s.failed = s.failed || !known || s.seen&bit != 0
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
	s.failed = true
	return 0
}

func (s *scanner) expect(c byte) {
	if s.next() != c {
		s.failed = true
		return
	}
	s.at++
}

// bytes returns a text as it stands there.
func (s *scanner) bytes() []byte {
	s.expect('"')
	for i := s.at; i < len(s.data) && !s.failed; i++ {
		switch c := s.data[i]; {
		case c == '"':
			text := s.data[s.at:i]
			s.at = i + 1
			return text
		case c < ' ' || c >= 0x7f || c == '\\':
			s.failed = true
		}
	}
	s.failed = true
	return nil
}

// text copies: what is kept of a batch must not keep all of its bytes.
func (s *scanner) text() string { return string(s.bytes()) }

func (s *scanner) time() (t time.Time) {
	s.failed = t.UnmarshalText(s.bytes()) != nil || s.failed
	return t
}

func (s *scanner) energy() energy.Microjoules { return energy.Microjoules(s.integer(math.MaxInt64)) }

func (s *scanner) duration() time.Duration { return time.Duration(s.integer(math.MaxInt64)) }

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
		if v > (most-d)/base {
			s.failed = true
			return 0
		}
		v = v*base + d
	}
	digits := s.at - first
	if digits == 0 || digits > 1 && s.data[first] == '0' {
		s.failed = true
	}
	return v // a fraction or an exponent is not what may follow
}

func (s *scanner) truth() bool {
	s.space()
	for _, v := range [...]bool{true, false} {
		word := "false"
		if v {
			word = "true"
		}
		if len(s.data)-s.at >= len(word) && string(s.data[s.at:s.at+len(word)]) == word {
			s.at += len(word)
			return v
		}
	}
	s.failed = true
	return false
}
