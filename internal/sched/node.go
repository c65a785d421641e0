package sched

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Site is a location with one grid connection, for example a cluster, a partition or a server room.
type Site struct {
	Name   string      `json:"name"`
	Zone   grid.Zone   `json:"zone"`
	PUE    float64     `json:"pue,omitempty"`    // ratio of facility energy to node energy; 0 means 1
	Weight int64       `json:"weight,omitempty"` // for the placement "karmada-static"; 0 means 1
	Carbon grid.Signal `json:"carbon,omitzero"`  // in gCO2e per kWh
	Price  grid.Signal `json:"price,omitzero"`   // in money per kWh; if absent, energy is free at this site
}

// Heading returns the name and the zone of the site for the beginning of an error message, or "" if both are empty.
func (s *Site) Heading() string {
	switch {
	case s.Name != "" && s.Zone != "":
		return fmt.Sprintf("site %s, zone %s: ", s.Name, s.Zone)
	case s.Name != "":
		return fmt.Sprintf("site %s: ", s.Name)
	case s.Zone != "":
		return fmt.Sprintf("zone %s: ", s.Zone)
	}
	return ""
}

func (s *Site) pue() float64 { return cmp.Or(s.PUE, 1) }

// pueFor returns the PUE that applies to j at the site: the job's own PUE if set, otherwise the site's.
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
	Count    int               `json:"count,omitempty"` // number of nodes that it represents, see [Fold]; 0 means 1
	Jobs     int               `json:"jobs,omitempty"`  // number of running jobs; a node without jobs may be asleep
	Awake    bool              `json:"awake,omitempty"` // the node is not asleep, even if it is empty
	Profile  *energy.Profile   `json:"-"`
	Speed    float64           `json:"speed,omitempty"` // relative to the machine of the job durations; 0 means 1
	PUE      float64           `json:"pue,omitempty"`   // PUE of the node's power supply; 0 means the site's PUE
	Ends     []End             `json:"ends,omitempty"`  // expected ends of the running jobs, if known

	// Benchmarks by class of work, used by the placements "hybrid" and "hybrid-idle".
	Benchmarks map[string]energy.Benchmark `json:"-"`

	Live    energy.Watts `json:"-"` // current meter reading of the node
	HasLive bool         `json:"-"` // whether a fresh reading exists
	// Provisional is the power of jobs that were placed on the node but are not yet included in Live. It is only
	// used together with Live.
	Provisional energy.Watts `json:"-"`
}

// End is the expected end of a job that is running on a node.
type End struct {
	At      time.Time `json:"at"`
	Request Resources `json:"request"`
}

// Facility returns the factor between the power of n and the power at the site's meter: the PUE of the node if set,
// otherwise the PUE of the site, or 1 if the site is unknown.
func (n *Node) Facility() float64 {
	switch {
	case n.PUE > 0:
		return n.PUE
	case n.Site == nil:
		return 1
	}
	return n.Site.pue()
}

// PUEFor returns the factor between the power that j draws on n and the power at the site's meter.
func (n *Node) PUEFor(j *Job) float64 {
	if j.PUE > 0 {
		return j.PUE
	}
	return n.Facility()
}

// Runtime returns how long j will run on n from now on. For a job that is resumed, this is the remaining run time.
func (n *Node) Runtime(j *Job) time.Duration {
	if n.Speed == 0 || n.Speed == 1 {
		return j.Remaining()
	}
	return time.Duration(float64(j.Remaining()) / n.Speed)
}

// Utilisation returns the fraction of n's CPU in use after extra has been placed on it.
func (n *Node) Utilisation(extra Resources) float64 {
	if n.Capacity.MilliCPU <= 0 {
		return 0
	}
	return float64(n.Capacity.MilliCPU-n.Free.MilliCPU+extra.MilliCPU) / float64(n.Capacity.MilliCPU)
}

// cpuPower returns the power of n without its GPUs after extra has been placed on it. The power of the memory
// depends on the memory requested. If the memory capacity of the node is unknown, memory utilisation is assumed to
// equal CPU utilisation.
func (n *Node) cpuPower(extra Resources) energy.Watts {
	u := n.Utilisation(extra)
	if n.Capacity.Memory <= 0 {
		return n.Profile.Power(u)
	}
	used := n.Capacity.Memory - n.Free.Memory + extra.Memory
	return n.Profile.Draw(u, float64(used)/float64(n.Capacity.Memory))
}

// Power returns the power of n with its current jobs, without PUE.
func (n *Node) Power() energy.Watts {
	if n.Jobs == 0 && !n.Awake {
		return n.Profile.Sleep
	}
	return n.Running()
}

// Asleep reports whether n is asleep, or booting and not yet available.
func (n *Node) Asleep() bool {
	return n.Jobs == 0 && !n.Awake && n.Profile != nil && n.Profile.Sleeps()
}

// Room returns the resources that n offers to new jobs when it is awake.
func (n *Node) Room() Resources {
	if n.Free == (Resources{}) && n.Asleep() { // as reported by a simulator
		return n.Capacity
	}
	return n.Free
}

// Running returns the power of n with its current jobs while the node is awake, without PUE.
func (n *Node) Running() energy.Watts {
	return n.cpuPower(Resources{}) + n.gpuPower(n.Capacity.Sub(n.Free))
}

// gpuPower returns the power of the GPUs of n if held is allocated.
func (n *Node) gpuPower(held Resources) energy.Watts {
	if n.Capacity.Devices() == 0 {
		return 0
	}
	return n.Profile.GPUIdle*energy.Watts(n.Capacity.Sub(held).Devices()) +
		n.Profile.GPUMax*energy.Watts(held.Devices())
}

// Place returns a copy of n with one more job of the given request on it.
func (n Node) Place(request Resources) Node {
	n.Free = n.Free.Sub(request)
	n.Jobs++
	return n
}

// spareShare is the fraction of an empty node's idle power that is charged to the first job placed on it, because
// without the job the node might go to sleep. Among identical nodes, jobs are therefore placed on nodes that
// already run jobs. Values up to 0.2 change the energy of the demo by less than 0.01 %; values from 0.5 on cause
// jobs to avoid machines that are powered on anyway, and the total energy increases (docs/decisions/0028).
const spareShare = 0.1

// Marginal returns the expected increase in the power of n when j is placed on it, and the energy needed to wake
// the node.
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

// with returns the power of n after j has been placed on it. GPUs allocated to other jobs are assumed to run at
// full power, because the class of work of these jobs is not known. The power of j's own GPUs depends on its class
// of work.
func (n *Node) with(j *Job) energy.Watts {
	after := n.cpuPower(j.Request)
	if n.Capacity.Devices() > 0 {
		after += n.gpuPower(n.Capacity.Sub(n.Free).Add(j.Request))
		if j.GPUClass != "" {
			after += (n.Profile.GPUPower(j.GPUClass) - n.Profile.GPUMax) * energy.Watts(j.Request.Devices())
		}
	}
	return after
}

// Meets returns a string with one digit per job: 1 if n has the labels that the job selects, otherwise 0. Nodes
// with equal strings satisfy the same selectors.
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
