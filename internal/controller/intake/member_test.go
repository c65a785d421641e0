package intake_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// forward sends a request of a member.
func (w *world) forward(cluster string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/api/v1/clusters/"+cluster+"/bookings", body)
	r.SetPathValue("cluster", cluster)
	answer := httptest.NewRecorder()
	w.handler.ServeMember(answer, r)
	return answer
}

func newMembers(bookings int) access.Members {
	members := access.Members{}
	for _, name := range []string{"alpha", "beta", "gamma"} {
		members[name] = access.Member{Name: name, Nodes: 3, MaxPower: 2000, Bookings: bookings}
	}
	return members
}

func newFederation(t testing.TB, bookings int) *world {
	return newWorld(t, func(c *intake.Config) { c.Members = newMembers(bookings) })
}

func packed(t testing.TB, b *ledger.Booking) *bytes.Reader {
	data, err := b.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(data)
}

func (w *world) packed(node string) *bytes.Reader {
	return packed(w.t, &ledger.Booking{Batch: of(node, 1)})
}

// Two members that send large bodies and stop before the end do not delay agents or other members. Members have a
// separate memory limit, and a body that would exceed it is rejected.
//
//test:norace
func TestMembersLeaveRoom(t *testing.T) {
	w := newFederation(t, 1000)
	const almost = 32 << 20
	statuses := make(chan int, 2)
	var ends []*io.PipeWriter
	for _, name := range []string{"alpha", "beta"} {
		body, to := io.Pipe()
		ends = append(ends, to)
		go func() {
			status := w.forward(name, body).Code
			_ = body.Close()
			statuses <- status
		}()
		z := gzip.NewWriter(to)
		_, err := io.CopyN(z, &zeros{almost}, almost)
		if err == nil {
			err = z.Flush() // returns when the body was read or the request was rejected
		}
		if refused := err != nil; refused != (name == "beta") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if answer := w.forward("gamma", w.packed("a")); answer.Code != http.StatusOK {
		t.Errorf("another member: unexpected response %d %s", answer.Code, answer.Body)
	}
	w.booked("token-a", of("a", 1))
	for _, to := range ends {
		_ = to.Close()
	}
	if first, second := <-statuses, <-statuses; first != http.StatusServiceUnavailable ||
		second != http.StatusBadRequest {
		t.Errorf("status = %d and %d, want 503 and 400", first, second)
	}
	if answer := w.forward("beta", w.packed("b")); answer.Code != http.StatusOK {
		t.Errorf("afterwards: unexpected response %d %s", answer.Code, answer.Body)
	}
}

// FuzzMember sends arbitrary bodies, compressed or not, as an authenticated member.
func FuzzMember(f *testing.F) {
	frozen, err := os.ReadFile(filepath.Join("..", "forward", "testdata", "bookings-v1.ndjson"))
	if err != nil {
		f.Fatal(err)
	}
	const unlimited = 1e9
	w := newFederation(f, unlimited)
	w.logged = &lockedBuffer{}
	f.Add(frozen, false)
	f.Add(zip(frozen), true)
	f.Add(bytes.Repeat(append(zip(nil), zip(frozen)...), 3), true)
	f.Add([]byte(`{"consumers":[{},{}],"batch":{"shares":[{},{}],"stream":{"node":"n","boot":"b","epoch":"e"}}}`), false)
	f.Add(bytes.Repeat([]byte("\n"), 1000), false)
	f.Fuzz(func(t *testing.T, body []byte, zipped bool) {
		unpacked := len(body)
		if zipped {
			z, err := gzip.NewReader(bytes.NewReader(body))
			if err == nil {
				n, _ := io.Copy(io.Discard, z)
				unpacked = int(min(n, 32<<20))
			}
		} else {
			body = zip(body)
		}
		w.t = t
		done := memtest.Limit(t, 50*unpacked)
		answer := w.forward("alpha", bytes.NewReader(body))
		done()
		if answer.Code >= http.StatusInternalServerError {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		for _, b := range w.store.Booked() {
			if ledger.ClusterOf(b.Batch.Stream.Node) != "alpha" {
				t.Errorf("unexpected booking: %+v", b.Batch)
			}
		}
		if len(w.store.Booked()) > 100 {
			w.store = &ledgertest.Store{}
		}
	})
}
