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
		"`file` with sites and signals that replaces GridZones; reloaded when it is replaced by rename")
	fs.StringVar(&o.profiles, "kubenergy-profiles", o.profiles,
		"`file` with power profiles that replaces PowerProfiles; reloaded when it is replaced by rename")
	fs.StringVar(&o.defaults.When, "kubenergy-hold-rule", o.defaults.When, "hold rule of Jobs and pods if no "+
		"EnergyPolicy sets it: guarded, plan, window, capacity or another rule in docs/reference/strategies.md")
	fs.DurationVar(&o.defaults.AllowedDelay, "kubenergy-default-delay", o.defaults.AllowedDelay,
		"default allowed delay of held Jobs and pods")
	fs.DurationVar(&o.defaults.MaxDelay, "kubenergy-max-delay", o.defaults.MaxDelay,
		"maximum delay of any Job or pod, e.g. 6h (0: no limit)")
	fs.DurationVar(&o.defaults.ExpectedDuration, "kubenergy-expected-duration", o.defaults.ExpectedDuration,
		"default expected duration of work (0: an hour)")
	fs.DurationVar(&o.defaults.MaxSignalAge, "kubenergy-max-signal-age", o.defaults.MaxSignalAge,
		"maximum age of a signal that is used for holds (0: any age)")
	fs.Float64Var(&o.defaults.MinSaving, "kubenergy-min-saving", o.defaults.MinSaving,
		"minimum saving of a hold as a fraction of the cost of an immediate start")
	fs.Float64Var(&o.defaults.MinSavingPerHour, "kubenergy-min-saving-per-hour", o.defaults.MinSavingPerHour,
		"minimum saving per hour of waiting as a fraction of the cost of an immediate start, "+
			"for the rules guarded, plan and window")
	fs.Float64Var((*float64)(&o.defaults.MinSavingGrams), "kubenergy-min-saving-grams",
		float64(o.defaults.MinSavingGrams), "minimum saving of a hold in gCO2e, for the rules guarded, "+
			"plan and window")
	fs.IntVar(&o.maxPods, "kubenergy-max-held-pods", o.maxPods,
		"maximum number of held bare pods (each is kept in memory and written to the API server)")
	fs.Float64Var(&o.releaseRate, "kubenergy-release-rate", o.releaseRate, "maximum number of held Jobs and "+
		"pods that are released per second when their windows open, not counting deadlines and work that must not "+
		"wait (0: as many as the cluster can start)")
	fs.Float64Var(&o.maxRamp, "kubenergy-max-ramp", o.maxRamp, "maximum increase of the expected power of "+
		"released work per second in `watts`, e.g. 500, not counting deadlines (0: no limit)")
	fs.StringVar(&o.recordPlans, "kubenergy-record-plans", o.recordPlans, "`file` to which joint plans of all held "+
		"work are appended with their inputs, one line of JSON per plan that differs from the previous one; - is "+
		"standard output")
	o.controller.addFlags(fs)
}

func (o *options) validate() error {
	var errs []error
	check := func(ok bool, flag string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("--kubenergy-%s is %v: want %s", flag, value, want))
		}
	}
	_, whens := strategy.Names()
	d := &o.defaults
	check(slices.Contains(whens, d.When), "hold-rule", strconv.Quote(d.When), "one of "+strings.Join(whens, ", "))
	check(d.AllowedDelay >= 0, "default-delay", d.AllowedDelay, "0 or more")
	check(d.MaxDelay >= 0, "max-delay", d.MaxDelay, "0 or more")
	check(d.ExpectedDuration >= 0, "expected-duration", d.ExpectedDuration, "0 or more")
	check(d.MaxSignalAge >= 0, "max-signal-age", d.MaxSignalAge, "0 or more")
	check(d.MinSaving >= 0 && d.MinSaving < 1, "min-saving", d.MinSaving, "0 or more and less than 1")
	check(d.MinSavingPerHour >= 0 && d.MinSavingPerHour < 1, "min-saving-per-hour", d.MinSavingPerHour,
		"0 or more and less than 1")
	check(d.MinSavingGrams >= 0 && !math.IsInf(float64(d.MinSavingGrams), 1), "min-saving-grams", d.MinSavingGrams,
		"0 or more")
	check(o.maxPods > 0, "max-held-pods", o.maxPods, "more than 0")
	check(o.releaseRate >= 0 && !math.IsInf(o.releaseRate, 1), "release-rate", o.releaseRate, "0 or more")
	check(o.maxRamp >= 0 && !math.IsInf(o.maxRamp, 1), "max-ramp", o.maxRamp, "0 or more")
	return errors.Join(errs...)
}
