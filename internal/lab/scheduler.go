package lab

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/component-base/configz"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
)

// Scheduler configures a kube-scheduler.
type Scheduler struct {
	// Name identifies the scheduler in file names and errors within a cluster. It is not the schedulerName of pods,
	// which is defined in the profiles. It defaults to "kube-scheduler".
	Name string
	// ConfigFile is a KubeSchedulerConfiguration; empty for the default configuration. The lab disables
	// leaderElection and sets clientConnection.kubeconfig to the administrator's kubeconfig unless the file sets
	// it. Set another kubeconfig to run with fewer permissions.
	ConfigFile string
	// Plugins are out-of-tree plugins, created with app.WithPlugin.
	Plugins []app.Option
	// Prepare, if set, is called once before the scheduler runs.
	Prepare func(*scheduler.Scheduler) error
	// OnReady, if set, is called once before StartScheduler returns.
	OnReady func(*scheduler.Scheduler)
}

func (s Scheduler) name() string { return cmp.Or(s.Name, "kube-scheduler") }

// configzName is the process-wide key that every kube-scheduler registers and never removes.
const configzName = "componentconfig"

// StartScheduler runs a kube-scheduler in this process and returns when its caches are synced and it is scheduling.
// stop stops it and waits for its end; it is idempotent. Remaining schedulers are stopped by Stop.
func (c *Cluster) StartScheduler(ctx context.Context, s Scheduler) (stop func(), err error) {
	c.mu.Lock() // allow only one start at a time; see configzName
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("starting %s: %w", s.name(), errStopped)
	}
	sched, comp, err := c.runScheduler(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.name(), err)
	}
	err = comp.wait(ctx, func(ctx context.Context) bool {
		poll, cancel := context.WithTimeout(ctx, pollInterval)
		defer cancel()
		return sched.WaitForHandlersSync(poll) == nil
	})
	if err != nil {
		_ = comp.stop() // wait already returned its error, if any
		return nil, fmt.Errorf("starting %s: %w", s.name(), err)
	}
	c.schedulers = append(c.schedulers, comp)
	if s.OnReady != nil {
		s.OnReady(sched)
	}
	return sync.OnceFunc(func() { _ = comp.stop() }), nil // Stop returns the error
}

func (c *Cluster) runScheduler(ctx context.Context, s Scheduler) (*scheduler.Scheduler, *component, error) {
	opts := options.NewOptions()
	config, err := c.schedulerConfig(s)
	if err != nil {
		return nil, nil, err
	}
	args := []string{"--secure-port=0", "--config=" + config, "--leader-elect=false"}
	if err := parse(*opts.Flags, args, opts.ComponentGlobalsRegistry); err != nil {
		return nil, nil, err
	}
	var sched *scheduler.Scheduler
	ready := make(chan error, 1)
	comp := startComponent(ctx, s.name(), func(ctx context.Context) error {
		cc, made, err := app.Setup(ctx, opts, s.Plugins...)
		if err == nil && s.Prepare != nil {
			err = s.Prepare(made)
		}
		sched = made
		ready <- err
		if err != nil {
			return err
		}
		configz.Delete(configzName)
		err = app.Run(ctx, cc, sched)
		cc.InformerFactory.Shutdown()
		cc.DynInformerFactory.Shutdown()
		return err
	})
	if err := <-ready; err != nil {
		_ = comp.stop()
		return nil, nil, err
	}
	return sched, comp, nil
}

// schedulerConfig writes the configuration file that is passed to the scheduler, because a kubeconfig cannot be set
// by a flag together with --config.
func (c *Cluster) schedulerConfig(s Scheduler) (string, error) {
	config := map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1",
		"kind":       "KubeSchedulerConfiguration",
	}
	if s.ConfigFile != "" {
		raw, err := os.ReadFile(s.ConfigFile)
		if err != nil {
			return "", err
		}
		if err := yaml.Unmarshal(raw, &config); err != nil {
			return "", fmt.Errorf("reading %s: %w", s.ConfigFile, err)
		}
	}
	if _, err := kubelet.SetKubeconfig(config, c.Kubeconfig()); err != nil {
		return "", fmt.Errorf("reading %s: %w", s.ConfigFile, err)
	}
	config["leaderElection"] = map[string]any{"leaderElect": false}
	path := filepath.Join(c.dir, s.name()+".yaml")
	return path, writeYAML(path, config)
}
