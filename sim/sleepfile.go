package sim

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/sched/sleep"
)

// SleepFile says how machines sleep whose power profiles give a boot time.
type SleepFile struct {
	Headroom     *float64 `json:"headroom,omitempty"`     // share of what is in use that stays free; default: 0.1
	MinAwake     int      `json:"minAwake,omitempty"`     // machines of each site
	After        string   `json:"after,omitempty"`        // least time empty; default: until a boot is won back
	MaxCycles    *int     `json:"maxCycles,omitempty"`    // in 24 hours; 0: any number; default: 12
	Lead         string   `json:"lead,omitempty"`         // before a planned start; default: 30s
	BootFailures *float64 `json:"bootFailures,omitempty"` // share; default: 0.02
	// WakesPerMinute is the maximum number of machines ordered to wake within a minute; 0: no limit; default: 60.
	WakesPerMinute *int `json:"wakesPerMinute,omitempty"`
}

// bootFailures is one boot in fifty: no figure for servers is published, and none fails seldom enough to leave it out.
const bootFailures = 0.02

// loadSleep sets how machines sleep.
func (f *File) loadSleep(s *Scenario) error {
	p := sleep.DefaultPolicy()
	s.Sleep = SleepRules{Policy: p, BootFailures: *cmp.Or(f.Sleep.BootFailures, new(bootFailures))}
	s.Sleep.Headroom = *cmp.Or(f.Sleep.Headroom, &p.Headroom)
	s.Sleep.MaxCycles = *cmp.Or(f.Sleep.MaxCycles, &p.MaxCycles)
	s.Sleep.WakesPerMinute = *cmp.Or(f.Sleep.WakesPerMinute, &p.WakesPerMinute)
	s.Sleep.MinAwake = f.Sleep.MinAwake
	for _, d := range [...]struct {
		field, text string
		to          *time.Duration
	}{{"after", f.Sleep.After, &s.Sleep.After}, {"lead", f.Sleep.Lead, &s.Sleep.Lead}} {
		var err error
		if *d.to, err = duration(f.Called("sleep."+d.field), d.text, *d.to); err != nil {
			return err
		}
	}
	for _, share := range [...]struct {
		field string
		value float64
		most  float64
	}{{"headroom", s.Sleep.Headroom, 10}, {"bootFailures", s.Sleep.BootFailures, 0.9}} {
		if !(share.value >= 0 && share.value <= share.most) {
			return f.fault("sleep.%s is %v: want 0 to %v", share.field, share.value, share.most)
		}
	}
	if s.Sleep.MinAwake < 0 || s.Sleep.MaxCycles < 0 || s.Sleep.WakesPerMinute < 0 {
		return f.fault("sleep.minAwake, sleep.maxCycles and sleep.wakesPerMinute are %d, %d and %d: want 0 or more",
			s.Sleep.MinAwake, s.Sleep.MaxCycles, s.Sleep.WakesPerMinute)
	}
	return nil
}
