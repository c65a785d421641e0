package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/kubenergy/kubenergy/sched/sleep"
	"github.com/kubenergy/kubenergy/sim"
)

// systems is where the service has its machines, each by the name of its node.
const systems = "/redfish/v1/Systems"

// What Redfish calls the states of a machine.
const (
	powerOn     = "On"
	powerOff    = "Off"
	poweringOn  = "PoweringOn"
	poweringOff = "PoweringOff"
)

// MachineSpec describes the machine of a simulated node.
type MachineSpec struct {
	Node     string
	BootTime time.Duration
	Fails    func(boot uint64) bool // whether its first boot fails, its second, and so on; nil: none does
}

// Machines are a Redfish service on loopback that turns simulated nodes off and on. A node that is off sends no
// heartbeat. One that boots is ready after its boot time; if its boot fails, it is off again by then.
type Machines struct {
	URL string

	cluster  *Cluster
	server   *component
	running  sync.WaitGroup
	mu       sync.Mutex
	machines map[string]*machine
	changes  []sim.PowerChange
	forced   int
	killed   int
}

type machine struct {
	MachineSpec
	state string
	boots uint64
}

// StartMachines gives nodes that are awake their machines.
func (c *Cluster) StartMachines(ctx context.Context, specs []MachineSpec) (*Machines, error) {
	m := &Machines{cluster: c, machines: map[string]*machine{}}
	for _, s := range specs {
		m.machines[s.Node] = &machine{MachineSpec: s, state: powerOn}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the machines: %w", err)
	}
	m.URL = "http://" + l.Addr().String()
	m.server = startComponent(ctx, "machines", func(ctx context.Context) error {
		mux := http.NewServeMux()
		mux.HandleFunc("GET "+systems, m.list)
		mux.HandleFunc("GET "+systems+"/{node}", m.show)
		mux.HandleFunc("POST "+systems+"/{node}/Actions/ComputerSystem.Reset",
			func(w http.ResponseWriter, r *http.Request) { m.reset(ctx, w, r) })
		server := &http.Server{Handler: mux, ReadTimeout: 10 * time.Second}
		defer context.AfterFunc(ctx, func() { _ = server.Close() })()
		return server.Serve(l)
	})
	return m, nil
}

// Stop leaves nodes as they are.
func (m *Machines) Stop() error {
	err := m.server.stop()
	m.running.Wait()
	return err
}

// Changes returns what happened so far, of each machine in order, and how many machines were forced off and pods killed by that.
func (m *Machines) Changes() (changes []sim.PowerChange, forced, killed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append(changes, m.changes...), m.forced, m.killed
}

func (m *Machines) list(w http.ResponseWriter, _ *http.Request) {
	members := []map[string]string{}
	for name := range m.machines {
		members = append(members, map[string]string{"@odata.id": systems + "/" + name})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Members": members}) // the client has gone
}

func (m *Machines) show(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := r.PathValue("node")
	s := m.machines[name]
	if s == nil {
		http.NotFound(w, r)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"@odata.id": systems + "/" + name, "Id": name, "UUID": SystemUUID(name), "PowerState": s.state,
		"Actions": map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target":                            systems + "/" + name + "/Actions/ComputerSystem.Reset",
			"ResetType@Redfish.AllowableValues": []string{"On", "GracefulShutdown", "ForceOff"},
		}},
	})
}

// reset starts what it is asked for; ctx is that of the service.
func (m *Machines) reset(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	var order struct{ ResetType string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<10)).Decode(&order); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.machines[r.PathValue("node")]
	if s == nil {
		http.NotFound(w, r)
		return
	}
	if order.ResetType == "ForceOff" {
		m.forced++
	}
	switch is := order.ResetType + " " + s.state; is {
	case "GracefulShutdown On", "ForceOff On":
		s.state = poweringOff
		m.running.Go(func() { m.stop(ctx, s) })
	case "On Off":
		m.note(s, poweringOn, sleep.Booting, time.Now())
		m.running.Go(func() { m.boot(ctx, s) })
	case "On On", "GracefulShutdown Off", "ForceOff Off":
	default:
		http.Error(w, is+" is not possible", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// note changes the state of a machine; m.mu is held.
func (m *Machines) note(s *machine, state string, to sleep.State, at time.Time) {
	s.state = state
	m.changes = append(m.changes, sim.PowerChange{Node: s.Node, At: at, State: to})
}

// stop ends the heartbeat of a node and the pods that it should not have.
func (m *Machines) stop(ctx context.Context, s *machine) {
	killed := 0
	m.insist(ctx, func(ctx context.Context) error {
		if err := m.cluster.heartbeat(ctx, s.Node, false); err != nil {
			return err
		}
		n, err := m.cluster.kill(ctx, s.Node)
		killed += n
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed += killed
	m.note(s, powerOff, sleep.Asleep, time.Now())
}

func (m *Machines) boot(ctx context.Context, s *machine) {
	select {
	case <-time.After(s.BootTime):
	case <-ctx.Done():
		return
	}
	s.boots++
	at, state, to := time.Now(), powerOff, sleep.Asleep
	if s.Fails == nil || !s.Fails(s.boots) {
		state, to = powerOn, sleep.Awake
		m.insist(ctx, func(ctx context.Context) error { return m.cluster.heartbeat(ctx, s.Node, true) })
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(s, state, to, at)
}

// insist asks the API server until it does what it is asked: a machine needs none to go off or on.
func (m *Machines) insist(ctx context.Context, ask func(context.Context) error) {
	_ = wait.PollUntilContextCancel(ctx, 10*pollInterval, true, func(ctx context.Context) (bool, error) {
		return ask(ctx) == nil, nil
	})
}

// heartbeat resumes the heartbeat of a node, or stops it. KWOK renews no Lease that another holds, and leaves its node
// alone. As kubelet does, a node says itself that it shuts down and that it is ready.
func (c *Cluster) heartbeat(ctx context.Context, node string, on bool) error {
	now, leases := time.Now(), c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(ctx, node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("off"), new(int32(math.MaxInt32))
		if on {
			lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new(kwokID), new(int32(leaseSeconds))
			lease.Spec.RenewTime = new(metav1.NewMicroTime(now))
		}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	conditions := []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, reasonStopping, now)}
	if on {
		conditions = healthy(now)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return err
	}
	_, err = c.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
		"status")
	return err
}

// kill ends the pods that run on a node, and returns how many there were. Those of DaemonSets go with their node.
func (c *Cluster) kill(ctx context.Context, node string) (killed int, err error) {
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node + ",status.phase!=Succeeded,status.phase!=Failed",
	})
	if err != nil {
		return 0, err
	}
	var errs []error
	for i := range pods.Items {
		p := &pods.Items[i]
		if of := metav1.GetControllerOf(p); of != nil && of.Kind == "DaemonSet" {
			continue
		}
		err := c.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		if errs = append(errs, err); err == nil {
			killed++
		}
	}
	return killed, errors.Join(errs...)
}
