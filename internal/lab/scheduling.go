package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/internal/scheduler/parking"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// HoldRule is the start rule of the lab's hold loop, unless a Job requests a rule that plans jointly.
const HoldRule = "window"

// Scheduling is our scheduler in a cluster: plugins, hold loop and shared knowledge.
type Scheduling struct {
	Dir      string            // for configuration, signals and profiles
	Sites    []*sched.Site     // the first is the default
	Profiles []*energy.Profile // the first is the default
	Policy   sched.Policy
	MaxDelay time.Duration // maximum of any hold
	MaxShift time.Duration // bound of the order "aging"; 0 for the default
	// Strategies maps schedulerNames to the strategies of additional profiles.
	Strategies map[string]string
	Log        *slog.Logger               // nil to disable logging
	Clock      func() time.Time           // for the plugins; nil for the real clock
	OnReady    func(*scheduler.Scheduler) // may be nil

	view       func() *kube.View // set by Start
	recordPlan func(rule string, s *sched.Snapshot, plan sched.Plan, looks int)
}

// Start writes the configuration, installs the admission policy and runs the scheduler with the hold loop. stop
// stops both.
func (s *Scheduling) Start(ctx context.Context, c *Cluster) (stop func(), err error) {
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	files := &kube.Files{
		SignalsFile: filepath.Join(s.Dir, "signals.yaml"), ProfilesFile: filepath.Join(s.Dir, "profiles.yaml"),
		Log: s.Log,
		Defaults: policy.Defaults{
			Terms: policy.Terms{
				When: HoldRule, Weights: s.Policy.Weights, MinSaving: s.Policy.MinSaving,
				MinSavingPerHour: s.Policy.MinSavingPerHour, MinSavingGrams: s.Policy.MinSavingGrams,
			},
			MaxDelay: s.MaxDelay, MaxSignalAge: s.Policy.MaxSignalAge,
		},
	}
	if err := s.writeKnowledge(files); err != nil {
		return nil, err
	}
	files.Refresh()
	s.view = files.View
	if err := c.AdmitHolds(ctx); err != nil {
		return nil, err
	}
	config, err := s.writeConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	loop := hold.New(hold.Config{Client: client, View: files.View, RecordPlan: s.recordPlan})
	var plugins []app.Option
	for name, factory := range place.New(place.Deps{View: files.View, Gate: loop, Clock: s.Clock, Log: s.Log,
		MaxShift: s.MaxShift}) {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	knowledge := startComponent(ctx, "files", files.Run)
	holds := startComponent(ctx, "hold loop", loop.Run)
	stopScheduler, err := c.StartScheduler(ctx, Scheduler{
		Name: "kubenergy-scheduler", ConfigFile: config, Plugins: plugins, Prepare: prepare, OnReady: s.OnReady,
	})
	if err != nil {
		_, _ = holds.stop(), knowledge.stop()
		return nil, err
	}
	return func() {
		stopScheduler()
		_, _ = holds.stop(), knowledge.stop()
	}, nil
}

// prepare configures a scheduler like kubenergy-scheduler does.
func prepare(s *scheduler.Scheduler) error {
	parking.Install(s)
	return fallback.Install(s)
}

func (s *Scheduling) writeKnowledge(files *kube.Files) error {
	signals := map[string]any{"apiVersion": kube.APIVersion, "kind": kube.KindSignals, "sites": s.Sites}
	profiles := map[string]any{"apiVersion": kube.APIVersion, "kind": kube.KindProfiles, "profiles": s.Profiles}
	if len(s.Profiles) > 0 {
		profiles["default"] = s.Profiles[0].Name
	}
	return errors.Join(writeYAML(files.SignalsFile, signals), writeYAML(files.ProfilesFile, profiles))
}

// writeYAML writes a file atomically, so that readers never see partial content.
func writeYAML(path string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return renameio.WriteFile(path, text, 0o600)
}

// writeConfig derives the scheduler's configuration from the shipped one: the stock profile, the shipped profile,
// and for each strategy a copy of the shipped profile that scores every pod.
func (s *Scheduling) writeConfig() (string, error) {
	var config map[string]any
	if err := yaml.Unmarshal(deploy.SchedulerConfig, &config); err != nil {
		return "", fmt.Errorf("reading the shipped scheduler configuration: %w", err)
	}
	shipped, ok := config["profiles"].([]any)
	if !ok || len(shipped) == 0 {
		return "", errors.New("the shipped scheduler configuration has no profile")
	}
	stock, _ := runtime.DeepCopyJSONValue(shipped[0]).(map[string]any)
	stock["schedulerName"] = "default-scheduler"
	delete(stock, "pluginConfig")
	plugins, _ := stock["plugins"].(map[string]any) // all profiles of a scheduler must have the same queueSort
	stock["plugins"] = map[string]any{"queueSort": plugins["queueSort"]}
	profiles := append([]any{stock}, shipped...)
	for name, strategy := range s.Strategies {
		profile, _ := runtime.DeepCopyJSONValue(shipped[0]).(map[string]any)
		profile["schedulerName"] = name
		where, _, _ := strings.Cut(strategy, "+") // the start rule does not belong to the profile; see HoldRule
		profile["pluginConfig"] = withArgs(profile["pluginConfig"], map[string]any{
			"apiVersion": place.ArgsAPIVersion, "kind": place.ArgsKind,
			"strategy": where, "scope": string(place.All), "weights": s.Policy.Weights, "seed": s.Policy.Seed,
			"maxSignalAge": time.Duration(0).String(), // recorded signals do not age
		})
		profiles = append(profiles, profile)
	}
	config["profiles"] = profiles
	// kube-scheduler's default limit of 50 requests per second corresponds to minutes in a compressed trace.
	config["clientConnection"] = map[string]any{"qps": 5000, "burst": 5000}
	config["podMaxBackoffSeconds"] = 1 // a backoff of ten seconds also corresponds to minutes
	path := filepath.Join(s.Dir, "scheduler-config.yaml")
	return path, writeYAML(path, config)
}

// withArgs sets arguments of our plugin in a profile's pluginConfig and preserves all others.
func withArgs(pluginConfig any, args map[string]any) any {
	list, _ := pluginConfig.([]any)
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok && m["name"] == place.EnergyName {
			maps.Copy(m["args"].(map[string]any), args)
		}
	}
	return list
}

