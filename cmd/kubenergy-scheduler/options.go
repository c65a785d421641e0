package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// options are what the plugins of all profiles share. What differs by profile stands in its plugin's args.
type options struct {
	signals, profiles string
	strategy          string
	policy            sched.Policy
	defaults          kube.Defaults
	maxPods           int
}

func defaultOptions() options {
	return options{
		strategy: "carbon+window",
		policy:   sched.Policy{MaxSignalAge: 2 * time.Hour, MinSaving: 0.01},
		defaults: kube.Defaults{MaxDelay: 24 * time.Hour, ExpectedDuration: time.Hour},
		maxPods:  2000,
	}
}

func (o *options) addFlags(cmd *cobra.Command) {
	fs := pflag.NewFlagSet("kubenergy", pflag.ContinueOnError)
	fs.StringVar(&o.signals, "kubenergy-signals", o.signals, "`file` with sites and their signals, read again when it changes; replace it by rename")
	fs.StringVar(&o.profiles, "kubenergy-profiles", o.profiles, "`file` with power profiles, read again when it changes; replace it by rename")
	fs.StringVar(&o.strategy, "kubenergy-hold-strategy", o.strategy, "strategy that says how long held Jobs and pods wait")
	fs.DurationVar(&o.defaults.AllowedDelay, "kubenergy-default-delay", o.defaults.AllowedDelay, "how long what we hold may wait if it does not say so itself")
	fs.DurationVar(&o.defaults.MaxDelay, "kubenergy-max-delay", o.defaults.MaxDelay, "longest time that anything may be held, whatever it allows (0: no limit)")
	fs.DurationVar(&o.defaults.ExpectedDuration, "kubenergy-expected-duration", o.defaults.ExpectedDuration, "how long work is expected to run if it does not say so itself")
	fs.DurationVar(&o.policy.MaxSignalAge, "kubenergy-max-signal-age", o.policy.MaxSignalAge, "age beyond which a signal is not believed when holding (0: any age)")
	fs.Float64Var(&o.policy.MinSaving, "kubenergy-min-saving", o.policy.MinSaving, "share of the cost of starting at once that a hold must save")
	fs.IntVar(&o.maxPods, "kubenergy-max-held-pods", o.maxPods, "bare pods held at once: each costs the scheduler time at every event of the cluster")
	cmd.Flags().AddFlagSet(fs)

	// kube-scheduler's help knows its own flags only.
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		help(cmd, args)
		fmt.Fprintf(cmd.OutOrStdout(), "\nKubEnergy flags:\n\n%s", fs.FlagUsages())
	})
}

func (o *options) validate() error {
	var errs []error
	if _, err := sched.New(o.strategy); err != nil {
		errs = append(errs, fmt.Errorf("--kubenergy-hold-strategy: %w", err))
	}
	for name, d := range map[string]time.Duration{
		"default-delay": o.defaults.AllowedDelay, "max-delay": o.defaults.MaxDelay, "max-signal-age": o.policy.MaxSignalAge,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--kubenergy-%s is %v: want 0 or more", name, d))
		}
	}
	if o.defaults.ExpectedDuration <= 0 {
		errs = append(errs, fmt.Errorf("--kubenergy-expected-duration is %v: want more than 0", o.defaults.ExpectedDuration))
	}
	if !(o.policy.MinSaving >= 0 && o.policy.MinSaving < 1) {
		errs = append(errs, fmt.Errorf("--kubenergy-min-saving is %v: want 0 or more and less than 1", o.policy.MinSaving))
	}
	if o.maxPods <= 0 {
		errs = append(errs, fmt.Errorf("--kubenergy-max-held-pods is %d: want more than 0", o.maxPods))
	}
	return errors.Join(errs...)
}
