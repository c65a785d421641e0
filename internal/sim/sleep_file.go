package sim

import (
	"cmp"

	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// SleepFile configures the sleep of machines with a boot time in their power profiles.
type SleepFile struct {
	Headroom     *float64 `json:"headroom,omitempty"`     // free fraction of the used capacity; default: 0.1
	MinAwake     int      `json:"minAwake,omitempty"`     // minimum number of awake machines per site
	After        string   `json:"after,omitempty"`        // minimum empty time; default: break-even time of a boot
	MaxCycles    *int     `json:"maxCycles,omitempty"`    // maximum per 24 hours; 0 for no limit; default: 12
	Lead         string   `json:"lead,omitempty"`         // time before a planned start; default: 30s
	BootFailures *float64 `json:"bootFailures,omitempty"` // fraction; default: 0.02
	// WakesPerMinute is the maximum number of machines to wake within a minute; 0 for no limit; default: 60.
	WakesPerMinute *int `json:"wakesPerMinute,omitempty"`
}

// bootFailures is one in fifty boots. There are no published figures for servers, and the rate is too high to
// ignore.
const bootFailures = 0.02

// loadSleep configures the sleep of machines.
func (f *File) loadSleep(s *Scenario) error {
	p := sleep.DefaultPolicy()
	s.Sleep = SleepRules{Policy: p, BootFailures: *cmp.Or(f.Sleep.BootFailures, new(bootFailures))}
	s.Sleep.Headroom = *cmp.Or(f.Sleep.Headroom, &p.Headroom)
	s.Sleep.MaxCycles = *cmp.Or(f.Sleep.MaxCycles, &p.MaxCycles)
	s.Sleep.WakesPerMinute = *cmp.Or(f.Sleep.WakesPerMinute, &p.WakesPerMinute)
	s.Sleep.MinAwake = f.Sleep.MinAwake
	r := &s.Sleep
	return cmp.Or(
		duration(&r.After, f.Called("sleep.after"), f.Sleep.After),
		duration(&r.Lead, f.Called("sleep.lead"), f.Sleep.Lead),
		f.want(r.Headroom >= 0 && r.Headroom <= 10, "sleep.headroom is %v: want 0 to 10", r.Headroom),
		f.want(r.BootFailures >= 0 && r.BootFailures <= 0.9, "sleep.bootFailures is %v: want 0 to 0.9", r.BootFailures),
		f.want(min(r.MinAwake, r.MaxCycles, r.WakesPerMinute) >= 0,
			"sleep.minAwake, sleep.maxCycles and sleep.wakesPerMinute are %d, %d and %d: want 0 or more",
			r.MinAwake, r.MaxCycles, r.WakesPerMinute),
	)
}
