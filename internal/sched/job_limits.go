package sched

import (
	"fmt"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Limits are the conditions on grid signals for starting a job with the start rule "threshold". All limits that are
// set must be met. The zero value imposes no limits.
type Limits struct {
	Carbon     grid.Intensity // maximum intensity; 0 means no limit
	Percentile float64        // quantile of the site's next 24 hours, between 0 and 1; 0 means no limit
	Price      grid.Price     // maximum price, if HasPrice is set
	HasPrice   bool
	NoCarbon   bool // ignore carbon, both as a limit and as a cost; no carbon signal is needed
}

// limitsCarbon reports whether the start depends on the carbon intensity.
func (l *Limits) limitsCarbon() bool { return !l.NoCarbon && (l.Carbon > 0 || l.Percentile > 0) }

// Admits reports whether j may run on n under a limit on power and a limit on efficiency, and if not, returns the
// reason with the numbers. A limit of 0 means no limit.
//
// The power is the facility's power for the node at full load: the power of the CPU and of all GPUs running j's
// class of work, multiplied by the PUE. The efficiency is the number of cores per watt at full CPU load, including
// PUE. GPUs are not considered in the efficiency, because they have no cores to count. Neither value depends on the
// jobs that are running on n.
//
// A node without a power profile is admitted, because missing data must not make a job unschedulable.
func (j *Job) Admits(n *Node, maxPower energy.Watts, minEfficiency float64) (why string, ok bool) {
	if n.Profile == nil {
		return "", true
	}
	pue := n.PUEFor(j)
	cpu := energy.Watts(pue) * n.Profile.Power(1)
	if maxPower > 0 {
		full := cpu + energy.Watts(pue*n.Capacity.Devices())*n.Profile.GPUPower(j.GPUClass)
		if full > maxPower {
			return fmt.Sprintf("draws up to %.4g W including a PUE of %.4g: want at most %.4g W", float64(full), pue,
				float64(maxPower)), false
		}
	}
	if minEfficiency > 0 {
		if efficiency, known := n.efficiency(pue); known && efficiency < minEfficiency {
			return fmt.Sprintf("has %.3g cores per watt at full load, including a PUE of %.4g: want at least %.3g",
				efficiency, pue, minEfficiency), false
		}
	}
	return "", true
}

// Efficiency returns the number of cores per watt of n at full load, including PUE. The minimum efficiency is
// compared with this value. It returns false if n has no power profile, no power at full load, or no cores.
func (n *Node) Efficiency() (coresPerWatt float64, ok bool) { return n.efficiency(n.Facility()) }

func (n *Node) efficiency(pue float64) (coresPerWatt float64, ok bool) {
	if n.Profile == nil || n.Capacity.MilliCPU <= 0 {
		return 0, false
	}
	full := pue * float64(n.Profile.Power(1))
	return float64(n.Capacity.MilliCPU) / 1000 / full, full > 0
}
