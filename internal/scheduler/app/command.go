package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	stock "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
	"github.com/kubenergy/kubenergy/internal/scheduler/parking"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// Command returns the command of kube-scheduler with additional plugins and flags, and a function that waits for
// the goroutines that it started. It does not use the original command of kube-scheduler, because that does not
// allow replacing the queue between building and running the scheduler.
func Command() (cmd *cobra.Command, wait func()) {
	ours := &shared{
		options: defaultOptions(), log: slog.New(logr.ToSlogHandler(klog.Background().WithName("kubenergy"))),
	}
	opts := stock.NewOptions()
	cmd = &cobra.Command{
		Use: "kubenergy-scheduler",
		Long: "kube-scheduler with plugins that run work where and when it costs the least energy, carbon and " +
			"money.\nThe documentation of kube-scheduler applies. The plugins are enabled in its configuration " +
			"file.",
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if arg != "" { // as in kube-scheduler, because a variable in a manifest may expand to an empty string
					return fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := ours.options.validate(); err != nil { // validate before connecting to the cluster
				return err
			}
			return run(cmd, opts, ours)
		},
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	ours.options.addFlags(sets.FlagSet("KubEnergy"))
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, width)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	return cmd, ours.wait
}

// Max number of open connections to the endpoints /livez and /metrics, in total and per client.
const maxConnections, maxPerPeer = 512, 32

// run runs the scheduler until it receives a termination signal. Feature gates are set first, because logging and
// other components depend on them.
func run(cmd *cobra.Command, opts *stock.Options, ours *shared) error {
	globals := opts.ComponentGlobalsRegistry
	if err := globals.Set(); err != nil {
		return err
	}
	gates := globals.FeatureGateFor(compatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return err
	}
	cliflag.PrintFlags(cmd.Flags())

	var plugins []app.Option
	for name, factory := range place.NewLate(ours.start) {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	ctx, cancel := context.WithCancel(server.SetupSignalContext())
	defer cancel() // also stops background tasks if the scheduler cannot be built or run
	config, scheduler, err := app.Setup(ctx, opts, plugins...)
	if err != nil {
		return err
	}
	if serving := config.SecureServing; serving != nil {
		serving.Listener = daemon.Limit(serving.Listener, maxConnections, maxPerPeer)
	}
	parking.Install(scheduler)
	if err := fallback.Install(scheduler); err != nil {
		return err
	}
	running := letFinish(ctx, config.LeaderElection, ours.wait)
	gates.(featuregate.MutableFeatureGate).AddMetrics()
	globals.AddMetrics()
	return app.Run(running, config, scheduler)
}
