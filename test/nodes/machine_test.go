//go:build linux

package nodes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

// here is the address of the control plane and the DNS server on the bridge that connects the nodes.
const here = "172.31.77.254"

const network = `ip link add bridge type bridge
ip addr add ` + here + `/24 dev bridge
ip link set bridge up
sysctl -qw net.ipv4.ip_forward=1
for n in 1 2; do
  ip netns add real$n
  ip link add port$n type veth peer name eth0 netns real$n
  ip link set port$n master bridge up
  ip -n real$n addr add 172.31.77.$n/24 dev eth0
  ip -n real$n link set lo up
  ip -n real$n link set eth0 up
  ip -n real$n route add default via ` + here + `
  ip route add 10.88.$n.0/24 via 172.31.77.$n
  ip netns exec real$n sysctl -qw net.ipv4.ip_forward=1
done
`

// meters mounts simulated energy counters at the location of the kernel's counters.
const meters = `for d in /sys/devices/virtual/*; do
  mkdir -p DIR/virtual/$(basename $d)
  mount --rbind $d DIR/virtual/$(basename $d)
done
mkdir -p DIR/virtual/powercap
mount --bind DIR/powercap DIR/virtual/powercap
mount --rbind DIR/virtual /sys/devices/virtual
`

// world is a control plane with two nodes.
type world struct {
	*cluster.Cluster
	nodes [2]*machine
}

// machine is a running node with its simulated energy counter.
type machine struct {
	node.Node
	process *kit.Process
	energy  atomic.Uint64 // microjoules
}

func shell(t *testing.T, script string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func start(t *testing.T) *world {
	shell(t, network)
	w := &world{Cluster: cluster.Start(t, lab.Options{Address: here, APIServerArgs: []string{
		"--advertise-address=" + here, "--endpoint-reconciler-type=lease",
		"--kubelet-preferred-address-types=InternalIP", "--enable-admission-plugins=NodeRestriction",
	}})}
	if _, err := w.StartScheduler(t.Context(), lab.Scheduler{}); err != nil {
		t.Fatal(err)
	}
	w.resolve(t)
	const sandbox = "localhost/kubenergy/burner:nodes"
	burner := filepath.Join(w.Dir, "burner.tar")
	kit.WriteImage(t, sandbox, kit.Build(t, "./test/real/testdata/burner"), burner)
	all := []string{burner}
	for _, image := range images {
		all = append(all, archive(image))
	}
	for i := range w.nodes {
		name := fmt.Sprintf("real%d", i+1)
		dir := filepath.Join(w.Dir, name)
		w.nodes[i] = &machine{Node: node.Node{
			Name: name, Dir: dir, Group: node.MakeGroupIn(t, os.Getenv(groupVariable), name),
			Kubelet: kit.Kubernetes(t, "kubelet"), Proxy: kit.Kubernetes(t, "kube-proxy"),
			Kubeconfig:  w.as(t, "system:node:"+name, "system:nodes"),
			ProxyConfig: w.as(t, "system:kube-proxy"),
			Sandbox:     sandbox, Images: all, DNS: here, Network: name,
			Address: fmt.Sprintf("172.31.77.%d", i+1), Pods: fmt.Sprintf("10.88.%d.0/24", i+1),
			Before: strings.ReplaceAll(meters, "DIR", dir),
		}}
		w.nodes[i].draw(t)
		w.nodes[i].process = w.nodes[i].Start(t)
	}
	for _, n := range w.nodes {
		n.AwaitReady(t, w.Client, n.process)
	}
	return w
}

// as returns a kubeconfig that impersonates a user with groups.
func (w *world) as(t *testing.T, user string, groups ...string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(w.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, admin := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: admin.Token, Impersonate: user, ImpersonateGroups: groups}
	}
	path := filepath.Join(w.Dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// resolve runs a DNS server that answers queries for Services.
func (w *world) resolve(t *testing.T) {
	t.Helper()
	socket, err := net.ListenPacket("udp", here+":53")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for question := make([]byte, 512); ; {
			n, from, err := socket.ReadFrom(question)
			if err != nil {
				return
			}
			if answer, err := w.answer(t.Context(), question[:n]); err == nil {
				_, _ = socket.WriteTo(answer, from)
			}
		}
	}()
}

func (w *world) answer(ctx context.Context, question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("invalid DNS query: %w", err)
	}
	q := m.Questions[0]
	m.Response, m.RCode, m.Additionals = true, dnsmessage.RCodeNameError, nil
	name, ours := strings.CutSuffix(q.Name.String(), ".svc.cluster.local.")
	service, namespace, _ := strings.Cut(name, ".")
	s, err := w.Client.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if !ours || err != nil {
		return m.Pack()
	}
	m.RCode = dnsmessage.RCodeSuccess
	addresses := []string{s.Spec.ClusterIP}
	if s.Spec.ClusterIP == corev1.ClusterIPNone {
		addresses, err = w.ready(ctx, s)
	}
	for _, address := range addresses {
		if at, err := netip.ParseAddr(address); err == nil && q.Type == dnsmessage.TypeA {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 5},
				Body:   &dnsmessage.AResource{A: at.As4()},
			})
		}
	}
	if err != nil {
		return nil, err
	}
	return m.Pack()
}

// ready returns the addresses of the ready pods of a Service.
func (w *world) ready(ctx context.Context, s *corev1.Service) (addresses []string, err error) {
	slices, err := w.Client.DiscoveryV1().EndpointSlices(s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + s.Name,
	})
	if err != nil {
		return nil, err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				addresses = append(addresses, e.Addresses...)
			}
		}
	}
	return addresses, nil
}

// Idle power of a node, and additional power for each core in use.
const (
	idleWatts = 12
	coreWatts = 25
)

// draw creates the energy counter of a node and updates it until the test ends. The counter always has 16 digits,
// so that a reader never reads a truncated number.
func (m *machine) draw(t *testing.T) {
	t.Helper()
	zone := filepath.Join(m.Dir, "powercap", "intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		t.Fatal(err)
	}
	const first = 4_000_000_000_000_000
	text := func() string { return fmt.Sprintf("%d\n", first+m.energy.Load()) }
	for name, content := range map[string]string{
		"name": "package-0\n", "max_energy_range_uj": "9000000000000000\n", "energy_uj": text(),
	} {
		kit.Write(t, filepath.Join(zone, name), content)
	}
	file, err := os.OpenFile(filepath.Join(zone, "energy_uj"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer file.Close()
		began, before := time.Now(), node.CPUTime(m.Group)
		for t.Context().Err() == nil {
			time.Sleep(100 * time.Millisecond)
			cores := (node.CPUTime(m.Group) - before).Seconds()
			m.energy.Store(uint64(1e6 * (idleWatts*time.Since(began).Seconds() + coreWatts*cores)))
			_, _ = file.WriteAt([]byte(text()), 0)
		}
	}()
}
