package surface

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

// This is the only file of the package that imports packages of KubEnergy, so only this file has to be changed if
// packages are moved.

// openLedger returns the API handler for a ledger file.
func openLedger(t *testing.T, path string) http.Handler {
	t.Helper()
	store, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return server.New(server.Config{
		Ledger: store, Live: struct{ server.Live }{}, Gate: anybody{}, Now: time.Now,
	})
}

// anybody grants all permissions to every client.
type anybody struct{}

func (anybody) Require(next http.Handler, _ func(*http.Request) []access.Attributes) http.Handler {
	return next
}

func (anybody) Allowed(context.Context, *access.User, access.Attributes) (bool, error) {
	return true, nil
}

// formats contains functions that decode and encode the files in testdata.
var formats = map[string]func(data []byte) ([]byte, error){
	"batch.json": again(batch.Decode, batch.Encode),
	"ack.json":   again(batch.DecodeAck, encodeAck),
}

// encodeAck encodes an acknowledgement like the controller, on a single line.
func encodeAck(a *batch.Ack) ([]byte, error) {
	data, err := json.Marshal(a)
	return append(data, '\n'), err
}

func again[T any](decode func([]byte) (T, error), encode func(T) ([]byte, error)) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		v, err := decode(data)
		if err != nil {
			return nil, err
		}
		return encode(v)
	}
}

// ask returns the JSON response of a handler.
func ask(t *testing.T, h http.Handler, target string) (answer any) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d, %s", target, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	return answer
}
