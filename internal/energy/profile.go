package energy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// A Point is one measured pair of utilisation (0 to 1) and power.
type Point struct {
	Utilisation float64 `json:"utilisation"`
	Power       Watts   `json:"watts"`
}

// Profile is the power model of a hardware type: the power of a node at a given CPU utilisation.
//
// With a Curve, power is interpolated linearly between the measured points. Otherwise it is
//
//	P(u) = Idle + (Max − Idle)·u^Exponent
//
// An Exponent of 1 is the linear model; 1.4 in the mirrored form and 3 are common values in the literature; 0
// defaults to 1. A node without jobs draws Sleep, not P(0), because an empty node may be suspended or switched off.
// A node that never sleeps has Sleep equal to P(0). A zero Sleep means that an empty node is off.
type Profile struct {
	Name     string  `json:"name"`
	Idle     Watts   `json:"idleWatts,omitempty"`
	Max      Watts   `json:"maxWatts,omitempty"`
	Exponent float64 `json:"exponent,omitempty"`
	Curve    []Point `json:"curve,omitempty"`
	Sleep    Watts   `json:"sleepWatts"`
	WakeUp   Joules  `json:"wakeUpJoules,omitempty"` // of one boot, in addition to Sleep
	// BootSeconds is the time from the wake-up request until the node can run jobs. If it is 0, waking up is
	// immediate and the node sleeps whenever it is empty.
	BootSeconds float64 `json:"bootSeconds,omitempty"`
	GPUIdle     Watts   `json:"gpuIdleWatts,omitempty"` // of each GPU that is not allocated to a job
	GPUMax      Watts   `json:"gpuMaxWatts,omitempty"`  // of each GPU that is allocated to a job
	// Memory is the part of Max − Idle that memory draws if all of it is in use; 0 with a curve.
	Memory Watts `json:"memoryWatts,omitempty"`

	// GPUClasses maps a class of work to the fraction of GPUMax − GPUIdle that an allocated GPU draws, because
	// inference utilises a GPU less than training does. The fraction of a missing class, including "generic", is 1.
	GPUClasses map[string]float64 `json:"gpuClasses,omitempty"`

	Quality Quality `json:"quality"`
	Source  string  `json:"source,omitempty"` // publication of the numbers
}

// UnmarshalJSON decodes a profile and rejects unknown fields. A profile without sleepWatts never sleeps.
func (p *Profile) UnmarshalJSON(text []byte) error {
	type plain Profile
	aux := struct {
		*plain
		Sleep *Watts `json:"sleepWatts"`
	}{plain: (*plain)(p)}
	if err := strictly(text, &aux); err != nil {
		return fmt.Errorf("reading power profile %q: %w", p.Name, err)
	}
	if p.Sleep = p.Power(0); aux.Sleep != nil {
		p.Sleep = *aux.Sleep
	}
	return p.Validate()
}

