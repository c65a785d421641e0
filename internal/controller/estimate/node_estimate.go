package estimate

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// books is the state of a node between two ticks: the pods with their CPU times, and the time until which the
// energy has been attributed.
//
// The root is the meter at the wall while it responds, and the model otherwise. A change of the root leaves no gap
// and counts no energy twice: the model starts at the last reading of the meter and ends at the first new one.
type books struct {
	stream batch.Stream
	next   uint64 // sequence number of the next batch

	attributor *energy.Attributor // nil if there is no root
	root       int                // byWall or byModel
	at         time.Duration      // time of the last tick
	now        time.Time
	from       time.Duration // last batch of the agent, which is the start of the first model; 0 if unknown
	reported   time.Duration // energy has been attributed until this time
	source     string
	out        energy.Attribution

	pods   map[types.UID]*account
	system time.Duration // CPU time outside pods
	ended  []energy.Usage
	over   map[types.UID]bool // finished pods in the last list
	model  modelled
}

// account contains the CPU time of a pod.
type account struct {
	cpu    time.Duration // since the pod was first seen
	cores  float64       // at the last tick
	weight uint64
	seen   bool
}

// modelled is the energy counter of the model.
type modelled struct {
	reading energy.Reading // energy of the node without GPUs and memory
	rest    float64        // fraction of a microjoule
	apart   map[types.UID]energy.Microjoules
	free    energy.Microjoules // unused GPUs and memory outside pods
}

const idlePolicy = energy.IdleByRequests

var modelDomain = energy.Domain{Kind: energy.Model, Name: "model"}

// observe processes the state of a node at a tick and queues the resulting batch. While the scene is not ready,
// because the node may have an agent, the energy accumulates.
func (b *books) observe(s *scene, q *queue) {
	if b.attributor != nil && s.at <= b.at {
		return
	}
	s.look()
	root := s.kind()
	if b.attributor != nil && b.root == byWall && root == byModel {
		b.begin(s, byModel, b.reported) // the meter does not respond
	}
	b.enter(s)
	b.at, b.now = s.at, s.now
	switch {
	case b.attributor == nil, b.root == byModel && s.profile == nil: // the energy until now is unknown
		b.attributor = nil
		if root != byNothing {
			b.begin(s, root, cmp.Or(b.from, s.at))
		}
		b.from = 0
		return
	case b.root == byModel:
		b.follow(s, q)
	case s.ready:
		b.attribute(s, q)
	}
}

// follow continues with the model until the meter responds again.
func (b *books) follow(s *scene, q *queue) {
	until, back := s.at, false
	if at := latest(s.wall); s.ready && s.wallKnown && at > b.model.reading.At {
		until, back = at, true
	}
	b.model.count(s, until)
	if !s.ready {
		return
	}
	b.attribute(s, q)
	if back {
		b.begin(s, byWall, s.at)
	}
}

// latest returns the time of the latest reading.
func latest(readings []energy.Reading) (at time.Duration) {
	for i := range readings {
		at = max(at, readings[i].At)
	}
	return at
}

// begin starts a root: the model at the time from, or the meter at its latest reading. The learned idle power
// belongs to the previous root and is discarded.
func (b *books) begin(s *scene, root int, from time.Duration) {
	b.attributor = energy.NewAttributor(energy.AttributorOptions{Idle: idlePolicy, Prior: s.profile})
	b.root = root
	o := b.observation(s)
	if root == byModel {
		b.model = modelled{
			reading: energy.Reading{
				Domain: modelDomain, At: from, Run: b.model.reading.Run + 1, Quality: energy.Estimated,
			},
			apart: map[types.UID]energy.Microjoules{},
		}
		b.reported = from
		o.At = max(b.at, from)
		o.Root = []energy.Reading{b.model.reading}
	} else {
		o.Root = s.wall
		b.reported = latest(s.wall)
	}
	b.attributor.Observe(o, &b.out)
	b.ended = b.ended[:0]
}

// attribute attributes the energy since the last attribution and queues a batch.
func (b *books) attribute(s *scene, q *queue) {
	o := b.observation(s)
	if b.root == byModel {
		b.source = energy.Model.String() + " (" + s.profile.Name + ")"
		o.Root = []energy.Reading{b.model.reading}
	} else if s.wallKnown {
		b.source = s.wallSource
		o.Root = s.wall
	}
	done := b.attributor.Observe(o, &b.out)
	b.ended = b.ended[:0]
	if !done {
		return
	}
	if b.root == byModel {
		b.model.charge(&b.out)
	}
	b.reported = b.out.End
	if made := b.batch(); made != nil {
		q.add(made)
	}
}

// observation returns the CPU times for the attributor. If the pods could not be listed, it contains no usage.
func (b *books) observation(s *scene) *energy.Observation {
	o := &energy.Observation{At: b.at, CPUs: s.cores}
	slices.SortFunc(b.ended, func(a, c energy.Usage) int { return strings.Compare(a.ID, c.ID) })
	o.Ended = b.ended
	if !s.podsKnown {
		return o
	}
	o.Usage = make([]energy.Usage, 0, len(b.pods)+1)
	for uid, a := range b.pods {
		o.Usage = append(o.Usage, energy.Usage{ID: energy.ContainerID(string(uid), ""), CPU: a.cpu, Weight: a.weight})
	}
	o.Usage = append(o.Usage, energy.Usage{ID: energy.System, CPU: b.system})
	slices.SortFunc(o.Usage, func(a, c energy.Usage) int { return strings.Compare(a.ID, c.ID) })
	return o
}

