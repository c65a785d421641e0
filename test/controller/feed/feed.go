// Package feed generates the energy usage of a node and its consumers. The usage depends only on the name of the
// node and the number of the step, so the expected records can be computed afterwards, regardless of restarts of
// the processes.
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

// The energy of a step is small because a step takes a few milliseconds and the power of a node must be plausible.
const (
	maxDynamic = 20_000 // µJ
	maxIdle    = 5_000
	maxCPU     = time.Millisecond

	pods      = 5   // running at the same time
	turnover  = 400 // number of steps after which all pods have been replaced
	perPod    = 2   // containers per pod
	jobs      = 4
	usualOdds = 3 // one in usualOdds consumers is idle in a step
)

// Step returns the usage of the step with the given number. The caller must set Start, End and Quality.
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

// consumers returns the sorted IDs of the consumers of a step.
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

// UID returns the UID of a pod that does not exist in the API server.
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

// A Sum is the total usage of one consumer.
type Sum struct {
	Dynamic, Idle energy.Microjoules
	CPU           time.Duration
}

// A Key identifies a consumer as in the ledger, by its kind and name. Pods are identified without their containers,
// and the name of a consumer without an owner is its kind.
type Key struct{ Kind, Name string }

// Truth returns the expected usage of a node's consumers after the given number of steps.
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

// State is the persistent state of a process: the number of completed steps and the end time of the last one.
type State struct {
	Steps uint64
	At    time.Duration
}

const stateBytes = 16

// Append appends the encoded state to b.
func (s State) Append(b []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, s.Steps), uint64(s.At))
}

// ReadState decodes a state that Append encoded. If b is nil, it returns the initial state.
func ReadState(b []byte) (s State, err error) {
	if b == nil {
		return s, nil
	}
	if len(b) != stateBytes {
		return s, fmt.Errorf("invalid state of %d bytes", len(b))
	}
	return State{binary.LittleEndian.Uint64(b), time.Duration(binary.LittleEndian.Uint64(b[8:]))}, nil
}
