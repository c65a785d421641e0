package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Site is a place with one grid connection: a cluster, a partition, a room.
type Site struct {
	Name   string      `json:"name"`
	Zone   grid.Zone   `json:"zone"`
	PUE    float64     `json:"pue,omitempty"`    // facility energy ÷ node energy; 0 reads as 1
	Weight int64       `json:"weight,omitempty"` // of the where "karmada-static"; 0 reads as 1
	Carbon grid.Signal `json:"carbon,omitzero"`  // gCO2e per kWh
	Price  grid.Signal `json:"price,omitzero"`   // money per kWh; absent: energy is free of charge here
}

func (s *Site) pue() float64 {
	if s.PUE == 0 {
		return 1
	}
	return s.PUE
}

// pueFor returns the PUE that applies to j at the site: the job's own, or else the site's.
func (s *Site) pueFor(j *Job) float64 {
	if j.PUE > 0 {
		return j.PUE
	}
	return s.pue()
}

// Node is a target that can run jobs.
type Node struct {
	Name     string            `json:"-"`
	Site     *Site             `json:"-"`
	Labels   map[string]string `json:"labels,omitempty"`
	Capacity Resources         `json:"capacity"`
	Free     Resources         `json:"free"`
	Count    int               `json:"count,omitempty"` // nodes like it that it stands for, see [Fold]; 0 reads as 1
	Jobs     int               `json:"jobs,omitempty"`  // running on it; an empty node sleeps as its profile says
	Awake    bool              `json:"awake,omitempty"` // it does not sleep now, though it may be empty
	Profile  *energy.Profile   `json:"-"`
	Speed    float64           `json:"speed,omitempty"` // relative to the machine of the durations; 0 reads as 1
	PUE      float64           `json:"pue,omitempty"`   // of what feeds this node; 0: that of its site
	Ends     []End             `json:"ends,omitempty"`  // of what runs on it, as far as it is expected to end

	// by class of work, for the wheres "hybrid" and "hybrid-idle"
	Benchmarks map[string]energy.Benchmark `json:"-"`

	Live    energy.Watts `json:"-"` // what a meter reads at the node now
	HasLive bool         `json:"-"` // the reading exists and is fresh
	// of jobs that were placed here and are not in Live yet; means nothing without Live
	Provisional energy.Watts `json:"-"`
}

// End is when a job that runs on a node is expected to leave it.
type End struct {
	At      time.Time `json:"at"`
	Request Resources `json:"request"`
}

// Facility returns what the power of n is multiplied with at the site's meter: its own PUE, else that of its site,
// else 1.
func (n *Node) Facility() float64 {
	switch {
	case n.PUE > 0:
		return n.PUE
	case n.Site == nil:
		return 1
	}
	return n.Site.pue()
}

// PUEFor returns what the power that j draws on n is multiplied with at the site's meter.
func (n *Node) PUEFor(j *Job) float64 {
	if j.PUE > 0 {
		return j.PUE
	}
	return n.Facility()
}

// Runtime returns how long j runs on n from now on: of one that is resumed, what is left of it.
func (n *Node) Runtime(j *Job) time.Duration {
	if n.Speed == 0 || n.Speed == 1 {
		return j.Remaining()
	}
	return time.Duration(float64(j.Remaining()) / n.Speed)
}

// Utilisation returns the share of n's CPU that is taken once extra is placed on it.
func (n *Node) Utilisation(extra Resources) float64 {
	if n.Capacity.MilliCPU <= 0 {
		return 0
	}
	return float64(n.Capacity.MilliCPU-n.Free.MilliCPU+extra.MilliCPU) / float64(n.Capacity.MilliCPU)
}

// cpuPower returns what n draws without its GPUs once extra is placed on it. Memory draws by what is requested of it;
// of a node of unknown memory, as its CPU is.
func (n *Node) cpuPower(extra Resources) energy.Watts {
	u := n.Utilisation(extra)
	if n.Capacity.Memory <= 0 {
		return n.Profile.Power(u)
	}
	used := n.Capacity.Memory - n.Free.Memory + extra.Memory
	return n.Profile.Draw(u, float64(used)/float64(n.Capacity.Memory))
}

// Power returns what n draws at the node (without PUE) with the jobs that are on it.
func (n *Node) Power() energy.Watts {
	if n.Jobs == 0 && !n.Awake {
		return n.Profile.Sleep
	}
	return n.Running()
}

// Running returns what n draws while it is awake.
func (n *Node) Running() energy.Watts {
	return n.cpuPower(Resources{}) + n.gpuPower(n.Capacity.GPU-n.Free.GPU)
}

func (n *Node) gpuPower(held int64) energy.Watts {
	if n.Capacity.GPU == 0 {
		return 0
	}
	return n.Profile.GPUIdle*energy.Watts(n.Capacity.GPU-held) + n.Profile.GPUMax*energy.Watts(held)
}

// Place returns n with one more job of the given request on it.
func (n Node) Place(request Resources) Node {
	n.Free = n.Free.Sub(request)
	n.Jobs++
	return n
}

// spareShare is the share of an empty node's idle power that is charged to the first job on it: without the job, the
// node might go to sleep. Among nodes that are alike, jobs therefore fill those that work already. Up to 0.2 it changes
// what the demo needs by less than 0.01 %; from 0.5 on jobs avoid machines that are on anyway, and more is needed
// (docs/decisions/0028).
const spareShare = 0.1

// Marginal returns the power that n is expected to draw more once j is placed on it, and the energy spent at once for
// waking it.
func (n *Node) Marginal(j *Job) (energy.Watts, energy.Joules) {
	with := n.with(j)
	if n.Jobs > 0 {
		return with - n.Running(), 0
	}
	if n.Awake {
		idle := n.Running()
		return with - idle + spareShare*(idle-n.Profile.Sleep), 0
	}
	return with - n.Profile.Sleep, n.Profile.WakeUp
}

// with returns what n draws once j is placed on it. What other jobs do with their GPUs is not known here: those count
// in full, and only those of j by its class of work.
func (n *Node) with(j *Job) energy.Watts {
	after := n.cpuPower(j.Request)
	if n.Capacity.GPU > 0 {
		after += n.gpuPower(n.Capacity.GPU - n.Free.GPU + j.Request.GPU)
		if j.GPUClass != "" {
			after += (n.Profile.GPUPower(j.GPUClass) - n.Profile.GPUMax) * energy.Watts(j.Request.GPU)
		}
	}
	return after
}

// Meets tells nodes apart by the selectors that they meet.
func (n *Node) Meets(jobs []*Job) string {
	met := make([]byte, len(jobs))
	for k, j := range jobs {
		met[k] = '0'
		if j.Selects(n) {
			met[k] = '1'
		}
	}
	return string(met)
}
