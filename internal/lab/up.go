package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

func newUp() *cobra.Command {
	var o commandFlags
	var stock, bare bool
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster with or without KubEnergy's scheduler until interrupted",
		Long: `Start a control plane, simulated nodes and KubEnergy's scheduler, print a kubeconfig for
kubectl, and run until interrupted. Pods with the schedulerName "kubenergy" are scheduled by the shipped profile.
Signals and power profiles are files in the directory; the scheduler reloads them after changes. Signals start at
the beginning of the trace and advance in real time.

With --stock, the cluster only has nodes of a cloud and the stock scheduler, without any part of KubEnergy. KubEnergy
can be installed with its Helm chart: pods with its images run as processes on this machine, using the binaries in
the directory of this one. All other pods are simulated.`,
		Example: "  kubenergy-lab up --nodes demo24\n  kubenergy-lab up --stock\n  kubenergy-lab kubectl get nodes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stock || bare {
				return o.upStock(cmd, bare)
			}
			return o.up(cmd)
		},
	}
	o.inputFlags(cmd)
	cmd.Flags().BoolVar(&stock, "stock", false,
		"start only nodes and the stock scheduler, so that KubEnergy can be installed with Helm")
	cmd.Flags().BoolVar(&bare, "bare", false,
		"install only the CRDs, without nodes and schedulers, for use by kubenergy experiment")
	cmd.MarkFlagsMutuallyExclusive("stock", "bare")
	return cmd
}

func (o *commandFlags) up(cmd *cobra.Command) error {
	dir := cmp.Or(o.dir, defaultDir)
	o.over.EmptyNodes = sim.EmptyNodesIdle // no component puts them to sleep
	file, err := o.bundled(dir)
	if err != nil {
		return err
	}
	scenario, err := o.scenario(file)
	if err != nil {
		return usageError{err}
	}
	return withCluster(cmd, dir, kubelet.Programs{}, func(ctx context.Context, c *Cluster) error {
		if err := c.AddNodes(ctx, sliceutil.Map(sliceutil.Refs(scenario.Nodes), NodeSpecOf)); err != nil {
			return err
		}
		clock := Clock{Trace: scenario.Start, Wall: time.Now(), Factor: 1}
		scheduling, err := newScheduling(c, dir, scenario, clock, nil)
		if err != nil {
			return err
		}
		stop, err := scheduling.Start(ctx, c)
		if err != nil {
			return err
		}
		defer stop()
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%d nodes are ready. Pods with schedulerName: kubenergy are scheduled by KubEnergy.\n",
			len(scenario.Nodes))
		fmt.Fprintf(out, "  eval \"$(%s env --dir %s)\"   # kubectl and kubenergy then use this cluster\n", os.Args[0],
			dir)
		fmt.Fprintf(out, "Signals and power profiles: %s, %s\nInterrupt to stop.\n",
			filepath.Join(dir, "signals.yaml"), filepath.Join(dir, "profiles.yaml"))
		return c.stay(ctx)
	})
}

// stay marks the cluster as ready and waits. It returns nil when ctx is cancelled, or an error when the cluster
// ends.
func (c *Cluster) stay(ctx context.Context) error {
	if err := os.WriteFile(filepath.Join(c.dir, readyName), nil, 0o600); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-c.Done():
		return errors.New("a component of the control plane has stopped: see " + filepath.Join(c.dir, logName))
	}
}

// upStock runs a cluster without KubEnergy; a bare one also without nodes and a scheduler.
func (o *commandFlags) upStock(cmd *cobra.Command, bare bool) error {
	var err error
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"stock", "bare", "dir"}, f.Name) {
			err = usageError{fmt.Errorf("--%s cannot be combined with --stock and --bare, which have no scenario",
				f.Name)}
		}
	})
	if err != nil {
		return err
	}
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	processes := kubelet.Programs{Binaries: filepath.Dir(binary), Images: OurImages()}
	dir := cmp.Or(o.dir, defaultDir)
	return withCluster(cmd, dir, processes, func(ctx context.Context, c *Cluster) error {
		if bare {
			if err := c.AddKinds(ctx); err != nil {
				return err
			}
			return c.stay(ctx)
		}
		if err := c.StartStock(ctx); err != nil {
			return err
		}
		c.printStock(cmd.OutOrStdout(), dir, processes.Binaries)
		return c.stay(ctx)
	})
}

// StartStock adds the nodes of a small cluster in a cloud, and the stock scheduler.
func (c *Cluster) StartStock(ctx context.Context) error {
	if err := c.AddNodes(ctx, CloudNodes()); err != nil {
		return err
	}
	_, err := c.StartScheduler(ctx, Scheduler{})
	return err
}

// CloudNodes returns six nodes of a cloud in three zones of one region, with the labels set by cloud providers. The
// machines are of two generations with different energy per core.
func CloudNodes() []NodeSpec {
	const region = "eu-central-1"
	var specs []NodeSpec
	for i, zone := range []string{"a", "b", "c"} {
		for _, kind := range []struct {
			name             string
			cpus, memoryGiBs int64
		}{{"m6a.2xlarge", 8, 32}, {"c5.4xlarge", 16, 32}} {
			specs = append(specs, NodeSpec{
				Name:     fmt.Sprintf("ip-10-0-%d-%d.%s.compute.internal", i, kind.cpus, region),
				Capacity: Capacity(kind.cpus, kind.memoryGiBs),
				Labels: map[string]string{
					corev1.LabelTopologyRegion: region, corev1.LabelTopologyZone: region + zone,
					corev1.LabelInstanceTypeStable: kind.name,
				},
			})
		}
	}
	return specs
}

func (c *Cluster) printStock(out io.Writer, dir, binaries string) {
	fmt.Fprintf(out, "%d nodes and the stock scheduler are ready; KubEnergy is not installed.\n\n", len(CloudNodes()))
	fmt.Fprintf(out, "  eval \"$(%s env --dir %s)\"   # kubectl, helm and kubenergy then use this cluster\n",
		os.Args[0], dir)
	fmt.Fprintf(out, "  helm install kubenergy charts/kubenergy --namespace kubenergy-system --create-namespace \\\n"+
		"      --set zone=DE,ledger.persistence.enabled=false --wait\n\n") // no volumes in the lab
	fmt.Fprintf(out, "KubEnergy's pods run as processes from %s\n", binaries)
	fmt.Fprintf(out, "and log to %s. Interrupt to stop.\n", filepath.Join(c.PodsDir(), "logs"))
}
