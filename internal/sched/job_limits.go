package sched

import (
	"fmt"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Limits are what the grid must keep to before a job starts, as the when "threshold" understands it. Where several are
// given, all must be kept. The zero Limits ask for nothing.
type Limits struct {
	Carbon     grid.Intensity // at most this; 0: no such limit
	Percentile float64        // at most this quantile of the site's own next day, above 0 and below 1; 0: no such limit
	Price      grid.Price     // at most this, if HasPrice
	HasPrice   bool
	NoCarbon   bool // carbon does not count at all, neither as a limit nor as a cost; its signal need not exist
}

// limitsCarbon reports whether a start depends on carbon intensity.
func (l *Limits) limitsCarbon() bool { return !l.NoCarbon && (l.Carbon > 0 || l.Percentile > 0) }

// Admits reports whether n may run j under a limit of power and one of efficiency, and if not, why, with the numbers. A
// limit of 0 is none.
//
// The power is what the facility draws for the node at full load: the CPU's, and that of all its GPUs at what j's class
// of work makes of them, times the PUE. The efficiency is cores per watt of the CPU's full load, PUE included; GPUs are
// left out of it, since they are no cores. Neither depends on what runs on n now.
//
// A node without a power profile is admitted: what is not known must not make a job unschedulable.
func (j *Job) Admits(n *Node, maxPower energy.Watts, minEfficiency float64) (why string, ok bool) {
	if n.Profile == nil {
		return "", true
	}
	pue := n.PUEFor(j)
	cpu := energy.Watts(pue) * n.Profile.Power(1)
	if maxPower > 0 {
		full := cpu + energy.Watts(pue*float64(n.Capacity.GPU))*n.Profile.GPUPower(j.GPUClass)
		if full > maxPower {
			return fmt.Sprintf("draws up to %.4g W, PUE of %.4g included: want at most %.4g W", float64(full), pue,
				float64(maxPower)), false
		}
	}
	if minEfficiency > 0 {
		if efficiency, known := n.efficiency(pue); known && efficiency < minEfficiency {
			return fmt.Sprintf("has %.3g cores per watt at full load, PUE of %.4g included: want at least %.3g",
				efficiency, pue, minEfficiency), false
		}
	}
	return "", true
}

// Efficiency returns the cores per watt of n at full load, PUE included, which the limit of efficiency is compared
// with. ok is false where it is not known: n has no power profile, or one that draws nothing, or no cores.
func (n *Node) Efficiency() (coresPerWatt float64, ok bool) { return n.efficiency(n.Facility()) }

func (n *Node) efficiency(pue float64) (coresPerWatt float64, ok bool) {
	if n.Profile == nil || n.Capacity.MilliCPU <= 0 {
		return 0, false
	}
	full := pue * float64(n.Profile.Power(1))
	return float64(n.Capacity.MilliCPU) / 1000 / full, full > 0
}
