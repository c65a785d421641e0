package server

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Nodes is the response of GET /api/v1/nodes.
type Nodes struct {
	Nodes []Node `json:"nodes"`
}

// Node describes the location, hardware model, load and current power of a node.
type Node struct {
	Node string `json:"node"`
	Site string `json:"site,omitempty"` // name of a GridZone
	Zone string `json:"zone,omitempty"`
	// PUE is the ratio of facility energy to node energy.
	PUE float64 `json:"pue"`
	// PowerState is the power state of the machine: asleep, booting or stopping. It is empty if the machine is
	// awake.
	PowerState  string `json:"powerState,omitempty"`
	Profile     string `json:"profile,omitempty"`     // power profile
	ProfileFrom string `json:"profileFrom,omitempty"` // source of the profile
	// ModelWatts is the power that the profile predicts for the load requested by the pods of the node.
	ModelWatts *float64 `json:"modelWatts,omitempty"`
	// Efficiency is the number of cores per watt at full load.
	Efficiency  *float64      `json:"coresPerWatt,omitempty"`
	Pods        int           `json:"pods"` // without pods of DaemonSets
	Allocatable NodeResources `json:"allocatable"`
	Requested   NodeResources `json:"requested"`
	// Now is nil if no meter or model provides the current power.
	Now *NodeNow `json:"now,omitempty"`
}

// NodeResources are quantities of the resources of a node.
type NodeResources struct {
	CPU    float64 `json:"cpu"` // cores
	Memory int64   `json:"memoryBytes"`
	GPU    float64 `json:"gpu,omitempty"` // devices, including partitions
}

// NodeNow is the current power of a node, without PUE.
type NodeNow struct {
	Watts       float64        `json:"watts"`
	AsOf        time.Time      `json:"asOf"`
	Quality     energy.Quality `json:"quality"`
	Source      string         `json:"source"`
	Implausible bool           `json:"implausible,omitempty"` // contradicts the model of the node
	Temperature sched.Heat     `json:"temperature,omitzero"`
}

// PodPower is the response of GET /api/v1/namespaces/{namespace}/pods/{pod}/power.
type PodPower struct {
	Namespace string         `json:"namespace"`
	Pod       string         `json:"pod"`
	From      time.Time      `json:"from"`
	To        time.Time      `json:"to"`
	Points    []ledger.Point `json:"points"`
}

func (s *server) serveNodes(w http.ResponseWriter, r *http.Request, _ *query) error {
	loaded, err := s.nodes(r.Context())
	if err != nil {
		return err
	}
	now := map[string]*NodeNow{}
	for _, n := range s.Live.Nodes().Nodes {
		now[n.Node] = &NodeNow{n.Watts, n.AsOf, n.Quality, n.Source, n.Implausible, n.Temperature}
	}
	view := s.View()
	answer := Nodes{Nodes: []Node{}}
	for i := range loaded {
		l := &loaded[i]
		node, known := l.on(view)
		_, from := view.Hardware(l.node)
		shown := Node{
			Node: l.node.Name, Site: node.Site.Name, Zone: string(node.Site.Zone), PUE: node.Facility(),
			PowerState: l.node.Labels[v1alpha1.LabelPowerState], ProfileFrom: from, Pods: l.Jobs,
			Allocatable: resourcesOf(node.Capacity), Requested: resourcesOf(l.Requested), Now: now[l.node.Name],
		}
		delete(now, l.node.Name)
		if known {
			shown.Profile, shown.ModelWatts = node.Profile.Name, new(float64(node.Power()))
			if efficiency, ok := node.Efficiency(); ok {
				shown.Efficiency = new(efficiency)
			}
		}
		answer.Nodes = append(answer.Nodes, shown)
	}
	for name, drawn := range now { // hosts that are not nodes of the cluster
		answer.Nodes = append(answer.Nodes, Node{Node: name, PUE: 1, Now: drawn})
	}
	slices.SortFunc(answer.Nodes, func(a, b Node) int { return strings.Compare(a.Node, b.Node) })
	return writeJSON(w, http.StatusOK, answer)
}

func (s *server) serveNodesPower(w http.ResponseWriter, r *http.Request, _ *query) error {
	answer := s.Live.Nodes()
	answer.Nodes = some(slices.Clone(answer.Nodes)) // the slice is shared
	for i := range answer.Nodes {
		answer.Nodes[i].PowerState = s.Power(answer.Nodes[i].Node)
	}
	return writeTagged(w, r, answer)
}

func (s *server) serveNodesTemperature(w http.ResponseWriter, r *http.Request, q *query) error {
	from, to := q.span()
	if err := q.err(); err != nil {
		return err
	}
	return s.reply(w, r, false, func(ctx context.Context) (any, error) {
		hours, err := s.Ledger.Temperatures(ctx, from, to, q.text("node"))
		return api.NodesTemperature{Hours: some(hours)}, err
	})
}

func (s *server) serveWorkloadsPower(w http.ResponseWriter, r *http.Request, _ *query) error {
	answer := s.Live.Workloads()
	answer.Workloads = some(answer.Workloads)
	return writeTagged(w, r, answer)
}

func (s *server) servePods(w http.ResponseWriter, _ *http.Request, q *query) error {
	namespace := cmp.Or(q.namespace, q.text("namespace"))
	if namespace != "" && !isNamespace(namespace) {
		return fail(http.StatusBadRequest, "namespace is %.80q: want a valid namespace name", namespace)
	}
	answer := s.Live.Pods(namespace)
	answer.Pods = some(answer.Pods)
	return writeJSON(w, http.StatusOK, answer)
}

// podUID matches UIDs of pods, including the UIDs that kubelets generate for static pods.
var podUID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

func isPod(name string) bool {
	return len(validation.IsDNS1123Subdomain(name)) == 0 || podUID.MatchString(name)
}

func (s *server) servePodPower(w http.ResponseWriter, r *http.Request, q *query) error {
	pod := r.PathValue("pod")
	if !isPod(pod) {
		return fail(http.StatusBadRequest, "%.80q is not a valid name or UID of a pod", pod)
	}
	const least, most = 2, 500
	from, to := q.span()
	samples := q.whole("samples", most, least, most)
	how := cmp.Or(q.text("downsample"), "lttb")
	if err := q.err(); err != nil {
		return err
	}
	return s.reply(w, r, false, func(ctx context.Context) (any, error) {
		points, err := s.Ledger.Series(ctx, &ledger.Query{
			From: from, To: to, Namespaces: q.namespaces(), Pods: []string{pod}, Clusters: []string{ledger.OwnCluster},
		})
		if err == nil {
			points, err = ledger.Downsample(points, samples, how)
		}
		return PodPower{q.namespace, pod, from, to, some(points)}, err
	})
}
