// Package sinktest holds a reference for what receives an agent's batches. It keeps everything in memory and is made
// for tests: it can be told to fail at any point, and it watches that the protocol is obeyed.
package sinktest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A Fault is what goes wrong with a request. The zero value is none.
type Fault struct {
	Delay      time.Duration // before anything is done
	Booked     bool          // the batch is booked before things go wrong
	Status     int           // answer this; 0 stands for an acknowledgement
	RetryAfter int           // seconds, beside the status
	Cut        bool          // close the connection without an answer
	Body       string        // answer this instead of an acknowledgement
	Epoch      string        // acknowledge another epoch
	Ahead      uint64        // acknowledge more than was sent, by so much
}

// A Sink books batches: each number of a stream once, no time of a node twice.
type Sink struct {
	Token string // that requests must bear; "" asks for none
	// Fault, if set, is asked at each request, with the number of requests before.
	Fault func(n int) Fault
	// Names are what acknowledgements say of a batch's pods, by pod UID.
	Names map[string]batch.Names

	mu       sync.Mutex
	requests int
	streams  map[batch.Stream]*stream
	times    map[machine][]interval
	totals   Totals
	breaches []string
}

type stream struct {
	acked  uint64
	booked map[uint64]*batch.Batch // by first number
}

type machine struct{ node, boot string }

type interval struct{ start, end time.Duration }

// Totals are what was booked.
type Totals struct {
	Batches    int
	Duplicates int // batches that had been booked before
	Gaps       int // batches whose numbers do not follow those before
	Measured   energy.Microjoules
	Idle       energy.Microjoules
	Platform   energy.Microjoules
	Unknown    energy.Microjoules
	Unmeasured time.Duration
	Consumers  map[string]energy.Microjoules // dynamic and idle
	CPU        map[string]time.Duration
}

var (
	errOverlap = errors.New("energy of that time is booked")
	errPartly  = errors.New("some of its numbers are booked, others are not")
)

// Book books a batch, unless it has been, and returns what to answer. It is what a controller has to do in one
// transaction.
func (s *Sink) Book(b *batch.Batch) (*batch.Ack, error) {
	if err := b.Validate(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams, s.times = map[batch.Stream]*stream{}, map[machine][]interval{}
		s.totals.Consumers, s.totals.CPU = map[string]energy.Microjoules{}, map[string]time.Duration{}
	}
	st := s.streams[b.Stream]
	switch {
	case st == nil:
		st = &stream{acked: b.First - 1, booked: map[uint64]*batch.Batch{}}
		if b.First != 1 {
			s.totals.Gaps++
		}
	case b.Last <= st.acked:
		s.totals.Duplicates++
		s.compare(st.booked[b.First], b)
		return s.ack(b, st), nil
	case b.First <= st.acked:
		s.breaches = append(s.breaches, fmt.Sprintf("batch %d to %d of %s after %d", b.First, b.Last, b.Stream.Epoch,
			st.acked))
		return nil, errPartly
	case b.First != st.acked+1:
		s.totals.Gaps++ // what is missing was lost; it will not come any more, as only the oldest is sent
	}
	if err := s.occupy(b); err != nil {
		return nil, err
	}
	s.streams[b.Stream] = st
	st.acked, st.booked[b.First] = b.Last, b
	s.count(b)
	return s.ack(b, st), nil
}

// compare notes a batch that was sent again, but not as before. A part of a folded batch may come again after a power
// failure, which can bring back files that were removed.
func (s *Sink) compare(before, now *batch.Batch) {
	if before == nil || before.Last != now.Last {
		return
	}
	if before.Measured == now.Measured && before.EndSinceBoot == now.EndSinceBoot &&
		slices.Equal(before.Shares, now.Shares) {
		return
	}
	s.breaches = append(s.breaches, fmt.Sprintf("batch %d to %d of %s was booked with other contents", now.First,
		now.Last, now.Stream.Epoch))
}

