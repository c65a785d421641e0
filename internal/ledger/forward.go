package ledger

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
)

// ForwardVersion is the version of what a cluster forwards to its federation: see docs/reference/protocol.md.
const ForwardVersion = 1

// forwarded is a booking as it travels. Beside the batch it holds what the federation cannot know. Rates are missing:
// the federation has its own.
type forwarded struct {
	Version   int             `json:"version"`
	Agentless bool            `json:"agentless,omitempty"`
	Power     Kind            `json:"power,omitzero"` // of a machine that slept or booted
	Consumers []*Consumer     `json:"consumers"`
	Batch     json.RawMessage `json:"batch"`
}

// Pack returns b as it is forwarded: a line of JSON, as one member of gzip, so that members can be sent one behind the
// other.
func (b *Booking) Pack() ([]byte, error) {
	of, err := batch.Encode(b.Batch)
	if err != nil {
		return nil, err
	}
	f := forwarded{ForwardVersion, b.Agentless, b.Power, b.Consumers, bytes.TrimSpace(of)}
	var out bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is a valid one
	if err := errors.Join(json.NewEncoder(zip).Encode(f), zip.Close()); err != nil {
		return nil, fmt.Errorf("packing a booking: %w", err)
	}
	return out.Bytes(), nil
}

// Unpack reads a line that a cluster has forwarded and puts the cluster's name before the names of its nodes and hosts.
// It trusts the cluster no more than [batch.Decode] trusts an agent, and its memory is bounded by the length of the
// line and [batch.MaxShares]. The stream is returned also if the booking is invalid; it is nil if the line names none.
func Unpack(line []byte, cluster string) (*batch.Stream, *Booking, error) {
	var f forwarded
	var stream *batch.Stream
	err := jsonscan.Decode(line, &f, []field{batchField, ignored}) // the stream is known whatever the rest is
	if err == nil {
		stream, err = batch.DecodeStream(f.Batch)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: it names no stream: %w", ErrInvalid, err)
	}
	var b *Booking
	if err = jsonscan.Decode(line, &f, forwardedFields); err == nil {
		b, err = f.read(cluster)
	}
	if err != nil {
		return stream, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return stream, b, nil
}

type (
	scanner = jsonscan.Scanner
	field   = jsonscan.Field[forwarded]
)

var (
	batchField = field{Key: "batch", Read: func(s *scanner, f *forwarded) { f.Batch = s.Skip() }}
	ignored    = field{Read: func(s *scanner, _ *forwarded) { s.Skip() }} // a member may be newer than its federation
)

var forwardedFields = []field{
	{Key: "version", Read: func(s *scanner, f *forwarded) { f.Version = int(s.Integer(math.MaxInt)) }},
	{Key: "agentless", Read: func(s *scanner, f *forwarded) { f.Agentless = s.Bool() }},
	{Key: "power", Read: func(s *scanner, f *forwarded) { s.Check(f.Power.UnmarshalText(s.Bytes())) }},
	{Key: "consumers", Read: func(s *scanner, f *forwarded) {
		f.Consumers = jsonscan.List(s, batch.MaxShares, func(s *scanner, to **Consumer) {
			*to = new(Consumer)
			s.Check(json.Unmarshal(s.Skip(), *to))
			s.Check((*to).check())
		})
	}},
	batchField,
	ignored,
}

func (f *forwarded) read(cluster string) (*Booking, error) {
	if f.Version != ForwardVersion {
		return nil, fmt.Errorf("version %d of bookings: only %d is understood", f.Version, ForwardVersion)
	}
	bt, err := batch.Decode(f.Batch)
	if err != nil {
		return nil, err
	}
	names := []*string{&bt.Stream.Node}
	if bt.Parent != nil {
		names = append(names, &bt.Parent.Host)
	}
	for _, name := range names {
		if strings.Contains(*name, "/") {
			return nil, fmt.Errorf("node %q: a node's name has no slash", *name)
		}
		*name = cluster + "/" + *name
	}
	b := &Booking{Batch: bt, Agentless: f.Agentless, Power: f.Power, Consumers: f.Consumers}
	return b, b.Validate()
}

// check refuses a consumer that no intake would book.
func (c *Consumer) check() error {
	a := &c.Account
	if !slices.Contains([]Kind{Workload, System, VM, Cgroup, Foreign, Late}, a.Kind) {
		return fmt.Errorf("no consumer is of kind %s", a.Kind)
	}
	for _, text := range []string{c.Pod, a.Namespace, a.OwnerKind, a.Owner, a.Parent, a.Team, a.Strategy} {
		if err := batch.CheckText("a name", text, batch.MaxID); text != "" && err != nil {
			return fmt.Errorf("consumer %.80q: %w", c.Key, err)
		}
	}
	return batch.CheckConsumer(c.Key)
}

// An Outbox keeps what a cluster has booked until its federation has it. A booking that is to be forwarded is put there
// in the transaction that books it.
type Outbox interface {
	// Outgoing returns some of what is kept, the oldest after a number first; of streams that rest, without Packed.
	Outgoing(ctx context.Context, after int64, most int, rest map[string]bool) ([]Outgoing, error)
	// Sent drops what the federation has.
	Sent(ctx context.Context, numbers []int64) error
	// Backlog tells what is kept. It drops what is more than so many numbers before the youngest.
	Backlog(ctx context.Context, most int64) (Backlog, error)
}

// Outgoing is a booking in an [Outbox].
type Outgoing struct {
	Number int64
	Stream string // bookings of one stream are sent in their order
	Packed []byte // by [Booking.Pack]; nil: it is damaged
}

// Backlog is what an [Outbox] keeps.
type Backlog struct {
	Kept    int64 // at most
	Oldest  int64 // when it was booked, in Unix seconds; 0: nothing is kept
	Dropped int64 // now
}
