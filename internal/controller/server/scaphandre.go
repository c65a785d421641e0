package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Metrics of Scaphandre that are used. Energy is in microjoules and power in microwatts.
const (
	hostEnergy   = "scaph_host_energy_microjoules"
	hostPower    = "scaph_host_power_microwatts"
	processPower = "scaph_process_power_consumption_microwatts"
)

// Limits of a request.
const (
	maxSeries      = 50_000
	maxSidecars    = 1000 // number of nodes in a request
	maxCounter     = 1 << 53
	maxMicrowatts  = 1e12 // 1 MW
	maxLabelLength = 253
)

// nodePost contains the metrics of a node in a request.
type nodePost struct {
	energy    uint64
	hasEnergy bool
	power     uint64 // in µW
	hasPower  bool
	pods      map[podName]uint64 // in µW
	system    uint64             // in µW, of processes outside of pods
}

type podName struct{ namespace, name string }

// errNothing is returned if a request contains no supported metric.
var errNothing = errors.New("no supported metric of Scaphandre found")

// readScaphandre returns the metrics in a request by node name. If whose is a node name, all metrics are assigned to
// this node.
func readScaphandre(data []byte, whose string) (map[string]*nodePost, error) {
	families, err := parse(wanted(data))
	if err != nil {
		return nil, err
	}
	r := &scaphandreReader{whose: whose, nodes: map[string]*nodePost{}}
	series := 0
	for _, name := range []string{hostEnergy, hostPower, processPower} {
		family := families[name]
		for _, m := range family.GetMetric() {
			if series++; series > maxSeries {
				return nil, fmt.Errorf("too many series, want at most %d", maxSeries)
			}
			if err := r.read(name, m); err != nil {
				return nil, err
			}
		}
	}
	if len(r.nodes) == 0 {
		return nil, errNothing
	}
	return r.nodes, nil
}

// wanted returns only the lines of supported metrics. Sidecars mostly send other metrics, which would waste memory
// in the parser.
func wanted(data []byte) []byte {
	var kept bytes.Buffer
	for line := range bytes.Lines(data) {
		for _, name := range []string{hostEnergy, hostPower, processPower} {
			rest, ok := bytes.CutPrefix(bytes.TrimLeft(line, " \t"), []byte(name))
			if ok && len(rest) > 0 && (rest[0] == '{' || rest[0] == ' ' || rest[0] == '\t') {
				kept.Write(bytes.TrimRight(line, "\r\n"))
				kept.WriteByte('\n')
				break
			}
		}
	}
	return kept.Bytes()
}

// parse parses the Prometheus text format. Panics of the third-party parser are returned as errors.
func parse(data []byte) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if what := recover(); what != nil {
			panics.Note("scaphandre")
			families, err = nil, errors.New("parsing the metrics failed")
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err = parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("parsing the metrics: %w", err)
	}
	return families, nil
}

type scaphandreReader struct {
	whose string
	nodes map[string]*nodePost
}

func (r *scaphandreReader) read(name string, m *dto.Metric) error {
	labels := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	t, err := r.of(labels)
	if err != nil {
		return err
	}
	value := m.GetUntyped().GetValue()
	most := float64(maxMicrowatts)
	if name == hostEnergy {
		most = maxCounter
	}
	if !(value >= 0 && value <= most) { // also rejects NaN
		return fmt.Errorf("%s is %v: want 0 to %g", name, value, most)
	}
	whole := uint64(math.Round(value))
	switch {
	case name == processPower:
		return t.add(labels, whole)
	case name == hostEnergy && t.hasEnergy, name == hostPower && t.hasPower:
		return fmt.Errorf("%s is given twice for the same node", name)
	case name == hostEnergy:
		t.energy, t.hasEnergy = whole, true
	default:
		t.power, t.hasPower = whole, true
	}
	return nil
}

// of returns the metrics of the node that the labels identify. It adds the node if necessary.
func (r *scaphandreReader) of(labels map[string]string) (*nodePost, error) {
	node := nodeOf(labels)
	if r.whose != "" {
		// The instance label is usually an address that does not identify the node, but a node name must match.
		if said := named(labels); said != "" && said != r.whose {
			return nil, fmt.Errorf("unexpected metrics of node %.80q, want only node %q", said, r.whose)
		}
		node = r.whose
	}
	if node == "" {
		return nil,
			errors.New("missing node: want the parameter node, or a label node, kubernetes_node_name or instance")
	}
	if !isNode(node) {
		return nil, fmt.Errorf("%.80q is not a valid node name", node)
	}
	t := r.nodes[node]
	if t == nil {
		if len(r.nodes) == maxSidecars {
			return nil, fmt.Errorf("too many nodes, want at most %d", maxSidecars)
		}
		t = &nodePost{pods: map[podName]uint64{}}
		r.nodes[node] = t
	}
	return t, nil
}

// named returns the node name in the labels, or an empty string.
func named(labels map[string]string) string {
	return cmp.Or(labels["node"], labels["kubernetes_node_name"])
}

func nodeOf(labels map[string]string) string {
	if node := named(labels); node != "" {
		return node
	}
	instance := labels["instance"]
	if host, _, err := net.SplitHostPort(instance); err == nil {
		instance = host
	}
	if net.ParseIP(instance) != nil {
		return "" // an IP address does not identify a node
	}
	return instance
}

// add adds the power of a process to its pod, or to the system if it does not belong to a pod.
func (t *nodePost) add(labels map[string]string, microwatts uint64) error {
	pod := podName{labels["kubernetes_pod_namespace"], labels["kubernetes_pod_name"]}
	if pod.namespace == "" || pod.name == "" {
		t.system += microwatts
		return nil
	}
	if len(pod.namespace) > maxLabelLength || len(pod.name) > maxLabelLength ||
		strings.ContainsAny(pod.namespace+pod.name, "/\x00") {
		return fmt.Errorf("%.80q is not a valid pod name", pod.namespace+"/"+pod.name)
	}
	t.pods[pod] += microwatts
	return nil
}