// enter adds the CPU time since the last tick to each pod and to the system.
func (b *books) enter(s *scene) {
	if !s.podsKnown {
		return
	}
	dt := s.at - b.at
	if b.now.IsZero() {
		dt = 0
	}
	var spent time.Duration
	for _, a := range b.pods {
		a.seen = false
	}
	over := map[types.UID]bool{}
	for i := range s.workers {
		w := &s.workers[i]
		switch {
		case !w.ended:
			spent += b.work(w, s.now, dt)
		case !over[w.uid]:
			over[w.uid] = true
			if !b.over[w.uid] && b.over != nil {
				spent += b.last(w, s.now, dt)
			}
		}
	}
	b.over = over
	for uid, a := range b.pods {
		if !a.seen { // it was deleted at an unknown time
			spent += a.add(a.cores, dt/2)
			b.end(uid, a)
		}
	}
	if s.measured {
		b.system += max(scaled(s.used, dt)-spent, 0)
	}
}

// work adds the CPU time of a running pod and returns it.
func (b *books) work(w *worker, now time.Time, dt time.Duration) time.Duration {
	a := b.pods[w.uid]
	if a == nil {
		if !w.running && !w.known {
			return 0
		}
		a = new(account)
		b.pods[w.uid] = a
	}
	if a.seen {
		return 0 // duplicate entry
	}
	a.seen, a.cores, a.weight = true, w.cores, uint64(w.request)
	ran := dt
	if !w.start.IsZero() {
		ran = min(ran, max(now.Sub(w.start), 0))
	}
	return a.add(w.cores, ran)
}

// last adds the CPU time of a pod that finished since the last tick and returns it. The usage of a pod that started
// and finished between two ticks is unknown, so its CPU request is used.
func (b *books) last(w *worker, now time.Time, dt time.Duration) (spent time.Duration) {
	after := dt / 2
	if !w.end.IsZero() {
		after = min(max(now.Sub(w.end), 0), dt)
	}
	ran := dt - after
	a := b.pods[w.uid]
	if a == nil {
		if a = (&account{cores: float64(w.request) / milli}); !w.start.IsZero() && !w.end.IsZero() {
			ran = min(ran, max(w.end.Sub(w.start), 0))
		}
	}
	spent = a.add(a.cores, ran)
	b.end(w.uid, a)
	return spent
}

func (b *books) end(uid types.UID, a *account) {
	b.ended = append(b.ended, energy.Usage{ID: energy.ContainerID(string(uid), ""), CPU: a.cpu, Weight: a.weight})
	delete(b.pods, uid)
}

func (a *account) add(cores float64, ran time.Duration) time.Duration {
	spent := scaled(cores, ran)
	a.cpu += spent
	return spent
}

// scaled returns the CPU time of the given number of cores.
func scaled(cores float64, ran time.Duration) time.Duration {
	if v := cores * float64(ran); v > 0 && v < math.MaxInt64/2 {
		return time.Duration(v)
	}
	return 0
}

// count adds the modeled energy until a time.
func (m *modelled) count(s *scene, until time.Duration) {
	dt := until - m.reading.At
	if dt <= 0 {
		return
	}
	power, awake := s.cpuPower()
	m.reading.At = until
	m.reading.Total += m.whole(power, dt)
	if awake {
		charge := func(uid types.UID, w energy.Watts) { m.apart[uid] += w.For(dt).Microjoules() }
		m.free += (s.gpuPower(charge) + s.memoryPower(charge)).For(dt).Microjoules()
	}
}

// whole returns the energy in whole microjoules and carries the fraction over to the next call.
func (m *modelled) whole(w energy.Watts, dt time.Duration) energy.Microjoules {
	v := float64(w)*dt.Seconds()*1e6 + m.rest
	if !(v >= 0 && v < math.MaxInt64/2) {
		return 0
	}
	whole := math.Floor(v)
	m.rest = v - whole
	return energy.Microjoules(whole)
}

// charge adds the energy of GPUs and memory to an attribution: to the pods that use them, and to idle. If a pod has
// no share, one is added.
func (m *modelled) charge(out *energy.Attribution) {
	for uid, used := range m.apart {
		if used == 0 {
			continue
		}
		id := energy.ContainerID(string(uid), "")
		i, found := slices.BinarySearchFunc(out.Shares, id, func(s energy.Share, id string) int {
			return strings.Compare(s.ID, id)
		})
		if !found {
			out.Shares = slices.Insert(out.Shares, i, energy.Share{ID: id})
		}
		out.Shares[i].Dynamic += used
		out.Measured += used
	}
	out.Idle += m.free
	out.Measured += m.free
	clear(m.apart)
	m.free = 0
}

// batch returns the next batch with the attributed energy, or nil if it would be invalid.
func (b *books) batch() *batch.Batch {
	a := &b.out
	made := &batch.Batch{
		Version: batch.Version, Stream: b.stream, First: b.next, Last: b.next,
		StartSinceBoot: a.Start, EndSinceBoot: a.End, Unmeasured: a.Unmeasured,
		Source: b.source, Quality: a.Quality, IdlePolicy: idlePolicy.String(),
		Measured: a.Measured, Idle: a.Idle, Platform: a.Platform, Unknown: a.Unknown,
		Shares: batch.Condense(slices.Clone(a.Shares), batch.MaxShares),
	}
	made.SetWall(b.now.Add(a.End - b.at))
	if made.Validate() != nil {
		if made.Source = "unknown"; made.Validate() != nil {
			return nil
		}
	}
	b.next++
	return made
}
