package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A wire is a proxy between agents and controllers. It observes requests and responses and can kill a process while
// a batch is in transit.
type wire struct {
	url    string
	caFile string
	client *http.Client
	server *httptest.Server

	mu       sync.Mutex
	ends     []*controllerProcess
	twice    bool             // some batches are sent to two controllers at the same time
	traps    map[string]*trap // by node, or "" for any node
	acked    map[batch.Stream]uint64
	untold   map[batch.Stream]uint64 // numbers with an acknowledgement that the agent did not receive
	took     time.Duration           // duration of the last request
	requests int
	again    int            // requests with a batch that had been acknowledged but not received
	failures int            // requests without a response
	statuses map[int]int    // responses other than acknowledgements
	breaches map[string]int // number of violated invariants
}

// point is a stage in the delivery of a batch.
type point string

const (
	anywhere     point = "at a random time"
	beforeWrite  point = "before the write" // the controller has received half of the request
	whileWriting point = "between request and response"
	beforeAck    point = "after the write and before the acknowledgement"
	halfAck      point = "during the acknowledgement"
)

// A trap kills a process when the next batch reaches the given point.
type trap struct {
	at     point
	kill   func()
	sprung chan struct{} // closed after the process has been killed
	stream batch.Stream  // stream of the batch
	last   uint64
}

