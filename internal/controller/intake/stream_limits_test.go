package intake_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Each boot, epoch or gap that a node invents adds a row to the ledger. Their number per day is limited, and
// existing streams continue.
func TestANodeBeginsFewStreams(t *testing.T) {
	const most = 50
	for name, change := range map[string]func(n int) func(*batch.Batch){
		"boots":  func(n int) func(*batch.Batch) { return func(b *batch.Batch) { b.Stream.Boot = strconv.Itoa(n) } },
		"epochs": func(n int) func(*batch.Batch) { return func(b *batch.Batch) { b.Stream.Epoch = strconv.Itoa(n) } },
		"gaps":   func(int) func(*batch.Batch) { return func(*batch.Batch) {} },
	} {
		w := newWorld(t)
		booked := 0
		number := func(n int) uint64 { return uint64(2*n + 1) } // every second batch is missing
		for n := range 3 * most {
			answer := w.send("token-a", of("a", number(n), joules(1), change(n)))
			switch answer.Code {
			case http.StatusOK:
				booked++
			case http.StatusTooManyRequests:
				after, err := strconv.Atoi(answer.Header().Get("Retry-After"))
				if err != nil || after < 1 || after > 900 {
					t.Errorf("%s: unexpected Retry-After %s", name, answer.Header().Get("Retry-After"))
				}
			default:
				t.Fatalf("%s: %d %s", name, answer.Code, answer.Body)
			}
		}
		if booked != most {
			t.Errorf("%s: recorded %d of %d batches", name, booked, 3*most)
		}
		if !strings.Contains(w.logged.String(), "too many streams") {
			t.Errorf("%s: the log does not mention it", name)
		}
		last := number(most - 1)
		w.booked("token-a", of("a", last+1, joules(1), change(most-1))) // existing streams continue
		if answer := w.send("token-a", of("a", last, joules(1), change(most-1))); answer.Code != http.StatusOK {
			t.Errorf("%s: status of a recorded batch = %d, want 200", name, answer.Code)
		}
		w.booked("token-b", of("b", 1)) // other nodes are not throttled
		w.add(30 * time.Minute)         // the interval of the daily limit
		w.booked("token-a", of("a", number(4*most), joules(1), change(4*most)))
		w.refused("token-a", of("a", number(5*most), joules(1), change(5*most)), http.StatusTooManyRequests)
	}
}

// Failed bookings do not use up the limit, because agents retry while the ledger is unavailable.
func TestFailuresBeginNoStream(t *testing.T) {
	w := newWorld(t)
	w.fail = errBroken
	for range 200 {
		w.refused("token-a", of("a", 1), http.StatusInternalServerError)
	}
	w.fail = nil
	w.booked("token-a", of("a", 1))
}

// An agent that continues its stream is never throttled, also after restarts of the controller.
func TestAStreamGoesOn(t *testing.T) {
	w := newWorld(t)
	for n := range 300 {
		if n%10 == 9 {
			w.restart()
		}
		w.booked("token-a", of("a", uint64(n+1)))
	}
}

// A node that claims a new host or a new name in each batch is recorded without a host, because each adds an
// account.
func TestANodeHasFewParents(t *testing.T) {
	const most = 16
	w := newWorld(t)
	w.known["metal"] = true
	n := uint64(0)
	parent := func(vm string) bool {
		t.Helper()
		n++
		b, _ := w.booked("token-a", of("a", n, joules(1), guest("metal", vm)))
		return b.Batch.Parent != nil
	}
	named := 0
	for i := range 5 * most {
		if parent(strconv.Itoa(i)) {
			named++
		}
	}
	if named != most || !strings.Contains(w.logged.String(), "it has claimed too many") {
		t.Errorf("recorded %d names, want %d", named, most)
	}
	for range 100 {
		if !parent("0") {
			t.Fatal("a known virtual machine was rejected")
		}
	}
	w.add(24 * time.Hour)
	if !parent("new") {
		t.Error("the node cannot move after a day")
	}
}

// Impossible batches use up neither the limit of hosts nor that of names and streams.
func TestImpossibleBatchesCostNoQuota(t *testing.T) {
	w := newWorld(t)
	w.known["metal"] = true
	for i := range 200 {
		forged := of("a", 1, joules(1e6), guest("metal", strconv.Itoa(i)))
		for n := range 200 {
			id := fmt.Sprintf("cgroup//%03d-%03d", i, n)
			forged.Shares = append(forged.Shares, energy.Share{ID: id})
		}
		w.refused("token-a", forged, http.StatusUnprocessableEntity)
	}
	b, _ := w.booked("token-a", of("a", 1, guest("metal", "real"), with("cgroup//real")))
	if b.Batch.Parent == nil {
		t.Error("recorded without its host")
	}
	if b.Consumers[0].Key != "cgroup//real" {
		t.Errorf("consumer = %+v", b.Consumers[0])
	}
}

// Without its host, a node that draws too little power deviates from its model.
func TestUnconfirmedHostsAreCompared(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 200, Idle: 100, Modelled: true}
	w.known["metal"] = true
	w.booked("token-a", of("a", 1, joules(1), guest("metal", "vm")))
	if w.handler.Implausible("a") {
		t.Error("a virtual machine is implausible")
	}
	w.booked("token-a", of("a", 2, joules(1), guest("nowhere", "vm")))
	if !w.handler.Implausible("a") {
		t.Error("a node without a host is plausible")
	}
}

// Two controllers behind a Service receive batches in turns. A batch that follows one of the other controller
// starts no stream.
func TestControllersInTurns(t *testing.T) {
	w := newWorld(t)
	first := w.handler
	w.restart()
	second := w.handler
	for n := range 200 {
		w.handler = [...]*intake.Handler{first, second}[n%2]
		w.booked("token-a", of("a", uint64(n+1)))
		if t.Failed() {
			t.Fatal("batch", n+1)
		}
	}
}
