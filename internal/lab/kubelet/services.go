package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// findFor is the maximum time to wait for a ready pod of a Service, which is sufficient for the restart of a
	// pod.
	findFor   = 5 * time.Second
	findEvery = 250 * time.Millisecond
	// dialFor is a generous timeout for a local port.
	dialFor = 2 * time.Second
)

// serviceAddress matches a port of a Service in URLs and addresses. The preceding byte must not be part of a name,
// because a name with more parts does not refer to a Service. The short form without "svc" is not matched, because
// it could be any host on the Internet.
var serviceAddress = regexp.MustCompile(
	`(^|[^A-Za-z0-9._-])([a-z0-9-]+)\.([a-z0-9-]+)\.svc(?:\.cluster\.local)?:([1-9][0-9]{0,4})\b`)

// servicePort is one port of one Service.
type servicePort struct {
	service types.NamespacedName
	port    int32
}

func (s servicePort) String() string { return fmt.Sprintf("%s:%d", s.service, s.port) }

// services maps ports of Services used by pods to ports of this machine.
type services struct {
	// targets returns the local ports of all ready pods of a Service port.
	targets func(context.Context, servicePort) ([]int, error)
	log     *slog.Logger

	ctx     context.Context // for all connections
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	here map[servicePort]int
}

func newServices(ctx context.Context, targets func(context.Context, servicePort) ([]int, error),
	log *slog.Logger,
) *services {
	s := &services{targets: targets, log: log, here: map[servicePort]int{}}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// stop closes all ports and connections and waits for their goroutines. rewrite must not be called afterwards.
func (s *services) stop() {
	s.cancel()
	s.running.Wait()
}

// rewrite replaces each port of a Service in a text with the corresponding port of this machine.
func (s *services) rewrite(text string) (string, error) {
	var b strings.Builder
	end := 0
	for _, m := range serviceAddress.FindAllStringSubmatchIndex(text, -1) {
		port, err := strconv.ParseUint(text[m[8]:m[9]], 10, 16)
		if err != nil {
			continue // not a valid port
		}
		name := types.NamespacedName{Name: text[m[4]:m[5]], Namespace: text[m[6]:m[7]]}
		here, err := s.listen(servicePort{name, int32(port)})
		if err != nil {
			return "", err
		}
		b.WriteString(text[end:m[4]])
		// Use a name, because certificates are valid for localhost and rarely for 127.0.0.1.
		fmt.Fprintf(&b, "localhost:%d", here)
		end = m[1]
	}
	b.WriteString(text[end:])
	return b.String(), nil
}

// listen returns the port of this machine for a port of a Service. The Service does not have to exist yet.
func (s *services) listen(of servicePort) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if here, ok := s.here[of]; ok {
		return here, nil
	}
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		return 0, fmt.Errorf("choosing a port for Service %s: %w", of, err)
	}
	here := l.Addr().(*net.TCPAddr).Port
	s.here[of] = here
	s.running.Go(func() { s.serve(l, of) })
	s.log.Info("Mapped a port of a Service to a local port", "service", of.String(), "port", here)
	return here, nil
}

// serve accepts connections until the services are stopped.
func (s *services) serve(l net.Listener, of servicePort) {
	defer context.AfterFunc(s.ctx, func() { l.Close() })()
	defer l.Close()
	for {
		switch conn, err := l.Accept(); {
		case err == nil:
			s.running.Go(func() { s.forward(conn.(*net.TCPConn), of) })
		case errors.Is(err, net.ErrClosed):
			return
		default: // no file descriptor is free, or the client disconnected
			s.log.Warn("Failed to accept a connection to a Service", "service", of.String(), "error", err)
			time.Sleep(findEvery)
		}
	}
}

// forward connects a client to a pod until both directions are closed.
func (s *services) forward(caller *net.TCPConn, of servicePort) {
	defer caller.Close()
	pod, err := s.connect(of)
	if err != nil {
		if s.ctx.Err() == nil {
			s.log.Warn("Failed to connect to a pod of a Service", "service", of.String(), "error", err)
		}
		return
	}
	defer pod.Close()
	closeBoth := func() {
		caller.Close()
		pod.Close()
	}
	defer context.AfterFunc(s.ctx, closeBoth)()
	var back sync.WaitGroup
	back.Go(func() { pass(caller, pod, closeBoth) })
	pass(pod, caller, closeBoth)
	back.Wait()
}

// pass copies data in one direction and propagates its end. The other direction may continue afterwards.
func pass(to, from *net.TCPConn, closeBoth func()) {
	_, err := io.Copy(to, from)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		closeBoth()
	}
}

// connect connects to a ready pod, waiting for one if necessary.
func (s *services) connect(of servicePort) (conn *net.TCPConn, err error) {
	_ = wait.PollUntilContextTimeout(s.ctx, findEvery, findFor, true, func(ctx context.Context) (bool, error) {
		conn, err = s.dial(ctx, of)
		return err == nil, nil
	})
	return conn, err
}

// dial tries all ready pods once in random order, like a Service distributes its connections.
func (s *services) dial(ctx context.Context, of servicePort) (*net.TCPConn, error) {
	targets, err := s.targets(ctx, of)
	if err != nil {
		return nil, err
	}
	err = errors.New("the Service has no ready pods")
	dialer := net.Dialer{Timeout: dialFor}
	for _, i := range rand.Perm(len(targets)) {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(targets[i]))); err == nil {
			return conn.(*net.TCPConn), nil
		}
	}
	return nil, err
}

// targets returns the local ports of the ready pods of a Service.
func (k *kubelet) targets(ctx context.Context, of servicePort) ([]int, error) {
	service, err := k.Client.CoreV1().Services(of.service.Namespace).Get(ctx, of.service.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	target, ok := targetPort(service, of.port)
	if !ok {
		return nil, fmt.Errorf("the Service has no TCP port %d", of.port)
	}
	if len(service.Spec.Selector) == 0 {
		return nil, errors.New("the Service selects no pods")
	}
	selector := labels.SelectorFromSet(service.Spec.Selector)
	k.mu.Lock()
	defer k.mu.Unlock()
	var targets []int
	for _, p := range k.pods {
		if port, ok := p.behind(service.Namespace, selector, target); ok {
			targets = append(targets, port)
		}
	}
	return targets, nil
}

// targetPort returns the pods' port for a port of the Service.
func targetPort(service *corev1.Service, port int32) (intstr.IntOrString, bool) {
	for _, p := range service.Spec.Ports {
		if p.Port == port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
			return p.TargetPort, true
		}
	}
	return intstr.IntOrString{}, false
}

// behind returns the local port of the pod if it is ready and selected by the Service.
func (p *pod) behind(namespace string, selector labels.Selector, target intstr.IntOrString) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest.Namespace != namespace || !selector.Matches(labels.Set(p.latest.Labels)) ||
		p.term.Err() != nil || !p.state.ready(p.latest) {
		return 0, false
	}
	for i := range p.latest.Spec.Containers {
		if port, err := p.ports.probed(&p.latest.Spec.Containers[i], target); err == nil {
			return port, true
		}
	}
	return 0, false
}
