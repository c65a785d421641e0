package sim

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// LiveFile configures the live power of nodes as seen by strategies.
type LiveFile struct {
	Disabled bool   `json:"disabled,omitempty"` // no live power
	Period   string `json:"period,omitempty"`   // of meter readings; "0s" for an ideal meter
	MaxAge   string `json:"maxAge,omitempty"`   // older readings are ignored; "0s" for any age
}

// Default values, which are the same as in a cluster.
const (
	livePeriod = 15 * time.Second
	liveMaxAge = 45 * time.Second
)

// jobClass is the class of work of all jobs of a scenario file.
const jobClass = "scenario"

// loadLive configures meters and benchmarks. They only affect strategies that use them.
func (f *File) loadLive(s *Scenario) error {
	s.Live = Live{Off: f.Live.Disabled, Period: livePeriod, MaxAge: liveMaxAge}
	if err := cmp.Or(duration(&s.Live.Period, f.Called("live.period"), f.Live.Period),
		duration(&s.Live.MaxAge, f.Called("live.maxAge"), f.Live.MaxAge)); err != nil {
		return err
	}
	named := map[string]bool{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		b, ok := f.Benchmarks[n.Name]
		if profile, known := f.Benchmarks[n.Profile.Name]; !ok && known {
			b, ok = profile, true
			named[n.Profile.Name] = true
		}
		named[n.Name] = true
		if !ok {
			b = modelled(n)
		}
		n.Benchmarks = map[string]energy.Benchmark{jobClass: b}
	}
	for name := range f.Benchmarks {
		if !named[name] {
			return f.fault("benchmarks: %q is neither a node nor a power profile of a node", name)
		}
	}
	for i := range s.Jobs {
		s.Jobs[i].Class = jobClass
	}
	return nil
}

// modelled returns the benchmark result of a node according to the simulator's own model, with all of its cores and
// GPUs in use.
func modelled(n *sched.Node) energy.Benchmark {
	gpus := energy.Watts(n.Capacity.Devices())
	return energy.Benchmark{
		Rate:  cmp.Or(n.Speed, 1) * float64(n.Capacity.MilliCPU) / 1000,
		Power: n.Profile.Power(1) + gpus*n.Profile.GPUMax, Idle: n.Profile.Power(0) + gpus*n.Profile.GPUIdle,
	}
}
