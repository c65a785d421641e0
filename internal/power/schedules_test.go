package power

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

var (
	schedules = flag.Int("schedules", 200, "number of schedules of faults, five times as many with KUBENERGY_LONG=1")
	oneSeed   = flag.Uint64("seed", 0, "seed of a single schedule to run")
)

// TestFaults verifies promise P9 with random schedules of faults, each determined by its seed. A failing schedule
// can be repeated with -seed.
//
//test:norace
func TestFaults(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	if testing.Short() {
		*schedules = min(*schedules, 100)
	}
	if os.Getenv("KUBENERGY_LONG") != "" {
		*schedules *= 5
	}
	first, last := uint64(1), uint64(*schedules)
	if *oneSeed != 0 {
		first, last = *oneSeed, *oneSeed
	}
	var slept, woke, failed int
	for seed := first; seed <= last; seed++ {
		w := newWorld(seed, 5)
		f := &faults{world: w, waits: map[string]time.Time{}, obeys: map[string]time.Time{}}
		f.play(t, 12*time.Minute)
		slept, woke, failed = slept+w.sleep, woke+w.wakes, failed+len(w.failures)
		if len(w.wrong) > 0 {
			if *oneSeed != 0 {
				t.Log(strings.Join(w.log, "\n"))
			}
			t.Fatalf("go test ./internal/power -run TestFaults -seed %d\n%s", seed, strings.Join(w.wrong, "\n"))
		}
	}
	t.Logf("%d schedules: %d orders to sleep, %d boots, %d failed", last-first+1, slept, woke, failed)
	if *oneSeed == 0 && (slept < int(last) || woke < int(last) || failed == 0) {
		t.Error("too few machines were put to sleep")
	}
}

// faults injects failures into a world with two replicas.
type faults struct {
	*world

	replicas []*replica
	starts   []time.Time          // times when dead replicas are replaced
	back     time.Time            // time when the API server is available again
	waits    map[string]time.Time // time since which pods have no machine
	obeys    map[string]time.Time // earliest time at which machines would boot if ordered to
	pods     int
	decided  int
}

func (f *faults) play(t *testing.T, long time.Duration) {
	f.meanwhile = func(d time.Duration) { f.live(t, d) }
	for i := range 2 {
		f.replicas = append(f.replicas, f.start(fmt.Sprint("replica-", i)))
		f.starts = append(f.starts, time.Time{})
		f.replay(t, f.replicas[i])
	}
	for end := f.begin.Add(long); f.now.Before(end) && len(f.wrong) == 0; {
		f.disturb()
		f.work()
		f.meanwhile(time.Second)
	}
}

// live advances the clock while the replicas are running.
func (f *faults) live(t *testing.T, d time.Duration) {
	for end := f.now.Add(d); f.now.Before(end); {
		f.pass(min(time.Second, end.Sub(f.now)))
		f.elect()
		for i, r := range f.replicas {
			f.keep(t, i, r)
		}
		f.judge()
	}
}

// replay occasionally verifies that a recorded snapshot yields the recorded decision.
func (f *faults) replay(t *testing.T, r *replica) {
	r.Record = func(s *sleep.Snapshot, plan *sleep.Plan) {
		if f.decided++; f.decided%97 != 0 {
			return
		}
		var again sleep.Snapshot
		text, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(text, &again)
		}
		if diff := cmp.Diff(*plan, sleep.Decide(&again)); err != nil || diff != "" {
			t.Errorf("a recorded snapshot yields a different decision: %v\n%s", err, diff)
		}
	}
}

// keep runs a round of a replica if it is due, and replaces a dead replica.
func (f *faults) keep(t *testing.T, i int, r *replica) {
	if r.dead {
		if f.starts[i].IsZero() {
			f.starts[i] = f.now.Add(f.within(time.Second, 60*time.Second))
		}
		if !f.now.Before(f.starts[i]) {
			f.replicas[i], f.starts[i] = f.start(r.name), time.Time{}
			f.replay(t, f.replicas[i])
		}
		return
	}
	if r.busy || f.now.Before(r.next) {
		return
	}
	r.busy = true
	r.round(t.Context())
	r.busy = false
	r.fake.ClearActions()
	r.next = f.now.Add(f.within(time.Second, 5*time.Second)) // random, as if triggered by changes
}

// elect moves the Lease.
func (f *faults) elect() {
	if f.away {
		return
	}
	for _, r := range f.replicas {
		if r.dead {
			continue
		}
		if f.lease == r.name || f.now.Sub(f.renewed) > 15*time.Second {
			f.lease, f.renewed = r.name, f.now
			return
		}
	}
}

