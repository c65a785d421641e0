package lab

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// sleeps reports whether the machines of a scenario can be put to sleep, i.e. whether all machines that draw less
// power asleep have a boot time.
func sleeps(s *sim.Scenario) bool {
	return s.Sleeps() && !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool {
		return n.Profile.Sleeps() && n.Profile.BootSeconds == 0
	})
}

// sleep puts the machines of a trial to sleep and wakes them until ctx is cancelled.
func (r *Replay) sleep(ctx context.Context, t *Trial) error {
	machines := map[string]*Machine{}
	for i := range r.Scenario.Nodes {
		n := &r.Scenario.Nodes[i]
		machines[t.node(n.Name)] = &Machine{
			BootTime: r.clock.Shrink(n.Profile.BootTime()),
			Fails:    func(boot uint64) bool { return r.Scenario.BootFails(n.Name, boot) },
		}
	}
	record, err := os.Create(filepath.Join(r.scheduling.Dir, t.namespace+".sleep.jsonl"))
	if err != nil {
		return err
	}
	defer record.Close()
	config := r.Cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return nodesOf{t, next} })
	client, err := kubernetes.NewForConfig(config)
	if err == nil {
		t.machines, err = r.Cluster.StartMachines(ctx, machines)
	}
	if err != nil {
		return err
	}
	defer t.machines.Stop()
	const maxSpeedup = 10 // a higher factor would not leave enough time to observe bindings
	o := power.Options{
		Client: client, View: r.scheduling.view, Policy: r.Scenario.Sleep.Policy, Mode: power.ModeEnforce,
		Identity: t.namespace, Namespace: t.namespace, Faster: min(r.Factor, maxSpeedup), Every: time.Second,
		Loopback: true, Log: r.scheduling.Log, Record: power.RecordTo(record, r.scheduling.Log),
	}
	o.Policy.After, o.Policy.Lead = r.clock.Shrink(o.Policy.After), r.clock.Shrink(o.Policy.Lead)
	for node := range machines {
		o.Machines = append(o.Machines, power.Machine{
			Node: node, UUID: SystemUUID(node), Kind: power.KindRedfish, URL: t.machines.URL,
			System: systems + "/" + node,
		})
	}
	return power.Run(ctx, o)
}

// nodesOf restricts the node list of a client to the nodes of one trial.
type nodesOf struct {
	trial *Trial
	next  http.RoundTripper
}

func (n nodesOf) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && req.URL.Path == "/api/v1/nodes" {
		req = req.Clone(req.Context())
		req.URL.RawQuery += "&labelSelector=" + labelTrial + "%3D" + n.trial.namespace
	}
	return n.next.RoundTrip(req)
}
