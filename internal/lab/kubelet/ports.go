package kubelet

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kubernetes/pkg/probe"
)

// ports are the pod's ports and those of this machine that stand for them.
type ports map[int]int

// An address to listen on, as it stands in an argument.
var (
	listenAddress = regexp.MustCompile(`^(|:|(?:0\.0\.0\.0|\[::\]|127\.0\.0\.1|localhost):)([1-9][0-9]{0,4})$`)
	listenFlag    = regexp.MustCompile(`^--?[a-z-]*(port|address|addr|listen)$`)
)

// newPorts chooses a free port for each that the pod declares, has probed, or is told to listen on.
func newPorts(spec *corev1.PodSpec) (ports, error) {
	wanted := ports{}
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		for _, p := range c.Ports {
			wanted[int(p.ContainerPort)] = 0
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if p := probePort(probe); p != nil && p.Type == intstr.Int {
				wanted[p.IntValue()] = 0
			}
		}
		for _, arg := range slices.Concat(c.Command, c.Args) {
			flag, value, ok := strings.Cut(arg, "=")
			if m := listenAddress.FindStringSubmatch(value); ok && m != nil && listenFlag.MatchString(flag) {
				port, _ := strconv.Atoi(m[2])
				wanted[port] = 0
			}
		}
	}
	var open []net.Listener
	defer func() {
		for _, l := range open {
			l.Close()
		}
	}()
	for port := range wanted {
		l, err := net.Listen("tcp", address+":0") // all stay open until all are chosen, so that they differ
		if err != nil {
			return nil, fmt.Errorf("choosing a port for %d: %w", port, err)
		}
		open = append(open, l)
		wanted[port] = l.Addr().(*net.TCPAddr).Port
	}
	return wanted, nil
}

// rewrite replaces a port in an argument or in the value of an environment variable.
func (p ports) rewrite(arg string) string {
	flag, value, isFlag := strings.Cut(arg, "=")
	flag += "="
	if !isFlag || !strings.HasPrefix(flag, "-") {
		flag, value = "", arg
	}
	m := listenAddress.FindStringSubmatch(value)
	switch {
	case m == nil && flag == "--bind-address=": // kube-scheduler's, beside --secure-port
		return flag + address
	case m == nil:
		return arg
	}
	port, _ := strconv.Atoi(m[2])
	mine, ok := p[port]
	if !ok {
		return arg
	}
	host := m[1]
	if host != "" {
		host = address + ":"
	}
	return flag + host + strconv.Itoa(mine)
}

// String is the value of the annotation lab-ports: "8081=40123,8443=40124".
func (p ports) String() string {
	var pairs []string
	for _, port := range slices.Sorted(maps.Keys(p)) {
		pairs = append(pairs, fmt.Sprintf("%d=%d", port, p[port]))
	}
	return strings.Join(pairs, ",")
}

// probePort is the port that a probe asks, nil where it asks none.
func probePort(p *corev1.Probe) *intstr.IntOrString {
	switch {
	case p == nil:
		return nil
	case p.HTTPGet != nil:
		return &p.HTTPGet.Port
	case p.TCPSocket != nil:
		return &p.TCPSocket.Port
	}
	return nil
}

// probed is the port of this machine that a probe asks.
func (p ports) probed(c *corev1.Container, port intstr.IntOrString) (int, error) {
	number, err := probe.ResolveContainerPort(port, c)
	mine, ok := p[number]
	if err != nil || !ok {
		return 0, fmt.Errorf("container %s has no port %s", c.Name, port.String())
	}
	return mine, nil
}
