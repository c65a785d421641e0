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

// The metrics of Scaphandre that are read. Its units are microjoules and microwatts.
const (
	hostEnergy   = "scaph_host_energy_microjoules"
	hostPower    = "scaph_host_power_microwatts"
	processPower = "scaph_process_power_consumption_microwatts"
)

// Limits of one post.
const (
	maxSeries      = 50_000
	maxSidecars    = 1000 // nodes of one post
	maxCounter     = 1 << 53
	maxMicrowatts  = 1e12 // a megawatt
	maxLabelLength = 253
)

// nodePost is what a post says of a node.
type nodePost struct {
	energy    uint64
	hasEnergy bool
	power     uint64 // µW
	hasPower  bool
	pods      map[podName]uint64 // µW
	system    uint64             // µW, of processes outside of pods
}

type podName struct{ namespace, name string }

// errNothing says that a post holds no metric that is read.
var errNothing = errors.New("no metric of Scaphandre is in it")

// readScaphandre reads a post, by the name of the node. whose is the node of metrics that name none.
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
				return nil, fmt.Errorf("more than %d series", maxSeries)
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

// wanted leaves the lines of metrics that are read. Others are most of what sidecars tell, and would cost memory.
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

// parse reads text. The parser is not ours: what it could not cope with is an error.
func parse(data []byte) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if what := recover(); what != nil {
			panics.Note("scaphandre")
			families, err = nil, errors.New("the text cannot be read")
		}
	}()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err = parser.TextToMetricFamilies(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("reading the text: %w", err)
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
	if !(value >= 0 && value <= most) { // NaN is neither
		return fmt.Errorf("%s is %v: want 0 to %g", name, value, most)
	}
	whole := uint64(math.Round(value))
	switch {
	case name == processPower:
		return t.add(labels, whole)
	case name == hostEnergy && t.hasEnergy, name == hostPower && t.hasPower:
		return fmt.Errorf("%s is there twice for one node", name)
	case name == hostEnergy:
		t.energy, t.hasEnergy = whole, true
	default:
		t.power, t.hasPower = whole, true
	}
	return nil
}

// of returns the part of the post about the node that labels name.
func (r *scaphandreReader) of(labels map[string]string) (*nodePost, error) {
	node := nodeOf(labels)
	if r.whose != "" {
		// Instances are addresses as a rule, and may be of anything; names of nodes may not contradict.
		if said := named(labels); said != "" && said != r.whose {
			return nil, fmt.Errorf("it tells of node %.80q, and is of %q", said, r.whose)
		}
		node = r.whose
	}
	if node == "" {
		return nil,
			errors.New("whose metrics are they? Say ?node=, or label them: node, kubernetes_node_name or instance")
	}
	if !isNode(node) {
		return nil, fmt.Errorf("%.80q is no name of a node", node)
	}
	t := r.nodes[node]
	if t == nil {
		if len(r.nodes) == maxSidecars {
			return nil, fmt.Errorf("more than %d nodes", maxSidecars)
		}
		t = &nodePost{pods: map[podName]uint64{}}
		r.nodes[node] = t
	}
	return t, nil
}

// named returns the node that labels call by its name.
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
		return "" // an address names no node
	}
	return instance
}

// add counts a process to its pod.
func (t *nodePost) add(labels map[string]string, microwatts uint64) error {
	pod := podName{labels["kubernetes_pod_namespace"], labels["kubernetes_pod_name"]}
	if pod.namespace == "" || pod.name == "" {
		t.system += microwatts
		return nil
	}
	if len(pod.namespace) > maxLabelLength || len(pod.name) > maxLabelLength ||
		strings.ContainsAny(pod.namespace+pod.name, "/\x00") {
		return fmt.Errorf("%.80q is no name of a pod", pod.namespace+"/"+pod.name)
	}
	t.pods[pod] += microwatts
	return nil
}