// strictly decodes JSON and rejects unknown fields.
func strictly(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// Draw returns the power of a node at utilisation u with a fraction m (0 to 1) of its memory in use.
func (p *Profile) Draw(u, m float64) Watts {
	if p.Memory <= 0 {
		return p.Power(u)
	}
	bare := p.Bare()
	return bare.Power(u) + p.Memory*Watts(min(max(m, 0), 1))
}

// Bare returns the profile without the power of memory beyond idle.
func (p *Profile) Bare() Profile {
	bare := *p
	bare.Max, bare.Memory = p.Max-p.Memory, 0
	return bare
}

// Power returns the power of a node at utilisation u with at least one job, assuming that the fraction of memory in
// use equals that of the CPU. Utilisation is clamped to [0,1]; an overcommitted CPU counts as fully utilised.
func (p *Profile) Power(u float64) Watts {
	switch {
	case !(u > 0): // also NaN
		u = 0
	case u > 1:
		u = 1
	}
	if len(p.Curve) > 0 {
		return interpolate(p.Curve, u)
	}
	if p.Exponent != 0 {
		u = math.Pow(u, p.Exponent)
	}
	return p.Idle + Watts(float64(p.Max-p.Idle)*u)
}

func interpolate(curve []Point, u float64) Watts {
	if u <= curve[0].Utilisation {
		return curve[0].Power
	}
	for i := 1; i < len(curve); i++ {
		if b := curve[i]; u <= b.Utilisation {
			a := curve[i-1]
			share := (u - a.Utilisation) / (b.Utilisation - a.Utilisation)
			return a.Power + Watts(share*float64(b.Power-a.Power))
		}
	}
	return curve[len(curve)-1].Power
}

// BootTime returns the time a machine takes to wake up.
func (p *Profile) BootTime() time.Duration {
	return time.Duration(p.BootSeconds * float64(time.Second))
}

// Booting returns the mean power of a machine during wake-up.
func (p *Profile) Booting() Watts {
	if p.BootSeconds <= 0 {
		return p.Power(0)
	}
	return p.Sleep + Watts(float64(p.WakeUp)/p.BootSeconds)
}

// Sleeps reports whether a machine draws less power when asleep than when idle.
func (p *Profile) Sleeps() bool { return p.Sleep < p.Power(0) }

// GPUPower returns the power of a GPU allocated to a job of the given class of work.
func (p *Profile) GPUPower(class string) Watts {
	if share, ok := p.GPUClasses[class]; ok {
		return p.GPUIdle + Watts(share*float64(p.GPUMax-p.GPUIdle))
	}
	return p.GPUMax
}

const (
	maxBoot     = 3600 // seconds; a longer boot counts as failed
	megawatt    = 1e6  // of one node; higher values indicate another unit
	maxGPUShare = 1.5  // bursts may exceed GPUMax, which is the full-load power in the data sheet
)

// Validate returns an error that lists every problem of p.
func (p *Profile) Validate() error {
	var all faults
	wrong := all.add
	bad := func(field string, v float64) {
		wrong(!(v >= 0) || math.IsInf(v, 0), "%s is %v: want a finite number that is not negative", field, v)
	}
	bad("idle", float64(p.Idle))
	bad("max", float64(p.Max))
	bad("exponent", p.Exponent)
	bad("sleep", float64(p.Sleep))
	bad("wakeUp", float64(p.WakeUp))
	bad("bootSeconds", p.BootSeconds)
	bad("gpuIdle", float64(p.GPUIdle))
	bad("gpuMax", float64(p.GPUMax))
	bad("memory", float64(p.Memory))
	idle, most := float64(p.Power(0)), float64(p.Power(1))
	wrong(len(p.Curve) == 0 && p.Max < p.Idle, "max %v W is below idle %v W", float64(p.Max), float64(p.Idle))
	wrong(float64(p.Sleep) > idle, "sleep %v W is above idle %v W", float64(p.Sleep), idle)
	wrong(p.BootSeconds > maxBoot, "bootSeconds is %v: want at most %d", p.BootSeconds, maxBoot)
	wrong(p.WakeUp > 0 && float64(p.Sleep) == idle, "wakeUp is %v J, but the node never sleeps: sleep is equal to idle",
		float64(p.WakeUp))
	wrong(most > megawatt, "max %v W is above a megawatt", most)
	wrong(float64(p.Memory) > most-idle, "memory %v W is above the difference of idle %v W and max %v W",
		float64(p.Memory), idle, most)
	wrong(p.Memory > 0 && len(p.Curve) > 0, "memory cannot be combined with a curve: want max instead of the curve")
	wrong(p.GPUMax < p.GPUIdle, "gpuMax %v W is below gpuIdle %v W", float64(p.GPUMax), float64(p.GPUIdle))
	for _, class := range slices.Sorted(maps.Keys(p.GPUClasses)) {
		share := p.GPUClasses[class]
		wrong(!(share >= 0 && share <= maxGPUShare), "gpuClasses[%q] is %v: want 0 to %v", class, share, maxGPUShare)
	}
	p.checkCurve(wrong)
	return all.of("power profile %q", p.Name)
}

func (p *Profile) checkCurve(wrong func(ok bool, format string, args ...any)) {
	for i, point := range p.Curve {
		w, u := float64(point.Power), point.Utilisation
		wrong(!(w >= 0) || math.IsInf(w, 0), "curve[%d].watts is %v: want a finite number that is not negative", i, w)
		wrong(!(u >= 0 && u <= 1), "curve[%d].utilisation is %v: want 0 to 1", i, u)
		wrong(i > 0 && !(u > p.Curve[i-1].Utilisation),
			"curve[%d].utilisation is %v: want more than at the previous point", i, u)
	}
}
