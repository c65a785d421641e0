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

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// ports maps ports of a pod to ports of this machine.
type ports map[int]int

// A listen address and a flag for one in an argument.
var (
	listenAddress = regexp.MustCompile(`^(|:|(?:0\.0\.0\.0|\[::\]|127\.0\.0\.1|localhost):)([1-9][0-9]{0,4})$`)
	listenFlag    = regexp.MustCompile(`^--?[a-z-]*(port|address|addr|listen)$`)
)

// newPorts chooses a free port for each port that the pod declares, probes, or listens on according to its
// arguments.
func newPorts(spec *corev1.PodSpec) (ports, error) {
	wanted := ports{}
	for _, c := range spec.Containers {
		for _, p := range c.Ports {
			wanted[int(p.ContainerPort)] = 0
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
			if probe != nil && probe.HTTPGet.Port.Type == intstr.Int { // other probes are refused
				wanted[probe.HTTPGet.Port.IntValue()] = 0
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
		l, err := net.Listen("tcp", address+":0") // remains open so that ports differ
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
	case m == nil && flag == "--bind-address=": // of kube-scheduler, used with --secure-port
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

// String returns the value of the annotation lab-ports, e.g. "8081=40123,8443=40124".
func (p ports) String() string {
	pair := func(port int) string { return fmt.Sprintf("%d=%d", port, p[port]) }
	return strings.Join(sliceutil.Map(slices.Sorted(maps.Keys(p)), pair), ",")
}

// probed returns the port of this machine for the port of a probe.
func (p ports) probed(c *corev1.Container, port intstr.IntOrString) (int, error) {
	number, err := probe.ResolveContainerPort(port, c)
	mine, ok := p[number]
	if err != nil || !ok {
		return 0, fmt.Errorf("container %s has no port %s", c.Name, port.String())
	}
	return mine, nil
}
