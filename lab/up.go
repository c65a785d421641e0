package lab

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func newUp() *cobra.Command {
	var o commandFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster with KubEnergy's scheduler and keep it until interrupted",
		Long: `Start a control plane, simulated nodes and KubEnergy's scheduler, print a kubeconfig for kubectl, and stay until
interrupted. Pods that name the scheduler "kubenergy" are served by the shipped profile. Signals and power profiles
are files in the folder; edit them and the scheduler follows. Signals run in real time from the start of the trace.`,
		Example: "  kubenergy-lab up --nodes demo24\n  kubectl --kubeconfig out/lab/cluster/kubeconfig get nodes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.up(cmd) },
	}
	o.inputFlags(cmd)
	return cmd
}

func (o *commandFlags) up(cmd *cobra.Command) error {
	dir := o.dir
	if dir == "" {
		dir = filepath.Join("out", "lab")
	}
	file, err := o.bundled(dir)
	if err != nil {
		return err
	}
	scenario, err := o.scenario(file)
	if err != nil {
		return usageError{err}
	}
	return withCluster(cmd, dir, func(ctx context.Context, c *Cluster) error {
		r := &Replay{Cluster: c, Scenario: scenario, Factor: 1}
		if err := r.addNodes(ctx); err != nil {
			return err
		}
		clock := Clock{Trace: scenario.Start, Wall: time.Now(), Factor: 1}
		stop, err := startScheduling(ctx, c, dir, scenario, clock, nil)
		if err != nil {
			return err
		}
		defer stop()
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%d nodes are ready. Pods with schedulerName: kubenergy are scheduled by KubEnergy.\n", len(scenario.Nodes))
		fmt.Fprintf(out, "  kubectl --kubeconfig %s get nodes\n", c.Kubeconfig())
		fmt.Fprintf(out, "Signals and power profiles: %s, %s\nInterrupt to stop.\n",
			filepath.Join(dir, "signals.yaml"), filepath.Join(dir, "profiles.yaml"))
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return errors.New("a part of the control plane ended: see " + filepath.Join(dir, "cluster", "lab.log"))
		}
	})
}
