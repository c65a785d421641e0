// Command kubenergy-scheduler is kube-scheduler with the plugins KubEnergy and KubEnergyHold and one hold loop.
package main

import (
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json, as in stock
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/kubenergy/kubenergy/kube/plugin"
)

func main() {
	cmd, wait := command()
	code := cli.Run(cmd)
	wait()
	os.Exit(code)
}

// command returns kube-scheduler's own command with our plugins and flags, and what waits for the goroutines that it
// has started.
func command() (cmd *cobra.Command, wait func()) {
	shared := &shared{options: defaultOptions(), log: slog.New(logr.ToSlogHandler(klog.Background().WithName("kubenergy")))}
	var plugins []app.Option
	for name, factory := range plugin.NewLate(shared.start) {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	cmd = app.NewSchedulerCommand(plugins...)
	cmd.Use = "kubenergy-scheduler"
	cmd.Long = "kube-scheduler, with plugins that run work where and when it costs the least energy, carbon and money.\n" +
		"Everything that kube-scheduler's documentation says holds; the plugins are enabled in its configuration file."
	shared.options.addFlags(cmd)
	return cmd, shared.wait
}