// disturb breaks and repairs components.
func (f *faults) disturb() {
	switch {
	case f.away && f.now.After(f.back):
		f.away = false
		f.note("the API server is back")
	case !f.away && f.rng.IntN(400) == 0:
		f.away, f.back = true, f.now.Add(f.within(2*time.Second, 60*time.Second))
		f.note("the API server is away")
	}
	if r := f.replicas[f.rng.IntN(2)]; f.rng.IntN(120) == 0 && r.dies == 0 && !r.dead {
		r.dies, r.after = 1+f.rng.IntN(12), f.rng.IntN(2) == 0
	}
	for _, r := range f.replicas {
		if r.stale != nil && f.now.After(r.until) {
			r.stale = nil
		} else if r.stale == nil && f.rng.IntN(300) == 0 {
			r.stale, r.all, r.until = f.seen(0), f.rng.IntN(3) == 0, f.now.Add(f.within(2*time.Second, 60*time.Second))
		}
	}
	names := f.names
	if f.rng.IntN(60) == 0 {
		b := f.boxes[names[f.rng.IntN(len(names))]]
		b.mood = good
		if mood := mood(f.rng.IntN(8)); mood <= slow && (mood != slow || !f.any(slow)) {
			b.mood = mood
		}
		f.note("%s is of mood %d", b.name, b.mood)
	}
	if f.rng.IntN(200) == 0 {
		for _, name := range names {
			f.leads[name] = name
		}
		if f.rng.IntN(2) == 0 {
			i, k := f.rng.IntN(len(names)), f.rng.IntN(len(names))
			f.leads[names[i]], f.leads[names[k]] = names[k], names[i]
			f.note("the addresses of %s and %s are swapped", names[i], names[k])
		}
	}
}

func (f *faults) any(m mood) bool {
	for _, b := range f.boxes {
		if b.mood == m {
			return true
		}
	}
	return false
}

// work creates pods in waves.
func (f *faults) work() {
	often := 60
	if f.now.Sub(f.begin)%(6*time.Minute) < 90*time.Second {
		often = 8
	}
	if f.away || f.rng.IntN(often) > 0 {
		return
	}
	f.pods++
	f.addPod(fmt.Sprintf("p%03d", f.pods), "", 2+2*f.rng.Int64N(4), func(p *v1.Pod) {
		if class := f.rng.IntN(4); class < 2 {
			p.Spec.NodeSelector = map[string]string{"class": []string{"a", "b"}[class]}
		}
	})
	for name, p := range f.world.pods {
		if p.Status.Phase == v1.PodSucceeded {
			delete(f.world.pods, name) // as by a cleanup controller
		}
	}
}

// judge verifies that needed machines are awake in time: for each pending pod, a machine with sufficient capacity
// must be up within the boot time plus 30 s, if there is a suitable sleeping machine that obeys orders. If a boot
// failed only at its timeout, one more boot time plus 10 s is allowed.
func (f *faults) judge() {
	helped := !f.away && slices.ContainsFunc(f.replicas, func(r *replica) bool { return !r.dead && r.stale == nil })
	for _, name := range f.names {
		b, state := f.boxes[name], kube.PowerState(f.nodes[name])
		if b.mood != good || f.leads[name] != name || b.fails || !helped {
			b.sinned = f.now
		}
		obeys := b.sinned != f.now && (state == sleep.Asleep && !b.on || state == sleep.Booting)
		if failed := remembered(f.nodes[name], f.now).Failed; failed > 0 {
			obeys = obeys && f.now.Sub(b.sinned) > max(3*time.Minute, bootTime<<min(failed, 6))
		}
		if _, did := f.obeys[name]; !obeys {
			delete(f.obeys, name)
		} else if !did {
			f.obeys[name] = f.now
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.world.pods)) {
		p := f.world.pods[name]
		if policy.Scheduled(p).Reason != v1.PodReasonUnschedulable || !helped || f.served(p) {
			delete(f.waits, name)
			continue
		}
		if _, did := f.waits[name]; !did {
			f.waits[name] = f.now
		}
		for machine, since := range f.obeys {
			if !takes(awakened(f.nodes[machine]), p) {
				continue
			}
			if since = later(since, f.waits[name]); f.now.Sub(since) > f.bound(since) {
				f.fail("%s has been pending for %v, although %s would have obeyed", name, f.now.Sub(since), machine)
			}
		}
	}
}

func (f *faults) bound(since time.Time) time.Duration {
	bound := bootTime + 30*time.Second
	if f.policy.WakesPerMinute > 0 { // at most two turns for 5 machines and their retries
		bound += 2 * time.Minute
	}
	for _, at := range f.failures {
		if !at.Before(since.Add(-bootTime)) {
			return bound + bootTime + 10*time.Second
		}
	}
	return bound
}

// served reports whether a running machine has sufficient capacity for a pod.
func (f *faults) served(p *v1.Pod) bool {
	for name, n := range f.nodes {
		if takes(n, p) && f.room(name) >= policy.PodRequest(p).MilliCPU {
			return true
		}
	}
	return false
}

func awakened(n *v1.Node) *v1.Node {
	b := bare(n)
	b.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	return b
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
