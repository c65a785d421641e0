package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
	_ "github.com/kubenergy/kubenergy/internal/lab/quiet" // before k8s.io/apiserver is initialized
)

var (
	// ErrStarted is returned by a second Start in the same process; see the package comment.
	ErrStarted = errors.New("this process has already started a lab cluster")

	errEnded   = errors.New("ended unexpectedly")
	errStopped = errors.New("the cluster is stopped")
)

const (
	pollInterval = 20 * time.Millisecond
	// readyTimeout limits the startup time of each component. On two idle cores the slowest takes about ten
	// seconds; next to compilers it took more than two minutes.
	readyTimeout = 5 * time.Minute
)

// Options configures a Cluster.
type Options struct {
	// Dir is the directory for all files: etcd's data, keys, kubeconfig and logs. It is created with access for the
	// current user only if it does not exist, and must not contain a previous cluster. Stop does not remove it. The
	// path must be short, because it contains etcd's socket.
	Dir string
	// Address is the listen address of kube-apiserver. It defaults to 127.0.0.1; nodes in other network namespaces
	// require another one.
	Address string
	// APIServerArgs contains additional flags of kube-apiserver.
	APIServerArgs []string
	// ControllerManagerArgs contains additional flags of kube-controller-manager, e.g. --kube-api-qps=1000
	// --kube-api-burst=1000; its defaults of 20 and 30 limit bursts of Jobs.
	ControllerManagerArgs []string
	// ControlPlaneOnly disables kube-controller-manager and the simulation of nodes. Objects are not modified after
	// they are created, and no component sends requests to the API server.
	ControlPlaneOnly bool
	// Processes selects pods that run as processes on this machine. All others are simulated.
	Processes kubelet.Programs
}

// Cluster is a running control plane with simulated nodes. It is safe for concurrent use.
type Cluster struct {
	dir    string
	creds  *credentials
	config *rest.Config
	client kubernetes.Interface
	logs   *sink

	network kubelet.Network // for pods that run as processes

	parts []*component // in the order they were started
	done  chan struct{}
	end   func() // closes done once

	mu         sync.Mutex
	schedulers []*component
	stopped    bool
	stopErr    error
}

var started atomic.Bool

// Start starts a cluster and returns when all of it is ready: the API server's /readyz, the default service account
// and the node simulation. ctx only applies to the startup. If Start fails, no component keeps running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Dir == "" {
		return nil, errors.New("starting the lab: no directory specified")
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
		return nil, fmt.Errorf("starting the lab: %s contains a previous cluster; remove it or choose "+
			"another directory", dir)
	}
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.Chmod(dir, 0o700) // it may have existed with other permissions
	}
	if err != nil {
		return nil, fmt.Errorf("starting the lab: %w", err)
	}
	if started.Swap(true) {
		return nil, ErrStarted
	}
	c := &Cluster{dir: dir, done: make(chan struct{})}
	c.end = sync.OnceFunc(func() { close(c.done) })
	if c.logs, err = newSink(dir); err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	c.logs.captureLogs()
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("%w (log: %s)", err, filepath.Join(dir, logName)), c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	var err error
	if c.creds, err = newCredentials(c.dir, o.Address); err != nil {
		return fmt.Errorf("creating credentials: %w", err)
	}
	etcd, endpoint, err := startEtcd(ctx, c.dir, c.logs)
	if err := c.add(etcd, err); err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	if err := c.startAPIServer(ctx, endpoint, o); err != nil {
		return fmt.Errorf("starting kube-apiserver: %w", err)
	}
	if o.ControlPlaneOnly {
		return nil
	}
	manager, err := startControllerManager(ctx, c.client, c.creds, o.ControllerManagerArgs)
	if err := c.add(manager, err); err != nil {
		return fmt.Errorf("starting kube-controller-manager: %w", err)
	}
	nodes, err := startKwok(ctx, c.creds.kubeconfig, c.logs, o.Processes)
	if err := c.add(nodes, err); err != nil {
		return fmt.Errorf("starting kwok: %w", err)
	}
	if len(o.Processes.Images) > 0 {
		pods := startComponent(ctx, "kubelet",
			func(ctx context.Context) error { return kubelet.Run(ctx, *c.kubelet(o.Processes)) })
		if err := c.add(pods, nil); err != nil {
			return err
		}
	}
	return nil
}

// maxConnections limits the connections of a listener of the lab. All of its clients share an address.
const maxConnections = 20_000

func (c *Cluster) startAPIServer(ctx context.Context, etcd string, o Options) error {
	// The listener is opened here rather than in the options, so that the port is known and cannot be taken in
	// between.
	l, err := daemon.Listen(cmp.Or(o.Address, "127.0.0.1")+":0", maxConnections, maxConnections)
	if err != nil {
		return err
	}
	if c.config, err = c.creds.writeKubeconfig("https://" + l.Addr().String()); err == nil {
		c.client, err = kubernetes.NewForConfig(c.config)
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	server, err := runAPIServer(ctx, l, etcd, c.creds, c.network.DialContext, o.APIServerArgs)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return c.add(server, server.wait(ctx, apiReady(c.client)))
}

// add transfers the ownership of a part to c, whether it is ready or not, and monitors it.
func (c *Cluster) add(p *component, err error) error {
	if p == nil {
		return err
	}
	c.parts = append(c.parts, p)
	go func() { // ends with the part; Stop waits for it
		<-p.done
		c.end()
	}()
	return err
}

// Done returns a channel that is closed when a part of the control plane, excluding schedulers, has ended, either
// by Stop or prematurely. In the latter case, Stop returns the error.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Config returns a copy of the administrator's client configuration without a client-side rate limit.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of the administrator's kubeconfig, for kubectl.
func (c *Cluster) Kubeconfig() string { return c.creds.kubeconfig }

// Stop stops the schedulers, the pods that run as processes, the nodes, the controllers, the API server and etcd in
// this order, and waits for each of them. It returns the errors of parts that ended prematurely. It is idempotent.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return c.stopErr
	}
	c.stopped = true
	var errs []error
	for _, p := range slices.Backward(slices.Concat(c.parts, c.schedulers)) {
		errs = append(errs, p.stop())
	}
	errs = append(errs, c.logs.close())
	c.stopErr = errors.Join(errs...)
	return c.stopErr
}
