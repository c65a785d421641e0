// Package feed makes up what a node and its consumers use. It follows from the node's name and the number of a step
// alone, so that what should have been booked can be said afterwards, whatever happened to the processes in between.
package feed

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Energy of a step is small: steps are a few milliseconds long, and a node draws no more than a machine can.
const (
	maxDynamic = 20_000 // µJ
	maxIdle    = 5_000
	maxCPU     = time.Millisecond

	pods      = 5   // at once
	turnover  = 400 // steps until all of them are others
	perPod    = 2   // containers
	jobs      = 4
	usualOdds = 3 // one of so many does nothing in a step
)

// Step returns what is used in the step of a number. Start, End and Quality are for the caller to set.
func Step(node string, number uint64) *energy.Attribution {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	r := rand.New(rand.NewPCG(h.Sum64(), number))
	amount := func(most int64) energy.Microjoules { return energy.Microjoules(r.Int64N(most)) }
	a := &energy.Attribution{Idle: amount(maxDynamic), Platform: amount(maxIdle), Unknown: amount(maxIdle)}
	a.Measured = a.Idle + a.Platform + a.Unknown
	for _, id := range consumers(h.Sum64(), number) {
		if r.IntN(usualOdds) == 0 {
			continue
		}
		s := energy.Share{
			ID: id, Dynamic: amount(maxDynamic), Idle: amount(maxIdle), CPU: time.Duration(r.Int64N(int64(maxCPU))),
		}
		a.Measured += s.Dynamic + s.Idle
		a.Shares = append(a.Shares, s)
	}
	return a
}

// consumers are those of a step, sorted.
func consumers(seed, number uint64) []string {
	all := []string{energy.System, fmt.Sprintf("cgroup//slurm/job_%d", number/turnover%jobs), "vm/guest 1"}
	for i := range uint64(pods) {
		uid := UID(seed, i, (number+i*turnover/pods)/turnover)
		for c := range perPod {
			all = append(all, fmt.Sprintf("pod/%s/c%d", uid, c))
		}
		all = append(all, "pod/"+uid)
	}
	slices.Sort(all)
	return all
}

// UID is that of a pod that the API server does not have.
func UID(seed, place, generation uint64) string {
	var raw [24]byte
	for i, v := range []uint64{seed, place, generation} {
		binary.LittleEndian.PutUint64(raw[8*i:], v)
	}
	h := fnv.New128a()
	_, _ = h.Write(raw[:])
	x := hex.EncodeToString(h.Sum(nil))
	return strings.Join([]string{x[:8], x[8:12], x[12:16], x[16:20], x[20:]}, "-")
}

// A Sum is what one consumer used.
type Sum struct {
	Dynamic, Idle energy.Microjoules
	CPU           time.Duration
}

// A Key names a consumer as the ledger does: its kind, and what batches call it, pods without their containers; what
// has no owner is called as its kind.
type Key struct{ Kind, Name string }

// Truth returns what a node's consumers used in so many steps.
func Truth(node string, steps uint64) map[Key]Sum {
	all := map[Key]Sum{}
	add := func(key Key, s Sum) {
		t := all[key]
		all[key] = Sum{t.Dynamic + s.Dynamic, t.Idle + s.Idle, t.CPU + s.CPU}
	}
	for number := range steps {
		a := Step(node, number)
		add(Key{"idle", "idle"}, Sum{Dynamic: a.Idle})
		add(Key{"platform", "platform"}, Sum{Dynamic: a.Platform})
		add(Key{"unknown", "unknown"}, Sum{Dynamic: a.Unknown})
		for _, s := range a.Shares {
			add(keyOf(s.ID), Sum{s.Dynamic, s.Idle, s.CPU})
		}
	}
	return all
}

func keyOf(id string) Key {
	if uid, _, ok := energy.PodOf(id); ok {
		return Key{"workload", "pod/" + uid}
	}
	if _, ok := energy.VMOf(id); ok {
		return Key{"vm", id}
	}
	if _, ok := energy.CgroupOf(id); ok {
		return Key{"cgroup", id}
	}
	return Key{"system", id}
}

// State is what a process has to remember: how many steps there were, and when the last one ended.
type State struct {
	Steps uint64
	At    time.Duration
}

const stateBytes = 16

// Append appends it to b.
func (s State) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, s.Steps), uint64(s.At))
}

// ReadState reads what Append has written; nothing is the beginning.
func ReadState(b []byte) (s State, err error) {
	if b == nil {
		return s, nil
	}
	if len(b) != stateBytes {
		return s, fmt.Errorf("a state of %d bytes", len(b))
	}
	return State{binary.LittleEndian.Uint64(b), time.Duration(binary.LittleEndian.Uint64(b[8:]))}, nil
}