func newWire(t *testing.T, ends ...*controllerProcess) *wire {
	t.Helper()
	w := &wire{
		ends: ends, traps: map[string]*trap{}, acked: map[batch.Stream]uint64{}, untold: map[batch.Stream]uint64{},
		statuses: map[int]int{},
		breaches: map[string]int{},
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
			MaxIdleConnsPerHost: 16,
			// The certificate of a replaced controller may differ.
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		}},
	}
	w.server = httptest.NewUnstartedServer(w)
	w.server.Config.ErrorLog = log.New(io.Discard, "", 0) // killed agents do not close connections cleanly
	w.server.StartTLS()
	t.Cleanup(func() {
		w.server.CloseClientConnections()
		w.server.Close()
		w.client.CloseIdleConnections()
	})
	w.url, w.caFile = w.server.URL+"/api/v1/batches", filepath.Join(t.TempDir(), "wire.crt")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	if err := os.WriteFile(w.caFile, block, 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// set installs a trap for the next batch of a node, or of any node if node is "".
func (w *wire) set(node string, at point, kill func()) *trap {
	tr := &trap{at: at, kill: kill, sprung: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps[node] = tr
	return tr
}

// wait reports whether the trap was triggered before the timeout. Otherwise the trap is removed.
func (w *wire) wait(node string, tr *trap, timeout time.Duration) bool {
	select {
	case <-tr.sprung:
		return true
	case <-time.After(timeout):
	}
	w.mu.Lock()
	taken := w.traps[node] == tr
	if taken {
		delete(w.traps, node)
	}
	w.mu.Unlock()
	if !taken { // the trap is being triggered
		<-tr.sprung
	}
	return !taken
}

// begin counts a request and returns its trap, the controller to use and the number of copies to send.
func (w *wire) begin(b *batch.Batch) (tr *trap, end *controllerProcess, copies int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests++
	if b.Last <= w.untold[b.Stream] {
		w.again++
	}
	for _, node := range []string{b.Stream.Node, ""} {
		if tr = w.traps[node]; tr != nil {
			delete(w.traps, node)
			tr.stream, tr.last = b.Stream, b.Last
			break
		}
	}
	copies = 1
	if w.twice && rand.IntN(4) == 0 {
		copies = len(w.ends)
	}
	return tr, w.ends[rand.IntN(len(w.ends))], copies
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// ServeHTTP forwards a request and its response.
func (w *wire) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	b, err := unpack(body)
	if err != nil {
		w.breach(err.Error())
		return
	}
	tr, end, copies := w.begin(b)
	if tr != nil && tr.at == beforeWrite {
		w.half(end, r, body)
		tr.kill()
		close(tr.sprung)
		panic(http.ErrAbortHandler)
	}
	if tr != nil && tr.at == whileWriting {
		w.mu.Lock()
		took := w.took
		w.mu.Unlock()
		go func() {
			time.Sleep(time.Duration(rand.Float64() * 1.2 * float64(took)))
			tr.kill()
			close(tr.sprung)
		}()
	}
	began := time.Now()
	a, err := w.ask(r, body, end, copies)
	if err != nil {
		w.mu.Lock()
		w.failures++
		w.mu.Unlock()
		if tr != nil && tr.at != whileWriting { // no response to wait for
			tr.kill()
			close(tr.sprung)
		}
		panic(http.ErrAbortHandler)
	}
	w.note(b, a, time.Since(began))
	cut := tr != nil && (tr.at == beforeAck || tr.at == halfAck)
	if cut {
		w.leaveUntold(b, a)
	}
	maps.Copy(out.Header(), a.header)
	if cut {
		if tr.at == halfAck {
			out.WriteHeader(a.status)
			_, _ = out.Write(a.body[:len(a.body)/2])
			_ = http.NewResponseController(out).Flush()
		}
		tr.kill()
		close(tr.sprung)
		panic(http.ErrAbortHandler)
	}
	out.WriteHeader(a.status)
	_, _ = out.Write(a.body)
}

// ask sends a request to one controller, or to all of them at the same time, and returns one response.
func (w *wire) ask(r *http.Request, body []byte, end *controllerProcess, copies int) (*answer, error) {
	if copies == 1 {
		return w.send(r, body, end)
	}
	answers, errs := make([]*answer, copies), make([]error, copies)
	var all sync.WaitGroup
	for i := range copies {
		all.Go(func() { answers[i], errs[i] = w.send(r, body, w.ends[i]) })
	}
	all.Wait()
	best := -1
	for i := range answers {
		if errs[i] == nil && (best < 0 || answers[i].status == http.StatusOK) {
			best = i
		}
	}
	if best < 0 {
		return nil, errors.Join(errs...)
	}
	return answers[best], nil
}

func (w *wire) request(r *http.Request, body []byte, end *controllerProcess) (*http.Request, error) {
	// The request must not be canceled if the agent is killed.
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, end.url+r.URL.Path,
		bytes.NewReader(body))
	if err == nil {
		out.Header = r.Header.Clone()
	}
	return out, err
}

func (w *wire) send(r *http.Request, body []byte, end *controllerProcess) (*answer, error) {
	out, err := w.request(r, body, end)
	if err != nil {
		return nil, err
	}
	got, err := w.client.Do(out)
	if err != nil {
		return nil, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	return &answer{got.StatusCode, got.Header, text}, err
}

// half sends the header and half of the body of a request on a separate connection.
func (w *wire) half(end *controllerProcess, r *http.Request, body []byte) {
	out, err := w.request(r, body, end)
	if err != nil {
		return
	}
	var all bytes.Buffer
	if err := out.Write(&all); err != nil {
		return
	}
	config := w.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	conn, err := tls.Dial("tcp", out.URL.Host, config)
	if err != nil {
		return // the controller has already been killed
	}
	defer conn.Close()
	_, _ = conn.Write(all.Bytes()[:all.Len()-len(body)/2])
	time.Sleep(rand.N(5 * time.Millisecond))
}

// note records a response and checks the invariants of acknowledgements.
func (w *wire) note(b *batch.Batch, a *answer, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.status != http.StatusOK {
		w.statuses[a.status]++
		return
	}
	w.took = took
	ack, err := batch.DecodeAck(a.body)
	switch {
	case err != nil:
		w.breaches[err.Error()]++
	case ack.Epoch != b.Stream.Epoch || ack.Acked < b.Last:
		w.breaches["acknowledgement of another batch"]++
	case !w.twice && ack.Acked < w.acked[b.Stream]:
		w.breaches["acknowledged batch is no longer acknowledged"]++
	default:
		w.acked[b.Stream] = max(w.acked[b.Stream], ack.Acked)
	}
}

func (w *wire) leaveUntold(b *batch.Batch, a *answer) {
	if a.status != http.StatusOK {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.untold[b.Stream] = max(w.untold[b.Stream], b.Last)
}

func (w *wire) breach(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaches[text]++
}

// heard reports whether a batch of a node has been acknowledged.
func (w *wire) heard(node string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.acked {
		if s.Node == node {
			return true
		}
	}
	return false
}

// count returns the number of responses with the given status code.
func (w *wire) count(status int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.statuses[status]
}

// progress returns a sum that changes with every acknowledgement.
func (w *wire) progress() (sum uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.acked {
		sum += n
	}
	return sum
}

func (w *wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return fmt.Sprintf("%d requests, %d without a response, %d repeated after a lost acknowledgement, "+
		"other statuses: %v",
		w.requests, w.failures, w.again, w.statuses)
}

// check fails the test if an invariant was violated or an unexpected status code was returned.
func (w *wire) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, n := range w.breaches {
		t.Errorf("invariant violated %d times: %s", n, what)
	}
	for _, status := range []int{
		http.StatusConflict, http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusInternalServerError,
	} {
		if n := w.statuses[status]; n > 0 {
			t.Errorf("%d batches got the unexpected status %d", n, status)
		}
	}
}

func unpack(body []byte) (*batch.Batch, error) {
	zip, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(zip)
	if err != nil {
		return nil, err
	}
	return batch.Decode(data)
}
