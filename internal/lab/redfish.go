package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// systems is the path of the machines, which are identified by the names of their nodes.
const systems = "/redfish/v1/Systems"

// powerStates maps the states of a machine to those of Redfish.
var powerStates = map[sleep.State]string{
	sleep.Awake: "On", sleep.Stopping: "PoweringOff", sleep.Asleep: "Off", sleep.Booting: "PoweringOn",
}

// System is a machine in the Redfish service.
type System struct {
	UUID  string
	State func() string                  // On, Off, PoweringOn or PoweringOff
	Reset func(kind string) (status int) // On, GracefulShutdown, ForceOff, …
}

// Redfish returns the handler of a service with the given systems, by node name.
func Redfish(of map[string]System) http.Handler {
	members := []map[string]string{}
	for node := range of {
		members = append(members, map[string]string{"@odata.id": systems + "/" + node})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+systems, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"Members": members})
	})
	mux.HandleFunc("GET "+systems+"/{node}", func(w http.ResponseWriter, r *http.Request) {
		s, ok := of[r.PathValue("node")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"UUID": s.UUID, "PowerState": s.State(), "Actions": map[string]any{
				"#ComputerSystem.Reset": map[string]any{"target": r.URL.Path + "/Actions/ComputerSystem.Reset"},
			},
		})
	})
	const reset = "/{node}/Actions/ComputerSystem.Reset"
	mux.HandleFunc("POST "+systems+reset, func(w http.ResponseWriter, r *http.Request) {
		s, ok := of[r.PathValue("node")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		var order struct{ ResetType string }
		_ = json.NewDecoder(r.Body).Decode(&order) // an invalid request results in an unsupported reset type
		w.WriteHeader(s.Reset(order.ResetType))
	})
	return mux
}

// Machine is the machine of a simulated node. It is on initially.
type Machine struct {
	BootTime time.Duration
	Fails    func(boot uint64) bool // reports whether the boot with the given number, starting at 1, fails

	node  string
	state sleep.State
	boots uint64
}

// Machines is a Redfish service on loopback that turns simulated nodes off and on. A node that is off sends no
// heartbeat. A node that boots is ready after its boot time, or off again if the boot fails.
type Machines struct {
	URL  string
	Stop func() // does not change the nodes

	// Changes in order of time for each machine, the number of forced power-offs, and the number of pods killed
	// with their machine. They are complete after Stop.
	Changes []sim.PowerChange
	Forced  int
	Killed  int

	cluster *Cluster
	mu      sync.Mutex
	running sync.WaitGroup
}

// StartMachines starts the machines of the given nodes.
func (c *Cluster) StartMachines(ctx context.Context, of map[string]*Machine) (*Machines, error) {
	l, err := daemon.Listen("127.0.0.1:0", maxConnections, maxConnections)
	if err != nil {
		return nil, fmt.Errorf("starting the machines: %w", err)
	}
	m := &Machines{URL: "http://" + l.Addr().String(), cluster: c}
	ctx, cancel := context.WithCancel(ctx)
	all := make(map[string]System, len(of))
	for node, s := range of {
		s.node, s.state = node, sleep.Awake
		all[node] = System{
			UUID: SystemUUID(node), State: func() string { return m.powerState(s) },
			Reset: func(kind string) int { return m.reset(ctx, s, kind) },
		}
	}
	server := daemon.NewServer(Redfish(all), slog.Default())
	m.running.Go(func() { _ = server.Serve(l) })
	m.Stop = func() {
		cancel()
		_ = server.Shutdown(context.WithoutCancel(ctx))
		m.running.Wait()
	}
	return m, nil
}

func (m *Machines) powerState(s *Machine) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return powerStates[s.state]
}

// reset starts the requested power operation, which continues until ctx is cancelled.
func (m *Machines) reset(ctx context.Context, s *Machine, kind string) (status int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if kind == "ForceOff" {
		m.Forced++
	}
	switch kind + " " + powerStates[s.state] {
	case "GracefulShutdown On", "ForceOff On":
		s.state = sleep.Stopping
		m.running.Go(func() { m.switchPower(ctx, s, sleep.Asleep, 0) })
	case "On Off":
		m.note(s, sleep.Booting, time.Now())
		to := sleep.Awake
		if s.boots++; s.Fails(s.boots) {
			to = sleep.Asleep
		}
		m.running.Go(func() { m.switchPower(ctx, s, to, s.BootTime) })
	case "On On", "On PoweringOn", "GracefulShutdown Off", "ForceOff Off":
	default:
		return http.StatusConflict
	}
	return http.StatusNoContent
}

// note changes the state of a machine. The caller must hold m.mu.
func (m *Machines) note(s *Machine, to sleep.State, at time.Time) {
	s.state = to
	m.Changes = append(m.Changes, sim.PowerChange{Node: s.node, At: at, State: to})
}

// switchPower stops or boots a machine and updates the node, retrying until the API server accepts the changes.
func (m *Machines) switchPower(ctx context.Context, s *Machine, to sleep.State, after time.Duration) {
	if !kube.Pause(ctx, after) {
		return
	}
	at, fails := time.Now(), s.state == sleep.Booting && to == sleep.Asleep
	_ = wait.PollUntilContextCancel(ctx, 10*pollInterval, true, func(ctx context.Context) (bool, error) {
		if fails {
			return true, nil // the node is unchanged
		}
		err := m.cluster.heartbeat(ctx, s.node, to == sleep.Awake)
		if err == nil && to == sleep.Asleep {
			err = m.kill(ctx, s.node)
		}
		return err == nil, nil
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note(s, to, at)
}

// heartbeat enables or disables the renewal of a node's Lease by KWOK, which ignores nodes with another Lease
// holder. Like kubelet, the node sets its own Ready condition.
func (c *Cluster) heartbeat(ctx context.Context, node string, on bool) error {
	now := time.Now()
	spec := map[string]any{"holderIdentity": "off", "leaseDurationSeconds": math.MaxInt32}
	conditions := []corev1.NodeCondition{condition(corev1.NodeReady, corev1.ConditionFalse, reasonStopping, now)}
	if on {
		spec = map[string]any{
			"holderIdentity": kwokID, "leaseDurationSeconds": leaseSeconds, "renewTime": metav1.NewMicroTime(now),
		}
		conditions = healthy(now)
	}
	lease, err1 := json.Marshal(map[string]any{"spec": spec})
	status, err2 := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	_, err := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(ctx, node, types.MergePatchType, lease,
		metav1.PatchOptions{})
	if err == nil {
		_, err = c.client.CoreV1().Nodes().Patch(ctx, node, types.StrategicMergePatchType, status,
			metav1.PatchOptions{}, "status")
	}
	return err
}

// kill deletes the pods on a node, except for pods of DaemonSets.
func (m *Machines) kill(ctx context.Context, node string) error {
	pods, err := m.cluster.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName=" + node + ",status.phase!=Succeeded,status.phase!=Failed",
	})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if of := metav1.GetControllerOf(p); of != nil && of.Kind == "DaemonSet" {
			continue
		}
		m.mu.Lock()
		m.Killed++
		m.mu.Unlock()
		err = errors.Join(err, m.cluster.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	}
	return err
}
