package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// options are what the plugins of all profiles share. What differs by profile stands in its plugin's args.
type options struct {
	signals, profiles string // files in place of the API server's objects
	defaults          policy.Defaults
	maxPods           int
	releaseRate       float64
	maxRamp           float64 // watts per second
	central           endpoints
}

func defaultOptions() options {
	return options{defaults: policy.BuiltIn(), maxPods: 2000}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.signals, "kubenergy-signals", o.signals,
		"`file` with sites and their signals in place of GridZones, read again when it changes; replace it by rename")
	fs.StringVar(&o.profiles, "kubenergy-profiles", o.profiles,
		"`file` with power profiles in place of PowerProfiles, read again when it changes; replace it by rename")
	fs.StringVar(&o.defaults.When, "kubenergy-hold-rule", o.defaults.When, "what held Jobs and pods wait for if no "+
		"EnergyPolicy says so: window, threshold or another when of docs/strategies.md")
	fs.DurationVar(&o.defaults.AllowedDelay, "kubenergy-default-delay", o.defaults.AllowedDelay,
		"how long what we hold may wait if it does not say so itself")
	fs.DurationVar(&o.defaults.MaxDelay, "kubenergy-max-delay", o.defaults.MaxDelay,
		"longest time that anything may be held, whatever it allows (0: no limit)")
	fs.DurationVar(&o.defaults.ExpectedDuration, "kubenergy-expected-duration", o.defaults.ExpectedDuration,
		"how long work is expected to run if nobody says so (0: an hour)")
	fs.DurationVar(&o.defaults.MaxSignalAge, "kubenergy-max-signal-age", o.defaults.MaxSignalAge,
		"age beyond which a signal is not believed when holding (0: any age)")
	fs.Float64Var(&o.defaults.MinSaving, "kubenergy-min-saving", o.defaults.MinSaving,
		"share of the cost of starting at once that a hold must save")
	fs.IntVar(&o.maxPods, "kubenergy-max-held-pods", o.maxPods,
		"bare pods held at once: each is kept in memory, and written to the API server")
	fs.Float64Var(&o.releaseRate, "kubenergy-release-rate", o.releaseRate, "held Jobs and pods whose windows open "+
		"that are let go in a second at most; deadlines and what is not to wait after all do not count (0: as many "+
		"as the cluster keeps up with)")
	fs.Float64Var(&o.maxRamp, "kubenergy-max-ramp", o.maxRamp, "`watts` by which the expected power of what is let "+
		"go may rise in a second, such as 500; deadlines do not count (0: any)")
	o.central.addFlags(fs)
}

func (o *options) validate() error {
	var errs []error
	if _, whens := sched.Names(); !slices.Contains(whens, o.defaults.When) {
		errs = append(errs, fmt.Errorf("--kubenergy-hold-rule is %q: want one of %s", o.defaults.When,
			strings.Join(whens, ", ")))
	}
	for name, d := range map[string]time.Duration{
		"default-delay": o.defaults.AllowedDelay, "max-delay": o.defaults.MaxDelay,
		"expected-duration": o.defaults.ExpectedDuration, "max-signal-age": o.defaults.MaxSignalAge,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--kubenergy-%s is %v: want 0 or more", name, d))
		}
	}
	if !(o.defaults.MinSaving >= 0 && o.defaults.MinSaving < 1) {
		errs = append(errs, fmt.Errorf("--kubenergy-min-saving is %v: want 0 or more and less than 1",
			o.defaults.MinSaving))
	}
	if o.maxPods <= 0 {
		errs = append(errs, fmt.Errorf("--kubenergy-max-held-pods is %d: want more than 0", o.maxPods))
	}
	for name, limit := range map[string]float64{"release-rate": o.releaseRate, "max-ramp": o.maxRamp} {
		if !(limit >= 0) || math.IsInf(limit, 1) {
			errs = append(errs, fmt.Errorf("--kubenergy-%s is %v: want 0 or more", name, limit))
		}
	}
	return errors.Join(errs...)
}
