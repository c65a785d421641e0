// Command kubenergy-scheduler is kube-scheduler with the plugins KubEnergy, KubEnergyHold and KubEnergySort, and a hold
// loop.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json, as in kube-scheduler
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"github.com/kubenergy/kubenergy/internal/scheduler/app"
)

func main() {
	cmd, wait := app.Command()
	code := cli.Run(cmd)
	wait()
	os.Exit(code)
}
