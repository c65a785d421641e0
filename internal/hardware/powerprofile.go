package hardware

import (
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// FromPowerProfile converts a PowerProfile to a power model and the PUE of its nodes, or 0 for the PUE of the site.
// A profile without sleepWatts never sleeps. Benchmarks are not part of a power model; see [Benchmarks].
func FromPowerProfile(o *v1alpha1.PowerProfile) (p *energy.Profile, pue float64, err error) {
	s := &o.Spec
	p = &energy.Profile{
		Name: o.Name, Idle: energy.Watts(s.IdleWatts), Max: energy.Watts(s.MaxWatts), Exponent: s.Exponent,
		WakeUp: energy.Joules(s.WakeUpJoules), BootSeconds: s.BootSeconds, GPUIdle: energy.Watts(s.GPUIdleWatts),
		GPUMax: energy.Watts(s.GPUMaxWatts), Memory: energy.Watts(s.MemoryWatts),
		GPUClasses: maps.Clone(s.GPUClasses), Source: s.Source,
	}
	for _, point := range s.Curve {
		p.Curve = append(p.Curve, energy.Point{Utilisation: point.Utilisation, Power: energy.Watts(point.Watts)})
	}
	if s.Quality != "" { // defaults to estimated
		if err := p.Quality.UnmarshalText([]byte(s.Quality)); err != nil {
			return nil, 0, fmt.Errorf("power profile %q: %w", o.Name, err)
		}
	}
	if p.Sleep = p.Power(0); s.SleepWatts != nil {
		p.Sleep = energy.Watts(*s.SleepWatts)
	}
	if err := p.Validate(); err != nil {
		return nil, 0, err
	}
	if s.PUE != nil {
		if pue = *s.PUE; !validPUE(pue) {
			return nil, 0, fmt.Errorf("power profile %q: pue is %v: want 1 to %d", o.Name, pue, maxPUE)
		}
	}
	return p, pue, nil
}

// Benchmarks returns the benchmarks of a PowerProfile by class.
func Benchmarks(o *v1alpha1.PowerProfile) map[string]energy.Benchmark {
	if len(o.Spec.Benchmarks) == 0 {
		return nil
	}
	all := make(map[string]energy.Benchmark, len(o.Spec.Benchmarks))
	for _, b := range o.Spec.Benchmarks {
		all[b.Class] = energy.Benchmark{Rate: b.Rate, Power: energy.Watts(b.Watts), Idle: energy.Watts(b.IdleWatts)}
	}
	return all
}

// ToPowerProfile is the inverse of [FromPowerProfile]. A PUE of 0 is omitted.
func ToPowerProfile(p *energy.Profile, pue float64) *v1alpha1.PowerProfile {
	o := &v1alpha1.PowerProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PowerProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: v1alpha1.PowerProfileSpec{
			IdleWatts: float64(p.Idle), MaxWatts: float64(p.Max), Exponent: p.Exponent, WakeUpJoules: float64(p.WakeUp),
			BootSeconds:  p.BootSeconds,
			GPUIdleWatts: float64(p.GPUIdle), GPUMaxWatts: float64(p.GPUMax), GPUClasses: maps.Clone(p.GPUClasses),
			MemoryWatts: float64(p.Memory),
			Quality:     p.Quality.String(), Source: p.Source,
		},
	}
	for _, point := range p.Curve {
		o.Spec.Curve = append(o.Spec.Curve, v1alpha1.CurvePoint{
			Utilisation: point.Utilisation, Watts: float64(point.Power),
		})
	}
	if p.Sleep != p.Power(0) {
		o.Spec.SleepWatts = new(float64(p.Sleep))
	}
	if pue > 0 {
		o.Spec.PUE = &pue
	}
	return o
}
