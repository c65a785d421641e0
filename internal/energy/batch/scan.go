package batch

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
)

type scanner = jsonscan.Scanner

// scan reads a batch.
func scan(data []byte) (*Batch, error) {
	b := new(Batch)
	return b, jsonscan.Decode(data, b, ofBatch)
}

// DecodeStream returns the stream of a batch in JSON, even if the rest of the batch is invalid.
func DecodeStream(data []byte) (*Stream, error) {
	s := new(Stream)
	if err := cmp.Or(jsonscan.Decode(data, s, streamOnly), s.check()); err != nil {
		return nil, fmt.Errorf("decoding stream: %w", err)
	}
	return s, nil
}

var streamOnly = []jsonscan.Field[Stream]{
	{Key: "stream", Read: func(s *scanner, to *Stream) { jsonscan.Object(s, to, ofStream) }},
	{Read: func(s *scanner, _ *Stream) { s.Skip() }},
}

var ofBatch = []jsonscan.Field[Batch]{
	{Key: "version", Read: func(s *scanner, b *Batch) { b.Version = int(s.Integer(math.MaxInt)) }},
	{Key: "stream", Read: func(s *scanner, b *Batch) { jsonscan.Object(s, &b.Stream, ofStream) }},
	{Key: "first", Read: func(s *scanner, b *Batch) { b.First = s.Integer(math.MaxUint64) }},
	{Key: "last", Read: func(s *scanner, b *Batch) { b.Last = s.Integer(math.MaxUint64) }},
	{Key: "parent", Read: func(s *scanner, b *Batch) { b.Parent = jsonscan.Object(s, new(Parent), ofParent) }},
	{Key: "start", Read: func(s *scanner, b *Batch) { b.Start = s.Time() }},
	{Key: "end", Read: func(s *scanner, b *Batch) { b.End = s.Time() }},
	{Key: "startSinceBoot", Read: func(s *scanner, b *Batch) { b.StartSinceBoot = time.Duration(s.Signed()) }},
	{Key: "endSinceBoot", Read: func(s *scanner, b *Batch) { b.EndSinceBoot = time.Duration(s.Signed()) }},
	{Key: "unmeasured", Read: func(s *scanner, b *Batch) { b.Unmeasured = time.Duration(s.Signed()) }},
	{Key: "source", Read: func(s *scanner, b *Batch) { b.Source = s.Text() }},
	{Key: "quality", Read: func(s *scanner, b *Batch) { s.Check(b.Quality.UnmarshalText(s.Bytes())) }},
	{Key: "idlePolicy", Read: func(s *scanner, b *Batch) { b.IdlePolicy = s.Text() }},
	{Key: "measured", Read: func(s *scanner, b *Batch) { b.Measured = microjoules(s) }},
	{Key: "idle", Read: func(s *scanner, b *Batch) { b.Idle = microjoules(s) }},
	{Key: "platform", Read: func(s *scanner, b *Batch) { b.Platform = microjoules(s) }},
	{Key: "unknown", Read: func(s *scanner, b *Batch) { b.Unknown = microjoules(s) }},
	{Key: "gpuIdle", Read: func(s *scanner, b *Batch) { b.GPUIdle = microjoules(s) }},
	{Key: "gpuUnknown", Read: func(s *scanner, b *Batch) { b.GPUUnknown = microjoules(s) }},
	{Key: "shares", Read: func(s *scanner, b *Batch) { b.Shares = jsonscan.List(s, MaxShares, scanShare) }},
}

var ofStream = []jsonscan.Field[Stream]{
	{Key: "node", Read: func(s *scanner, to *Stream) { to.Node = s.Text() }},
	{Key: "boot", Read: func(s *scanner, to *Stream) { to.Boot = s.Text() }},
	{Key: "epoch", Read: func(s *scanner, to *Stream) { to.Epoch = s.Text() }},
}

var ofParent = []jsonscan.Field[Parent]{
	{Key: "host", Read: func(s *scanner, to *Parent) { to.Host = s.Text() }},
	{Key: "vm", Read: func(s *scanner, to *Parent) { to.VM = s.Text() }},
}

var ofShare = []jsonscan.Field[energy.Share]{
	{Key: "id", Read: func(s *scanner, to *energy.Share) { to.ID = s.Text() }},
	{Key: "dynamic", Read: func(s *scanner, to *energy.Share) { to.Dynamic = microjoules(s) }},
	{Key: "idle", Read: func(s *scanner, to *energy.Share) { to.Idle = microjoules(s) }},
	{Key: "gpu", Read: func(s *scanner, to *energy.Share) { to.GPU = microjoules(s) }},
	{Key: "cpu", Read: func(s *scanner, to *energy.Share) { to.CPU = time.Duration(s.Signed()) }},
	{Key: "ended", Read: func(s *scanner, to *energy.Share) { to.Ended = s.Bool() }},
}

func scanShare(s *scanner, to *energy.Share) {
	if jsonscan.Object(s, to, ofShare); to.ID == "" { // thousands of empty elements fit into a few bytes
		s.Check(errNoID)
	}
}

var errNoID = errors.New("share without id")

func microjoules(s *scanner) energy.Microjoules { return energy.Microjoules(s.Signed()) }
