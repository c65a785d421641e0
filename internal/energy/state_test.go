package energy_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// usedState returns the state of an attributor that has processed all kinds of events.
func usedState(t testing.TB, seed uint64, ticks int) []byte {
	t.Helper()
	n := newSimNode(t, seed, allFaults&^restartsWithout, 12)
	for range ticks {
		n.tick()
	}
	return n.a.AppendState(nil)
}

func TestStateIsAllThereIs(t *testing.T) {
	next, again := busyNode(50), busyNode(50)
	a := energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleByRequests})
	var o, p energy.Observation
	var out, same energy.Attribution
	b := a
	for i := range 300 {
		next(&o)
		again(&p)
		if i%3 == 0 {
			state := a.AppendState([]byte("before"))
			b = energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleByRequests})
			if err := b.RestoreState(state[6:]); err != nil || string(state[:6]) != "before" {
				t.Fatal(err)
			}
		}
		x, y := a.Observe(&o, &out), b.Observe(&p, &same)
		if x != y || out.Measured != same.Measured || out.Idle != same.Idle || out.Platform != same.Platform ||
			!slices.Equal(out.Shares, same.Shares) {
			t.Fatalf("tick %d: the interval differs after restoring the state: idle energy is %v, want %v", i,
				same.Idle, out.Idle)
		}
	}
}

func TestDamagedState(t *testing.T) {
	state := usedState(t, 13, 200)
	for i := range state {
		a := energy.NewAttributor(energy.AttributorOptions{})
		before := a.AppendState(nil)
		if err := a.RestoreState(state[:i]); err == nil {
			t.Fatalf("RestoreState() accepted %d of %d bytes", i, len(state))
		} else if !strings.Contains(err.Error(), "restoring") {
			t.Errorf("unexpected error: %v", err)
		}
		if !bytes.Equal(before, a.AppendState(nil)) {
			t.Fatalf("RestoreState() of %d bytes returned an error but modified the state", i)
		}
	}
	a := energy.NewAttributor(energy.AttributorOptions{})
	if err := a.RestoreState(append(bytes.Clone(state), 0)); err == nil {
		t.Error("RestoreState() accepted an extra byte")
	}
	state[0]++
	if err := a.RestoreState(state); err == nil {
		t.Error("RestoreState() accepted another version")
	}
}

// Restoring arbitrary bytes fails, or results in an attributor that satisfies its invariants.
func FuzzRestoreState(f *testing.F) {
	f.Add(energy.NewAttributor(energy.AttributorOptions{}).AppendState(nil), []byte{})
	for seed := range uint64(6) {
		f.Add(usedState(f, seed, 3+int(seed)*20), []byte("0123456789abcdef0123456789abcdef"))
	}
	f.Fuzz(func(t *testing.T, state, data []byte) {
		defer memtest.Limit(t, 100*(len(state)+len(data)))()
		a := energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdlePolicy(len(data) % 3)})
		if err := a.RestoreState(state); err != nil {
			return
		}
		b := energy.NewAttributor(energy.AttributorOptions{})
		if err := b.RestoreState(a.AppendState(nil)); err != nil ||
			!bytes.Equal(a.AppendState(nil), b.AppendState(nil)) {
			t.Fatalf("restoring the state again failed or changed it: %v", err)
		}
		observeAll(t, a, data)
	})
}

// For any observations, intervals conserve energy, are consecutive and contain no negative values.
func FuzzObserve(f *testing.F) {
	f.Add([]byte("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"))
	f.Add(bytes.Repeat([]byte{1, 0, 200, 7, 0, 0, 3, 1}, 40))
	f.Add(bytes.Repeat([]byte{0xff}, 300))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		policy := energy.IdlePolicy(0)
		if len(data) > 0 {
			policy = energy.IdlePolicy(data[0] % 3)
		}
		observeAll(t, energy.NewAttributor(energy.AttributorOptions{Idle: policy, Patience: 5 * sec}), data)
	})
}

// observeAll converts bytes to observations, some of them valid and others not.
func observeAll(t *testing.T, a *energy.Attributor, data []byte) {
	take := func() byte {
		if len(data) == 0 {
			return 0
		}
		b := data[0]
		data = data[1:]
		return b
	}
	wide := func() int64 { // small, or of any magnitude
		b := take()
		if b < 250 || len(data) < 8 {
			return int64(b)
		}
		v := int64(binary.LittleEndian.Uint64(data))
		data = data[8:]
		return v
	}
	var out energy.Attribution
	at, end := time.Duration(0), time.Duration(math.MinInt64)
	total := energy.Microjoules(0)
	for range 64 {
		if len(data) == 0 {
			return
		}
		before := at
		at += time.Duration(wide()) * 10 * ms
		o := energy.Observation{At: at, CPUs: float64(wide()) / 4, Busy: time.Duration(wide()) * 100 * ms}
		readings := func() (list []energy.Reading) {
			for range take() % 4 {
				total += energy.Microjoules(wide() * 1e5)
				list = append(list, energy.Reading{
					Domain: energy.Domain{Kind: energy.DomainKind(take() % 3), Name: "x"},
					At:     at + time.Duration(int8(take()))*ms,
					Total:  total, Run: uint32(take() / 250),
				})
			}
			return list
		}
		o.Root, o.Parts = readings(), readings()
		usages := func() (list []energy.Usage) {
			for range take() % 6 {
				list = append(list, energy.Usage{ID: []string{
					"", "cgroup//a", "pod/a", "pod/a/1", "pod/b/1", "system", "vm/x",
				}[take()%7], CPU: time.Duration(wide()) * ms, Weight: uint64(wide())})
			}
			if take()%8 > 0 {
				slices.SortFunc(list, func(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) })
				list = slices.CompactFunc(list, func(a, b energy.Usage) bool { return a.ID == b.ID })
			}
			return list
		}
		o.Usage, o.Ended = usages(), usages()
		if at < before {
			end = math.MinInt64 // possibly another boot
		}
		if !a.Observe(&o, &out) {
			continue
		}
		if err := out.Check(); err != nil {
			t.Fatalf("%v: %+v of %+v", err, out, o)
		}
		if out.Start < end {
			t.Fatalf("interval from %v follows one that ends at %v", out.Start, end)
		}
		end = out.End
	}
}
