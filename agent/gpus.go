package agent

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/agent/exposition"
	"github.com/kubenergy/kubenergy/agent/gpu"
	"github.com/kubenergy/kubenergy/agent/meter"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// gpus are the boards of the node, where it has some that a meter reads.
type gpus struct {
	meter meter.BoardMeter // nil: none
	books *gpu.Books
	inner inner
	names podNames
}

// openGPUs chooses the meter of boards. In a virtual machine whose host tells what it uses, boards are not metered: the
// host takes all that the machine tells from what it saw of it, and it saw no boards.
func (a *agent) openGPUs() {
	a.gpus.books = gpu.NewBooks(a.attributing)
	for _, name := range []string{meter.NameNVML, meter.NameDCGM} {
		for _, m := range a.meters {
			if boards, ok := m.(meter.BoardMeter); ok && m.Name() == name && a.gpus.meter == nil {
				a.gpus.meter = boards
			}
		}
	}
	if _, guest := meter.Of[*meter.Guest](a.meters); guest && a.gpus.meter != nil {
		a.log.Warn("GPUs are not metered: the host of this virtual machine tells what it uses, and does not see them")
		a.gpus.meter = nil
	}
}

// bookGPUs adds to the node's attribution what its boards used meanwhile.
func (a *agent) bookGPUs() {
	if a.gpus.meter == nil {
		return
	}
	before := a.attribution.Measured
	a.gpus.books.Observe(a.gpus.meter.Boards(), a.readings, a.consumerOf, &a.attribution)
	if a.gpus.inner.last != nil && !a.gpus.inner.outside {
		a.gpus.inner.due += a.attribution.Measured - before
	}
	a.status.Source = a.root.Source() + " + gpu (" + a.gpus.meter.Name() + ")"
}

// withoutGPUs takes out of readings of the whole machine what its boards used, which is booked apart.
func (a *agent) withoutGPUs(root []energy.Reading) {
	domains, _ := a.root.Domains()
	if a.gpus.meter == nil || len(domains) == 0 || domains[0].Kind != energy.Wall {
		return
	}
	if a.gpus.inner.take(root) {
		a.log.Warn("GPUs use more than the meter of the whole machine counts: it does not feed them, and their energy "+
			"is added", "root", a.root.Source())
	}
}

// showGPUs puts boards on the page.
func (a *agent) showGPUs() {
	if a.gpus.meter == nil {
		return
	}
	var all []exposition.Board
	for _, b := range a.gpus.meter.Boards() {
		shown := exposition.Board{ID: b.ID, Busy: b.Busy(), Memory: map[string]uint64{}}
		if b.Milliwatts != nil {
			shown.Power = energy.Watts(*b.Milliwatts) / 1000
		}
		for i := range b.Parts {
			for k := range b.Parts[i].Uses {
				u := &b.Parts[i].Uses[k]
				shown.Memory[a.consumerOf(u)] += u.Memory
			}
		}
		all = append(all, shown)
	}
	a.page.SetBoards(all)
}

func (a *agent) consumerOf(u *gpu.Use) string {
	if u.PID != 0 {
		return a.host.ConsumerOf(u.PID)
	}
	return a.gpus.names.of(u)
}

// podNames find the consumers that a page of metrics names as people do: by what acknowledgements told last.
type podNames struct {
	mu     sync.Mutex
	byName map[[3]string]string
}

func (p *podNames) set(names map[string]batch.Names) {
	byName := map[[3]string]string{}
	for uid, n := range names {
		byName[[3]string{n.Namespace, n.Pod}] = energy.ContainerID(uid, "")
		for id, container := range n.Containers {
			byName[[3]string{n.Namespace, n.Pod, container}] = energy.ContainerID(uid, id)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName = byName
}

func (p *podNames) of(u *gpu.Use) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id, ok := p.byName[[3]string{u.Namespace, u.Pod, u.Container}]; ok {
		return id
	}
	if id, ok := p.byName[[3]string{u.Namespace, u.Pod}]; ok {
		return id
	}
	if id := energy.ContainerID(u.PodUID, ""); u.PodUID != "" && batch.CheckConsumer(id) == nil {
		return id
	}
	return ""
}

// inner takes out of the readings of a root what the boards inside it used, which is booked apart. Readings that it
// returns never fall within a run, and with what was booked apart they add up to what the root counted. Where boards
// have used more than the root did in two minutes, it does not feed them, and nothing is taken out any more.
type inner struct {
	due     energy.Microjoules // booked of boards, and not taken out yet
	last    map[energy.Domain]counted
	outside bool
}

type counted struct {
	reading energy.Reading
	out     energy.Microjoules
}

const innerCarried = 2 * time.Minute

// take does so, and reports whether it has just found that the root does not feed the boards.
func (n *inner) take(root []energy.Reading) (found bool) {
	if n.last == nil {
		n.last = map[energy.Domain]counted{}
	}
	for i := range root {
		r := &root[i]
		was, known := n.last[r.Domain]
		now := counted{reading: *r}
		if known && r.Run == was.reading.Run && r.Total >= was.reading.Total {
			now.out = was.out
			if rise, passed := r.Total-was.reading.Total, r.At-was.reading.At; passed > 0 {
				out := min(max(n.due, 0), rise)
				now.out += out
				n.due -= out
				if most := float64(rise) * innerCarried.Seconds() / passed.Seconds(); float64(n.due) > most {
					n.outside, n.due, found = true, 0, true
				}
			}
		}
		n.last[r.Domain] = now
		r.Total -= now.out
	}
	return found
}

// appendState and restore keep what a later process goes on from.
func (g *gpus) appendState(into []byte) []byte {
	return g.books.AppendState(binary.AppendVarint(into, int64(g.inner.due)))
}

func (g *gpus) restore(state []byte) error {
	due, n := binary.Varint(state)
	if n <= 0 || due < 0 {
		return errState
	}
	g.inner.due = energy.Microjoules(due)
	return g.books.RestoreState(state[n:])
}
