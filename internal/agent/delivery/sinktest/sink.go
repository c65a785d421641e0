// Package sinktest provides a reference implementation of a receiver of batches. It keeps all data in memory and is
// for testing only: it can inject failures at any point, and it verifies that the protocol is followed.
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

// Fault describes an injected failure of a request. The zero value is no failure.
type Fault struct {
	Delay      time.Duration // before the request is handled
	Booked     bool          // record the batch before failing
	Status     int           // status code to respond with; 0 to send an acknowledgement
	RetryAfter int           // Retry-After header sent with the status, in seconds
	Cut        bool          // close the connection without a response
	Body       string        // response body instead of an acknowledgement
	Epoch      string        // epoch to acknowledge instead of the batch's
	Ahead      uint64        // number added to the acknowledged batch number
}

// Sink records batches. It records each number of a stream and each interval of a node only once.
type Sink struct {
	Token string // bearer token that requests must contain; if empty, none is required
	// Fault, if set, is called for each request with the number of previous requests.
	Fault func(n int) Fault
	// Names are the pod names returned in acknowledgements, by pod UID.
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
	booked map[uint64]*batch.Batch // by first batch number
}

type machine struct{ node, boot string }

type interval struct{ start, end time.Duration }

// Totals are the sums over all recorded batches.
type Totals struct {
	Batches    int
	Duplicates int // batches that were already recorded
	Gaps       int // batches with a number that is not consecutive
	Measured   energy.Microjoules
	Idle       energy.Microjoules
	Platform   energy.Microjoules
	Unknown    energy.Microjoules
	Unmeasured time.Duration
	Consumers  map[string]energy.Microjoules // dynamic and idle energy
	CPU        map[string]time.Duration
}

var (
	errOverlap = errors.New("energy of that interval is already recorded")
	errPartly  = errors.New("some batch numbers are already recorded, others are not")
)

// Book records a batch unless it is already recorded, and returns the acknowledgement. A controller must perform
// the same steps in one transaction.
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
		s.totals.Gaps++ // the missing batches are lost, because batches are sent oldest first
	}
	if err := s.occupy(b); err != nil {
		return nil, err
	}
	s.streams[b.Stream] = st
	st.acked, st.booked[b.First] = b.Last, b
	s.count(b)
	return s.ack(b, st), nil
}

// compare records a breach if a batch was sent again with different contents. A part of a folded batch may be sent
// again, because removed files can reappear after a power failure.
func (s *Sink) compare(before, now *batch.Batch) {
	if before == nil || before.Last != now.Last {
		return
	}
	if before.Measured == now.Measured && before.EndSinceBoot == now.EndSinceBoot &&
		slices.Equal(before.Shares, now.Shares) {
		return
	}
	s.breaches = append(s.breaches, fmt.Sprintf("batch %d to %d of %s was recorded with different contents", now.First,
		now.Last, now.Stream.Epoch))
}

// occupy reserves the interval of the batch. Intervals of different streams of a boot must not overlap.
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
		s.breaches = append(s.breaches, fmt.Sprintf("batch %d to %d of %s overlaps a recorded batch", b.First, b.Last,
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

// Totals returns a copy of the current totals.
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

// Batches returns all recorded batches in unspecified order.
func (s *Sink) Batches() (all []*batch.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		all = slices.AppendSeq(all, maps.Values(st.booked))
	}
	return all
}

// Breaches returns descriptions of all protocol violations.
func (s *Sink) Breaches() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.breaches)
}

// Requests returns the number of requests.
func (s *Sink) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

// ServeHTTP receives a batch as described in docs/reference/protocol.md.
func (s *Sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	var fault Fault
	if s.Fault != nil {
		fault = s.Fault(s.requests)
	}
	s.requests++
	s.mu.Unlock()
	if s.Token != "" && r.Header.Get("Authorization") != "Bearer "+s.Token {
		http.Error(w, "invalid token", http.StatusUnauthorized)
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

// Read returns the batch in a request, or an error and the status code to respond with.
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

// EncodeAck returns the JSON encoding of an acknowledgement.
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
	_, _ = w.Write(data) // a disconnected client retries
}

func fail(w http.ResponseWriter, fault Fault, ack *batch.Ack) {
	switch {
	case fault.Cut:
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		if fault.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(fault.RetryAfter))
		}
		http.Error(w, "injected failure", fault.Status)
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
