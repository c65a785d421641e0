package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
)

// testKubelet returns a kubelet with a fake API server that contains the given Services.
func testKubelet(t *testing.T, all ...*corev1.Service) *kubelet {
	client := fake.NewClientset()
	for _, s := range all {
		if _, err := client.CoreV1().Services(s.Namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	k := &kubelet{Options: Options{Client: client, Log: slog.New(slog.DiscardHandler)}, pods: map[types.UID]*pod{}}
	k.services = newServices(t.Context(), k.targets, k.Log)
	t.Cleanup(k.services.stop)
	return k
}

func serviceOf(name, app string, targets ...intstr.IntOrString) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}}
	if app != "" {
		s.Spec.Selector = map[string]string{"app": app}
	}
	for i, target := range targets {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: target.String(), Port: int32(80 + i), TargetPort: target,
		})
	}
	return s
}

// add adds a ready pod. Its port 8443, named api, is mapped to the port here.
func (k *kubelet) add(t *testing.T, namespace, name, app string, here int) *pod {
	object := podOf("x")
	object.Namespace, object.Name, object.UID = namespace, name, types.UID(namespace+"/"+name)
	object.Labels = map[string]string{"app": app, "other": "label"}
	object.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "api", ContainerPort: 8443}}
	p := k.newPod(t.Context(), object)
	t.Cleanup(p.gone)
	p.ports = ports{8443: here}
	p.state.containers["a"].run(1, true, true)
	k.pods[object.UID] = p
	return p
}

// answering starts a listener that responds to each client with its name and the received data.
func answering(t *testing.T, name string) int {
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				heard, _ := io.ReadAll(conn)
				fmt.Fprintf(conn, "%s heard %s", name, heard)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// The function say sends a text to an address, closes its own direction, and returns the response.
func say(t *testing.T, host, text string) string {
	t.Helper()
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Errorf("reading the response of %s: %v", host, err)
	}
	return string(answer)
}

func TestServiceNames(t *testing.T) {
	s := testKubelet(t).services
	at := func(service, namespace string, port int32) string {
		here, err := s.listen(servicePort{types.NamespacedName{Namespace: namespace, Name: service}, port})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("localhost:%d", here)
	}
	api, other, far := at("api", "ns", 9443), at("api", "ns", 80), at("api", "far-away", 9443)
	for text, want := range map[string]string{
		"--url=https://api.ns.svc:9443":                       "--url=https://" + api,
		"https://api.ns.svc.cluster.local:9443/api/v1?x=1":    "https://" + api + "/api/v1?x=1",
		"api.ns.svc:9443,api.ns.svc:80,api.far-away.svc:9443": api + "," + other + "," + far,
		"api.ns.svc":                    "api.ns.svc",
		"--server-name=api.ns.svc":      "--server-name=api.ns.svc",
		"pod-0.api.ns.svc:9443":         "pod-0.api.ns.svc:9443",
		"api.ns.svc.example.org:9443":   "api.ns.svc.example.org:9443",
		"api.ns.svc.cluster.other:9443": "api.ns.svc.cluster.other:9443",
		"api.ns.svc:65536":              "api.ns.svc:65536",
		"api.ns.svc:944300":             "api.ns.svc:944300",
		"example.org:443":               "example.org:443",
		"":                              "",
	} {
		if got, err := s.rewrite(text); err != nil || got != want {
			t.Errorf("rewrite(%s) = %s, error %v, want %s", text, got, err, want)
		}
	}
	if len(s.here) != 3 {
		t.Errorf("unexpected mapped ports: %v", s.here)
	}
}

