package lab

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/controller/power"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
)

// sleeps reports whether the machines of a scenario can be sent to sleep: all that draw less asleep say how long they
// boot.
func sleeps(s *sim.Scenario) bool {
	return s.Sleeps() && !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool {
		return n.Profile.Sleeps() && n.Profile.BootSeconds == 0
	})
}

// start starts our scheduler and, for each trial whose machines sleep, what sends them to sleep.
func (r *Replay) start(ctx context.Context, dir string, clock Clock) (stop func(), err error) {
	scheduling, err := newScheduling(r.Cluster, dir, r.Scenario, clock, r.Trials)
	if err != nil {
		return nil, err
	}
	stop, err = scheduling.Start(ctx, r.Cluster)
	if err != nil || !slices.ContainsFunc(r.Trials, func(t Trial) bool { return t.Sleeps }) {
		return stop, err
	}
	view, err := kube.NewView(scheduling.Sites, scheduling.Profiles, "")
	if err == nil {
		r.machines, err = r.Cluster.StartMachines(ctx, r.machineSpecs(clock))
	}
	if err != nil {
		stop()
		return nil, err
	}
	var parts []*component
	for i := range r.Trials {
		if t := &r.Trials[i]; t.Sleeps {
			parts = append(parts, startComponent(ctx, "power of "+t.String(), func(ctx context.Context) error {
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(clock.Wall)): // machines have been empty from there on
				}
				return r.sleep(ctx, t, clock, view, scheduling.Log)
			}))
		}
	}
	return func() {
		for _, p := range parts {
			_ = p.stop()
		}
		_ = r.machines.Stop()
		stop()
	}, nil
}

// machineSpecs describes the machines of all trials that sleep.
func (r *Replay) machineSpecs(clock Clock) (specs []MachineSpec) {
	for i := range r.Trials {
		t := &r.Trials[i]
		for k := range r.Scenario.Nodes {
			if n := &r.Scenario.Nodes[k]; t.Sleeps {
				specs = append(specs, MachineSpec{
					Node: t.node(n.Name), BootTime: clock.Shrink(n.Profile.BootTime()),
					Fails: func(boot uint64) bool { return r.Scenario.BootFails(n.Name, boot) },
				})
			}
		}
	}
	return specs
}

// sleep sends the machines of a trial to sleep, and sees no others.
func (r *Replay) sleep(ctx context.Context, t *Trial, clock Clock, view *kube.View, log *slog.Logger) error {
	config := r.Cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return nodesOf{t, next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	o := power.Options{
		Client: client, View: func() *kube.View { return view }, Policy: clock.Sleep(r.Scenario.Sleep.Policy),
		Mode: power.ModeEnforce, Identity: t.namespace, Namespace: t.namespace, Loopback: true, Log: log,
		Every: max(clock.Shrink(5*time.Second), 100*time.Millisecond),
	}
	for i := range r.Scenario.Nodes {
		node := t.node(r.Scenario.Nodes[i].Name)
		o.Machines = append(o.Machines, power.Machine{
			Node: node, UUID: SystemUUID(node), Kind: power.KindRedfish, URL: r.machines.URL,
			System: systems + "/" + node,
		})
	}
	return power.Run(ctx, o)
}

// nodesOf has a client see the nodes of one trial only.
type nodesOf struct {
	trial *Trial
	next  http.RoundTripper
}

func (n nodesOf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && req.URL.Path == "/api/v1/nodes" {
		req = req.Clone(req.Context())
		query := req.URL.Query()
		query.Set("labelSelector", labelTrial+"="+n.trial.namespace)
		req.URL.RawQuery = query.Encode()
	}
	return n.next.RoundTrip(req)
}
