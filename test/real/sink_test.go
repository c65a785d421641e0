//go:build linux

package real

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

const token = "of-the-test"

// sink is a minimal controller. It accepts batches and responds with the names of the pods in the API server.
type sink struct {
	client kubernetes.Interface
	url    string

	mu      sync.Mutex
	batches []batch.Batch // ordered by number
	err     error         // first error
}

func newSink(t *testing.T, client kubernetes.Interface) *sink {
	t.Helper()
	s := &sink{client: client}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL + "/v1/batches"
	return s
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ack, err := s.take(r)
	if err != nil {
		s.mu.Lock()
		if s.err == nil {
			s.err = err
		}
		s.mu.Unlock()
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(ack) // the agent resends the batch after a failure
}

func (s *sink) take(r *http.Request) (*batch.Ack, error) {
	if got := r.Header.Get("Authorization"); r.Method != http.MethodPost || got != "Bearer "+token {
		return nil, fmt.Errorf("unexpected request: method %s, authorization %q", r.Method, got)
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = unzipped
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	b, err := batch.Decode(text) // also validates the batch, including energy conservation
	if err != nil {
		return nil, err
	}
	names, err := s.names(r.Context())
	if err != nil {
		return nil, err
	}
	return s.book(*b, names)
}

// book stores a batch unless it has been stored already. It returns an error if the batch does not follow the
// previous one.
func (s *sink) book(b batch.Batch, names map[string]batch.Names) (*batch.Ack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ack := &batch.Ack{Epoch: b.Stream.Epoch, Acked: b.Last, Names: names}
	next, booked := uint64(1), len(s.batches)
	if booked > 0 {
		last := &s.batches[booked-1]
		if b.Stream != last.Stream {
			return nil, fmt.Errorf("unexpected stream %v after %v", b.Stream, last.Stream)
		}
		if b.Last <= last.Last {
			ack.Acked = last.Last
			return ack, nil
		}
		next = last.Last + 1
		if b.StartSinceBoot < last.EndSinceBoot {
			return nil, fmt.Errorf("batch %d starts at %v, before the end of the previous batch at %v",
				b.First, b.StartSinceBoot,
				last.EndSinceBoot)
		}
	}
	if b.First != next {
		return nil, fmt.Errorf("got batch %d to %d, want %d", b.First, b.Last, next)
	}
	s.batches = append(s.batches, b)
	return ack, nil
}

func (s *sink) names(ctx context.Context) (map[string]batch.Names, error) {
	pods, err := s.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	names := map[string]batch.Names{}
	for _, pod := range pods.Items {
		n := batch.Names{Namespace: pod.Namespace, Pod: pod.Name, Containers: map[string]string{}}
		for _, c := range pod.Status.ContainerStatuses {
			if _, id, ok := strings.Cut(c.ContainerID, "://"); ok {
				n.Containers[id] = c.Name
			}
		}
		names[string(pod.UID)] = n
	}
	return names, nil
}

// got returns the stored batches.
func (s *sink) got(t *testing.T) []batch.Batch {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		t.Errorf("sink received an invalid request: %v", s.err)
	}
	return slices.Clone(s.batches)
}
