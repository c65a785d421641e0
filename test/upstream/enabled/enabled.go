// Package enabled adds the KubEnergy plugins to the schedulers of upstream tests. They are wired as in
// kubenergy-scheduler, with one hold loop per scheduler, and enabled as in the released profile that replaces the
// default scheduler. The package is linked into the upstream test binaries, which create their schedulers
// themselves. Held pods are therefore kept in the queue of kube-scheduler, see package parking.
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

// Mode selects the pods that are scored and the available data on nodes and grids. Upstream pods have no KubEnergy
// annotations.
type Mode string

// The supported modes.
const (
	Marked  Mode = "marked"  // only marked pods are in scope, with complete data; results must not differ
	Unknown Mode = "unknown" // all pods are in scope, without data; results must not differ
	Scored  Mode = "scored"  // all pods are in scope, with complete data; pods may be placed differently
)

// Modes lists all modes.
var Modes = []Mode{Marked, Unknown, Scored}

// ModeVariable is the environment variable that passes the mode to a test binary.
const ModeVariable = "KUBENERGY_UPSTREAM_MODE"

// mode is evaluated when the first scheduler is created.
var mode = sync.OnceValue(func() Mode {
	m := Mode(os.Getenv(ModeVariable))
	switch m {
	case Marked, Unknown, Scored:
		return m
	}
	panic(fmt.Sprintf("%s is %q, want one of %q", ModeVariable, m, Modes))
})

// shipped is the released profile that replaces the default scheduler.
var shipped = sync.OnceValue(func() configv1.KubeSchedulerProfile {
	var config configv1.KubeSchedulerConfiguration
	if err := yaml.Unmarshal(deploy.DefaultSchedulerConfig, &config); err != nil {
		panic(fmt.Sprintf("reading the shipped scheduler configuration: %v", err))
	}
	return config.Profiles[0]
})

// Everywhere returns the plugins that are added to every profile: the KubEnergy plugins with their weights in the
// order of the released profile.
func Everywhere() []configv1.Plugin { return shipped().Plugins.MultiPoint.Enabled }

// args returns the arguments of [place.Energy] in the released profile with the scope of the mode.
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

// Factories returns the factories of the KubEnergy plugins for one scheduler by name.
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

// build starts the components that the plugins of one scheduler share. They stop with the context, like the
// scheduler.
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
			klog.FromContext(ctx).Error(err, "Hold loop failed")
		}
	}()
	return place.Deps{View: view, Gate: loop, Clock: loop.Now}, nil
}