// newScheduling returns our scheduler with the scenario's signals mapped to the clock.
func newScheduling(c *Cluster, dir string, s *sim.Scenario, clock Clock, trials []Trial) (*Scheduling, error) {
	scheduling := &Scheduling{
		Dir: dir, Policy: clock.Policy(s.Policy), Strategies: map[string]string{},
		MaxDelay: 7 * 24 * time.Hour, MaxShift: clock.Shrink(sched.MaxShift),
		Log: slog.New(slog.NewTextHandler(c.logs, nil)),
	}
	until := s.Start.Add(2*span(s) + 48*time.Hour)
	for _, site := range s.Sites {
		compressed := *site
		var err error
		if compressed.Carbon, err = clock.Signal(site.Carbon, s.Start, until); err != nil {
			return nil, fmt.Errorf("%s%w", site.Heading(), err)
		}
		if compressed.Price, err = clock.Signal(site.Price, s.Start, until); err != nil {
			return nil, fmt.Errorf("%s%w", site.Heading(), err)
		}
		scheduling.Sites = append(scheduling.Sites, &compressed)
	}
	known := map[string]bool{}
	for i := range s.Nodes {
		if p := s.Nodes[i].Profile; !known[p.Name] {
			known[p.Name] = true
			scheduling.Profiles = append(scheduling.Profiles, clock.Profile(p))
		}
	}
	for i := range trials {
		if trials[i].Strategy != Stock {
			scheduling.Strategies[trials[i].profile()] = trials[i].Strategy
		}
	}
	return scheduling, nil
}
