package app

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// options are the options that the plugins of all profiles share. Options of a single profile are arguments of its
// plugin.
type options struct {
	signals, profiles string // files that replace the objects of the API server
	recordPlans       string // file name; empty if plans are not recorded
	defaults          policy.Defaults
	maxPods           int
	releaseRate       float64
	maxRamp           float64 // in watts per second
	controller        endpoints
}

func defaultOptions() options { return options{defaults: policy.BuiltIn(), maxPods: 2000} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.signals, "kubenergy-signals", o.signals,
		"`file` with sites and their signals in place of GridZones, read again when it changes; replace it by rename")
	fs.StringVar(&o.profiles, "kubenergy-profiles", o.profiles,
		"`file` with power profiles in place of PowerProfiles, read again when it changes; replace it by rename")
	fs.StringVar(&o.defaults.When, "kubenergy-hold-rule", o.defaults.When, "what held Jobs and pods wait for if no "+
		"EnergyPolicy says so: window, plan, threshold or another when of docs/reference/strategies.md")
	fs.DurationVar(&o.defaults.AllowedDelay, "kubenergy-default-delay", o.defaults.AllowedDelay,
		"how long what we hold may wait if it does not say so itself")
	fs.DurationVar(&o.defaults.MaxDelay, "kubenergy-max-delay", o.defaults.MaxDelay,
		"longest time that anything may be held, whatever it allows (0: no limit)")
	fs.DurationVar(&o.defaults.ExpectedDuration, "kubenergy-expected-duration", o.defaults.ExpectedDuration,
		"how long work is expected to run if nothing says so (0: an hour)")
	fs.DurationVar(&o.defaults.MaxSignalAge, "kubenergy-max-signal-age", o.defaults.MaxSignalAge,
		"age beyond which a signal is not believed when holding (0: any age)")
	fs.Float64Var(&o.defaults.MinSaving, "kubenergy-min-saving", o.defaults.MinSaving,
		"share of the cost of starting at once that a hold must save")
	fs.Float64Var(&o.defaults.MinSavingPerHour, "kubenergy-min-saving-per-hour", o.defaults.MinSavingPerHour,
		"share of that cost that each hour of waiting must save, with the rules window and plan")
	fs.Float64Var((*float64)(&o.defaults.MinSavingGrams), "kubenergy-min-saving-grams",
		float64(o.defaults.MinSavingGrams), "gCO2e that a hold must save, with the rules window and plan")
	fs.IntVar(&o.maxPods, "kubenergy-max-held-pods", o.maxPods,
		"bare pods held at once: each is kept in memory, and written to the API server")
	fs.Float64Var(&o.releaseRate, "kubenergy-release-rate", o.releaseRate, "held Jobs and pods whose windows open "+
		"that are let go in a second at most; deadlines and what is not to wait after all do not count (0: as many "+
		"as the cluster keeps up with)")
	fs.Float64Var(&o.maxRamp, "kubenergy-max-ramp", o.maxRamp, "`watts` by which the expected power of what is let "+
		"go may rise in a second, such as 500; deadlines do not count (0: any)")
	fs.StringVar(&o.recordPlans, "kubenergy-record-plans", o.recordPlans, "`file` to append plans over all that is "+
		"held to, with all that they depend on, a line of JSON for each that differs from the one before; - is "+
		"standard output")
	o.controller.addFlags(fs)
}

func (o *options) validate() error {
	var errs []error
	_, whens := strategy.Names()
	d := &o.defaults
	for _, flag := range []struct {
		ok    bool
		name  string
		value any
		want  string
	}{
		{slices.Contains(whens, d.When), "hold-rule", strconv.Quote(d.When), "one of " + strings.Join(whens, ", ")},
		{d.AllowedDelay >= 0, "default-delay", d.AllowedDelay, "0 or more"},
		{d.MaxDelay >= 0, "max-delay", d.MaxDelay, "0 or more"},
		{d.ExpectedDuration >= 0, "expected-duration", d.ExpectedDuration, "0 or more"},
		{d.MaxSignalAge >= 0, "max-signal-age", d.MaxSignalAge, "0 or more"},
		{d.MinSaving >= 0 && d.MinSaving < 1, "min-saving", d.MinSaving, "0 or more and less than 1"},
		{
			d.MinSavingPerHour >= 0 && d.MinSavingPerHour < 1, "min-saving-per-hour", d.MinSavingPerHour,
			"0 or more and less than 1",
		},
		{
			d.MinSavingGrams >= 0 && !math.IsInf(float64(d.MinSavingGrams), 1), "min-saving-grams", d.MinSavingGrams,
			"0 or more",
		},
		{o.maxPods > 0, "max-held-pods", o.maxPods, "more than 0"},
		{o.releaseRate >= 0 && !math.IsInf(o.releaseRate, 1), "release-rate", o.releaseRate, "0 or more"},
		{o.maxRamp >= 0 && !math.IsInf(o.maxRamp, 1), "max-ramp", o.maxRamp, "0 or more"},
	} {
		if !flag.ok {
			errs = append(errs, fmt.Errorf("--kubenergy-%s is %v: want %s", flag.name, flag.value, flag.want))
		}
	}
	return errors.Join(errs...)
}
