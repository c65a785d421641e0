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

// ForwardVersion is the version of the format in which clusters forward bookings to their federation. See
// docs/reference/protocol.md.
const ForwardVersion = 1

// forwarded is the wire format of a booking. It contains the batch and metadata that is unavailable to the
// federation. Rates are omitted, because the federation uses its own.
type forwarded struct {
	Version   int             `json:"version"`
	Agentless bool            `json:"agentless,omitempty"`
	Power     Kind            `json:"power,omitzero"` // Asleep or Booting if the machine was not awake
	Consumers []*Consumer     `json:"consumers"`
	Batch     json.RawMessage `json:"batch"`
}

// Pack returns the wire format of b, which is a line of JSON compressed as one gzip member. Members can be
// concatenated.
func (b *Booking) Pack() ([]byte, error) {
	of, err := batch.Encode(b.Batch)
	if err != nil {
		return nil, err
	}
	f := forwarded{ForwardVersion, b.Agentless, b.Power, b.Consumers, bytes.TrimSpace(of)}
	var out bytes.Buffer
	zip, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is a valid one
	if err := errors.Join(json.NewEncoder(zip).Encode(f), zip.Close()); err != nil {
		return nil, fmt.Errorf("encoding a booking: %w", err)
	}
	return out.Bytes(), nil
}

// Unpack decodes a line forwarded by a cluster and prefixes the names of its nodes and hosts with the name of the
// cluster. The line is validated like a batch of an agent in [batch.Decode], and memory usage is bounded by the
// length of the line and by [batch.MaxShares]. The stream is also returned if the booking is invalid, and nil if
// the line does not contain a stream.
func Unpack(line []byte, cluster string) (*batch.Stream, *Booking, error) {
	var f forwarded
	var stream *batch.Stream
	err := jsonscan.Decode(line, &f, []field{batchField, ignored}) // the stream is required even if the rest is invalid
	if err == nil {
		stream, err = batch.DecodeStream(f.Batch)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: missing or invalid stream: %w", ErrInvalid, err)
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
	ignored    = field{Read: func(s *scanner, _ *forwarded) { s.Skip() }} // the cluster may run a newer version
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
		return nil, fmt.Errorf("unsupported booking version %d: want %d", f.Version, ForwardVersion)
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
			return nil, fmt.Errorf("node %q: the name of a node must not contain a slash", *name)
		}
		*name = cluster + "/" + *name
	}
	b := &Booking{Batch: bt, Agentless: f.Agentless, Power: f.Power, Consumers: f.Consumers}
	return b, b.Validate()
}

// check returns an error for a consumer that ingestion would never produce.
func (c *Consumer) check() error {
	a := &c.Account
	if !slices.Contains([]Kind{Workload, System, VM, Cgroup, Foreign, Late}, a.Kind) {
		return fmt.Errorf("invalid consumer kind %s", a.Kind)
	}
	for _, text := range []string{c.Pod, a.Namespace, a.OwnerKind, a.Owner, a.Parent, a.Team, a.Strategy} {
		if err := batch.CheckText("a name", text, batch.MaxID); text != "" && err != nil {
			return fmt.Errorf("consumer %.80q: %w", c.Key, err)
		}
	}
	return batch.CheckConsumer(c.Key)
}

// An Outbox stores bookings until they have been forwarded to the federation. A booking is added in the transaction
// that records it.
type Outbox interface {
	// Outgoing returns at most the given number of entries with numbers greater than after, oldest first. Entries
	// of the streams in rest are returned without Packed.
	Outgoing(ctx context.Context, after int64, most int, rest map[string]bool) ([]Outgoing, error)
	// Sent removes entries that the federation has received.
	Sent(ctx context.Context, numbers []int64) error
	// Backlog returns statistics of the outbox. It drops entries that are more than the given number behind the
	// newest one.
	Backlog(ctx context.Context, most int64) (Backlog, error)
}

// Outgoing is a booking in an [Outbox].
type Outgoing struct {
	Number int64
	Stream string // bookings of a stream are sent in order
	Packed []byte // encoded by [Booking.Pack]; nil if it is damaged
}

// Backlog contains statistics of an [Outbox].
type Backlog struct {
	Kept    int64 // upper bound of the number of entries
	Oldest  int64 // time of the oldest entry, in Unix seconds; 0 if the outbox is empty
	Dropped int64 // entries dropped by this call
}