// occupy takes the batch's time of its node; two streams of one boot may follow each other but not overlap.
func (s *Sink) occupy(b *batch.Batch) error {
	if b.StartSinceBoot == b.EndSinceBoot {
		return nil // without energy
	}
	m := machine{b.Stream.Node, b.Stream.Boot}
	times := s.times[m]
	i, _ := slices.BinarySearchFunc(times, b.EndSinceBoot, func(t interval, end time.Duration) int {
		if t.start < end {
			return -1
		}
		return 1
	})
	if i > 0 && times[i-1].end > b.StartSinceBoot {
		s.breaches = append(s.breaches, fmt.Sprintf("batch %d to %d of %s overlaps what is booked", b.First, b.Last,
			b.Stream.Epoch))
		return errOverlap
	}
	s.times[m] = slices.Insert(times, i, interval{b.StartSinceBoot, b.EndSinceBoot})
	return nil
}

func (s *Sink) count(b *batch.Batch) {
	t := &s.totals
	t.Batches++
	t.Measured += b.Measured
	t.Idle += b.Idle
	t.Platform += b.Platform
	t.Unknown += b.Unknown
	t.Unmeasured += b.Unmeasured
	for i := range b.Shares {
		t.Consumers[b.Shares[i].ID] += b.Shares[i].Dynamic + b.Shares[i].Idle
		t.CPU[b.Shares[i].ID] += b.Shares[i].CPU
	}
}

func (s *Sink) ack(b *batch.Batch, st *stream) *batch.Ack {
	a := &batch.Ack{Epoch: b.Stream.Epoch, Acked: st.acked}
	for i := range b.Shares {
		pod, _, ok := energy.PodOf(b.Shares[i].ID)
		if names, known := s.Names[pod]; ok && known {
			if a.Names == nil {
				a.Names = map[string]batch.Names{}
			}
			a.Names[pod] = names
		}
	}
	return a
}

// Totals returns what was booked so far.
func (s *Sink) Totals() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.totals
	t.Consumers = map[string]energy.Microjoules{}
	t.CPU = map[string]time.Duration{}
	for id, v := range s.totals.Consumers {
		t.Consumers[id], t.CPU[id] = v, s.totals.CPU[id]
	}
	return t
}

// Batches returns what was booked, in no order.
func (s *Sink) Batches() (all []*batch.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		all = slices.AppendSeq(all, maps.Values(st.booked))
	}
	return all
}

// Breaches returns what an agent should never have done.
func (s *Sink) Breaches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.breaches)
}

// Requests returns how many there were.
func (s *Sink) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// ServeHTTP takes a batch as docs/reference/protocol.md says.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var fault Fault
	if s.Fault != nil {
		fault = s.Fault(s.requests)
	}
	s.requests++
	s.mu.Unlock()
	if s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	time.Sleep(fault.Delay)
	if fault != (Fault{Delay: fault.Delay}) && !fault.Booked {
		fail(w, fault, nil)
		return
	}
	b, status, err := Read(r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	ack, err := s.Book(b)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	if fault.Booked {
		fail(w, fault, ack)
		return
	}
	answer(w, ack)
}

// Read returns the batch that a request holds, or the status to refuse it with.
func Read(r *http.Request) (*batch.Batch, int, error) {
	if r.Method != http.MethodPost {
		return nil, http.StatusMethodNotAllowed, errors.New("POST only")
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, http.StatusBadRequest, err
		}
		body = unzipped
	}
	data, err := io.ReadAll(io.LimitReader(body, batch.MaxBytes+1))
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	if len(data) > batch.MaxBytes {
		return nil, http.StatusRequestEntityTooLarge, errors.New("too large")
	}
	b, err := batch.Decode(data)
	return b, http.StatusUnprocessableEntity, err
}

// EncodeAck returns an acknowledgement as it travels.
func EncodeAck(a *batch.Ack) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(a)
	return buf.Bytes(), err
}

func answer(w http.ResponseWriter, ack *batch.Ack) {
	data, err := EncodeAck(ack)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that is gone asks again
}

func fail(w http.ResponseWriter, fault Fault, ack *batch.Ack) {
	switch {
	case fault.Cut:
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		http.Error(w, "told to fail", fault.Status)
	case fault.Body != "":
		_, _ = io.WriteString(w, fault.Body)
	default:
		wrong := batch.Ack{Epoch: fault.Epoch, Acked: fault.Ahead}
		if ack != nil {
			wrong.Acked = ack.Acked + fault.Ahead
			if wrong.Epoch == "" {
				wrong.Epoch = ack.Epoch
			}
		}
		answer(w, &wrong)
	}
}
