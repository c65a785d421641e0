// Package enabled is what the schedulers of upstream's tests have besides stock's plugins: ours, wired as in
// kubenergy-scheduler with a hold loop per scheduler, and enabled as in the profile that we ship for use in place of
// the cluster's own scheduler. It is linked into upstream's test binaries, which know nothing of it, and which build
// their schedulers themselves: held pods are kept in kube-scheduler's own queue there (see package parking).
package enabled

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// Mode says which pods are scored, and what is known of nodes and grids. Upstream's pods carry none of our marks.
type Mode string

// The modes.
const (
	Marked  Mode = "marked"  // only marked pods are ours, and everything is known: nothing may differ from stock
	Unknown Mode = "unknown" // every pod is ours, and nothing is known: nothing may differ from stock either
	Scored  Mode = "scored"  // every pod is ours, and everything is known: pods go where we think best
)

// Modes are all modes.
var Modes = []Mode{Marked, Unknown, Scored}

// ModeVariable names the environment variable that says the mode to a test binary.
const ModeVariable = "KUBENERGY_UPSTREAM_MODE"

// mode is asked for when the first scheduler is built.
var mode = sync.OnceValue(func() Mode {
	m := Mode(os.Getenv(ModeVariable))
	switch m {
	case Marked, Unknown, Scored:
		return m
	}
	panic(fmt.Sprintf("%s is %q: want one of %q", ModeVariable, m, Modes))
})

// shipped is the profile of the configuration that we ship for use in place of the cluster's own scheduler.
var shipped = sync.OnceValue(func() configv1.KubeSchedulerProfile {
	var config configv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal(deploy.DefaultSchedulerConfig, &config); err != nil {
		panic(fmt.Sprintf("reading the shipped scheduler configuration: %v", err))
	}
	return config.Profiles[0]
})

// Everywhere returns what is enabled in every profile: our plugins with their weights, in the order of the shipped one.
func Everywhere() []configv1.Plugin { return shipped().Plugins.MultiPoint.Enabled }

// args returns the options of [place.Energy] in the shipped profile, but with the mode's scope.
func args(m Mode) (runtime.Object, error) {
	var args place.EnergyArgs
	for _, c := range shipped().PluginConfig {
		if c.Name == place.EnergyName {
			if err := json.Unmarshal(c.Args.Raw, &args); err != nil {
				return nil, fmt.Errorf("reading the shipped args of %s: %w", c.Name, err)
			}
		}
	}
	if m != Marked {
		args.Scope = place.All
	}
	raw, err := json.Marshal(args)
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}, err
}

// Factories returns what builds our plugins for one scheduler, by name.
func Factories() map[string]place.Factory {
	late := place.NewLate(build)
	return map[string]place.Factory{
		place.EnergyName: func(ctx context.Context, _ runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			options, err := args(mode())
			if err != nil {
				return nil, err
			}
			p, err := late[place.EnergyName](ctx, options, handle)
			if err != nil {
				return nil, err
			}
			return countedEnergy{p.(*place.Energy)}, nil
		},
		place.HoldName: func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
			p, err := late[place.HoldName](ctx, args, handle)
			if err != nil {
				return nil, err
			}
			return countedHold{p.(*place.Hold)}, nil
		},
	}
}

// build starts what the plugins of one scheduler share. Like the scheduler itself it ends with the context.
func build(ctx context.Context, config *rest.Config) (place.Deps, error) {
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "kubenergy-hold"))
	if err != nil {
		return place.Deps{}, fmt.Errorf("building the hold loop's client: %w", err)
	}
	view, err := knowledge(mode())
	if err != nil {
		return place.Deps{}, err
	}
	loop := hold.New(hold.Config{Client: client, View: view})
	go func() {
		if err := loop.Run(ctx); err != nil {
			klog.FromContext(ctx).Error(err, "The hold loop ended")
		}
	}()
	return place.Deps{View: view, Gate: loop, Clock: loop.Now}, nil
}