// TestServiceInPod uses a Service in all places supported in a container.
func TestServiceInPod(t *testing.T) {
	k := testKubelet(t)
	p := k.add(t, "ns", "caller", "caller", 1)
	c := &p.latest.Spec.Containers[0]
	c.Args = []string{"--listen-address=:8443", "--url=https://$(HOST):9443/x"}
	c.Env = []corev1.EnvVar{{Name: "HOST", Value: "api.ns.svc"}, {Name: "URL", Value: "https://api.ns.svc:9443"}}
	cmd, err := p.command(t.Context(), c, "program")
	if err != nil {
		t.Fatal(err)
	}
	here := k.services.here[servicePort{types.NamespacedName{Namespace: "ns", Name: "api"}, 9443}]
	if here == 0 {
		t.Fatalf("unexpected mapped ports: %v", k.services.here)
	}
	got := append(cmd.Args[1:], cmd.Env[len(cmd.Env)-2:]...)
	want := []string{
		"--listen-address=127.0.0.1:1", fmt.Sprintf("--url=https://localhost:%d/x", here), "HOST=api.ns.svc",
		fmt.Sprintf("URL=https://localhost:%d", here),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTargets(t *testing.T) {
	number, name, unknown := intstr.FromInt32(8443), intstr.FromString("api"), intstr.FromString("unknown")
	k := testKubelet(t, serviceOf("api", "x", number, name, unknown), serviceOf("none", "nobody", number),
		serviceOf("external", "", number))
	k.add(t, "ns", "ready", "x", 41)
	k.add(t, "ns", "other-app", "y", 42)
	k.add(t, "far-away", "other-namespace", "x", 43)
	k.add(t, "ns", "not-ready", "x", 44).state.containers["a"].ready = false
	k.add(t, "ns", "ending", "x", 45).stop(time.Hour)
	for of, want := range map[string]struct {
		targets []int
		err     string
	}{
		"api:80":      {targets: []int{41}},
		"api:81":      {targets: []int{41}},
		"api:82":      {},
		"api:83":      {err: "no TCP port 83"},
		"none:80":     {},
		"external:80": {err: "selects no pods"},
		"absent:80":   {err: "not found"},
	} {
		service, port, _ := strings.Cut(of, ":")
		sp := servicePort{service: types.NamespacedName{Namespace: "ns", Name: service}}
		if _, err := fmt.Sscan(port, &sp.port); err != nil {
			t.Fatal(err)
		}
		got, err := k.targets(t.Context(), sp)
		if !cmp.Equal(got, want.targets) {
			t.Errorf("targets(%s) = %v, want %v", of, got, want.targets)
		}
		if (err != nil) != (want.err != "") || err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("targets(%s) returned error %v, want %q", of, err, want.err)
		}
	}
}

// TestForward connects to a Service with one pod, without any, and with a later one.
func TestForward(t *testing.T) {
	k := testKubelet(t, serviceOf("api", "x", intstr.FromString("api")))
	first := k.add(t, "ns", "first", "x", answering(t, "first"))
	host, err := k.services.rewrite("api.ns.svc:80")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("0123456789", 1<<17)
	if got := say(t, host, long); got != "first heard "+long {
		t.Errorf("unexpected response of %d bytes: %.40q", len(got), got)
	}
	first.gone()
	later := time.AfterFunc(3*findEvery, func() {
		here := answering(t, "second")
		k.mu.Lock()
		defer k.mu.Unlock()
		k.add(t, "ns", "second", "x", here)
	})
	defer later.Stop()
	if got := say(t, host, "hello"); got != "second heard hello" {
		t.Errorf("unexpected response to a client that waits for a ready pod: %q", got)
	}
}

// TestForwardEnds verifies that connections to a Service without pods are closed, and all connections when the lab
// stops.
func TestForwardEnds(t *testing.T) {
	there := answering(t, "pod")
	s := newServices(t.Context(), func(_ context.Context, of servicePort) ([]int, error) {
		if of.port == 80 {
			return []int{there}, nil
		}
		return nil, errors.New("Service not found")
	}, slog.New(slog.DiscardHandler))
	text, err := s.rewrite("api.ns.svc:80 api.ns.svc:81")
	if err != nil {
		t.Fatal(err)
	}
	hosts := strings.Fields(text)
	if began, got := time.Now(), say(t, hosts[1], ""); got != "" || time.Since(began) < findFor/2 {
		t.Errorf("unexpected response without a pod: %q after %v", got, time.Since(began))
	}
	if got := say(t, hosts[0], "hello"); got != "pod heard hello" {
		t.Errorf("unexpected response of a pod: %q", got)
	}
	for _, host := range hosts { // one has a pod, the other is waiting for one
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	time.Sleep(2 * findEvery) // both have been accepted
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.stop()
	}()
	select {
	case <-ended:
	case <-time.After(findFor / 2):
		t.Fatal("a connection is still open after stop()")
	}
	for _, host := range hosts {
		if late, err := net.Dial("tcp", host); err == nil {
			late.Close()
			t.Errorf("%s is still listening after stop()", host)
		}
	}
}
