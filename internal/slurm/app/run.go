package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/controller"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/standalone"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// parts are the components of the program. Those in below are the API of objects and the controller. Those in above
// are the driver and its recorder, which need the former and are stopped first.
type parts struct{ below, above []func(context.Context) error }

// Run runs all components until ctx is done or one of them returns.
func Run(ctx context.Context, f *Flags, log *slog.Logger) error {
	all, err := newParts(f, log)
	if err != nil {
		return err
	}
	below, belowCtx := errgroup.WithContext(context.WithoutCancel(ctx))
	belowCtx, stop := context.WithCancel(belowCtx)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	for _, part := range all.below {
		below.Go(func() error {
			defer end()
			return part(belowCtx)
		})
	}
	above, ctx := errgroup.WithContext(ctx)
	for _, part := range all.above {
		above.Go(func() error { return part(ctx) })
	}
	err = above.Wait()
	stop()
	return errors.Join(err, below.Wait())
}

func newParts(f *Flags, log *slog.Logger) (*parts, error) {
	state := f.Controller.State
	token, err := ownToken(filepath.Join(state, "token"))
	reader, errReader := ownToken(filepath.Join(state, "reader-token"))
	if err = errors.Join(err, errReader); err != nil {
		return nil, err
	}
	store, err := standalone.New(standalone.Options{
		Folder: f.folder, State: filepath.Join(state, "objects.json"), Token: token, Reader: reader, API: f.ownAPI(),
		Log: log,
	})
	if err != nil {
		return nil, err
	}
	if err := holdLease(store); err != nil {
		return nil, err
	}
	listener, authority, err := listen(f.listen)
	if err != nil {
		return nil, fmt.Errorf("--objects-bind-address: %w", err)
	}
	api := &rest.Config{
		Host: "https://" + listener.Addr().String(), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: authority},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	}
	driver, recorder, objects, errDriver := f.newDriver(api, store, log)
	if err := errors.Join(writeKubeconfig(filepath.Join(state, "kubeconfig"), api), errDriver); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	beats := new(daemon.Heartbeats)
	options := f.Controller
	options.Group, options.Beats = driver.Account, beats
	objectsServer := newObjectsServer(store, log)
	return &parts{below: []func(context.Context) error{
		store.Run, func(ctx context.Context) error {
			objectsServer.BaseContext = func(net.Listener) context.Context { return ctx } // ends watches
			return daemon.Serve(ctx, listener, objectsServer)
		},
		func(ctx context.Context) error { return objects.Run(beats.Loop(ctx, "watch of objects")) },
		func(ctx context.Context) error { return controller.Run(ctx, api, options, log) },
		func(ctx context.Context) error {
			beats.Watch(ctx, log, func() { os.Exit(1) }) // systemd restarts the process, but does not probe it
			return nil
		},
	}, above: []func(context.Context) error{
		func(ctx context.Context) error { return driver.Run(beats.Loop(ctx, "slurm")) }, recorder.Run,
	}}, nil
}

func newObjectsServer(store *standalone.Server, log *slog.Logger) *http.Server {
	s := daemon.NewServer(store, log)
	s.ReadTimeout, s.WriteTimeout = 0, 0 // for long-running watches
	return s
}

// holdLease stores the Lease of the scheduler, so that the controller and the CLI assume that held Jobs are
// released. It does not expire while this process runs. Leases are not written to disk, so it disappears with the
// process.
func holdLease(store *standalone.Server) error {
	lease := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"holderIdentity": "kubenergy-slurm", "leaseDurationSeconds": int64(math.MaxInt32),
		"renewTime": time.Now().UTC().Format(metav1.RFC3339Micro),
	}}}
	kind := coordinationv1.SchemeGroupVersion.WithKind("Lease")
	lease.SetGroupVersionKind(kind)
	lease.SetNamespace(v1alpha1.SystemNamespace)
	lease.SetName(kube.Scheduler)
	return store.Put(kind, lease)
}

func (f *Flags) newDriver(api *rest.Config, store *standalone.Server, log *slog.Logger,
) (*slurm.Driver, *record.Recorder, *kube.Objects, error) {
	objects, errObjects := kube.NewObjects(api, log)
	client, errClient := slurm.NewClient(f.client)
	recorder, errRecorder := record.New(apiclient.Options{
		URL: f.apiURL().String(), TokenFile: filepath.Join(f.Controller.State, "token"), CAFile: f.apiCert(),
	}, log)
	if err := errors.Join(errObjects, errClient, errRecorder); err != nil {
		return nil, nil, nil, err
	}
	shown := mirror{store}
	f.power.Profile = func(n *slurm.Node) *energy.Profile {
		all, _ := n.Resources()
		current := asNode(n)
		node, _ := objects.View().Node(&current, all, sched.Resources{}, 0)
		return node.Profile
	}
	seen, err := f.newBackends(store, objects, recorder)
	if err != nil {
		return nil, nil, nil, err
	}
	if f.powerRecord != "" {
		file, err := os.OpenFile(f.powerRecord, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--slurm-power-record: %w", err)
		}
		f.power.Record = power.RecordTo(file, log)
	}
	driver := slurm.New(slurm.Options{
		Client: client, State: filepath.Join(f.Controller.State, "slurm.json"), Every: f.every, Conf: f.conf,
		Power: f.power,
		Rules: func() (*policy.Rules, bool) {
			view := objects.View()
			return &view.Rules, view.Settled()
		},
		Record: func(r ledger.Record, on *sched.Snapshot) { recorder.Record(&record.Entry{Record: r, Question: on}) },
		Show:   shown.show, Seen: seen, RunNow: shown.runNow, Now: time.Now, Log: log, Registerer: metrics.Registry,
	})
	return driver, recorder, objects, nil
}

// newBackends returns a function for [slurm.Options.Seen] that places the jobs of POST /ingest, or nil if POST
// /ingest is disabled.
func (f *Flags) newBackends(store *standalone.Server, objects *kube.Objects, recorder *record.Recorder,
) (func(context.Context, []slurm.Node, []slurm.Job) error, error) {
	if len(f.Controller.Ingest) == 0 {
		return nil, nil
	}
	w := &backends{
		store: store, view: objects.View, now: time.Now,
		record: func(r ledger.Record) { recorder.Record(&record.Entry{Record: r, NoSnapshot: "of two worlds"}) },
	}
	account, err := slurm.NewClient(slurm.ClientOptions{URL: f.client.URL, TokenFile: f.ingestToken})
	if err != nil {
		return nil, fmt.Errorf("--ingest-token-file: %w", err)
	}
	w.account = account
	if f.ingestCluster == "" {
		return w.look, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", f.ingestCluster)
	if err == nil {
		config.QPS, config.Timeout = -1, 10*time.Second // requests delay the pass over Slurm's queue
		w.cluster, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("--ingest-kubeconfig: %w", err)
	}
	return w.look, nil
}

// asNode converts a Slurm node to a Kubernetes node with its Features as labels.
func asNode(n *slurm.Node) v1.Node {
	labels := map[string]string{v1.LabelHostname: n.Name}
	for _, feature := range n.FeatureNames() {
		labels[feature] = "true"
	}
	return v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels}}
}

// ownToken returns the token in the file. It generates the file if it does not exist.
func ownToken(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		const private = 0o700
		text = []byte(rand.Text())
		if err = os.MkdirAll(filepath.Dir(file), private); err == nil {
			err = renameio.WriteFile(file, text, 0o600)
		}
	}
	if err != nil {
		return "", fmt.Errorf("--state-dir: %w", err)
	}
	return string(text), nil
}

// writeKubeconfig writes a kubeconfig with which commands of kubenergy connect to this process.
func writeKubeconfig(file string, api *rest.Config) error {
	const name = "slurm"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: api.Host, CertificateAuthorityData: api.CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: api.BearerToken}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, file)
}

// listen listens on a loopback address with a self-signed certificate that is generated for this process.
func listen(address string) (l net.Listener, authority []byte, err error) {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || !ip.IsLoopback() {
		return nil, nil, fmt.Errorf("%q is not a loopback address: want an address such as 127.0.0.1:9444", address)
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{ip}, nil)
	if err != nil {
		return nil, nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, nil, err
	}
	const connections = 1024 // all local
	if l, err = daemon.Listen(address, connections, connections); err != nil {
		return nil, nil, err
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
	}), cert, nil
}

// apiURL returns the URL of the controller's API in this process. Its host name matches the certificate.
func (f *Flags) apiURL() *url.URL {
	_, port, _ := net.SplitHostPort(f.Controller.API) // checked by Validate
	name := "localhost"
	pair, err := tls.LoadX509KeyPair(f.Controller.APICert, f.Controller.APIKey) // possibly without localhost
	if err == nil && pair.Leaf.VerifyHostname(name) != nil && len(pair.Leaf.DNSNames) > 0 {
		name = pair.Leaf.DNSNames[0]
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(name, port)}
}

func (f *Flags) apiCert() string {
	return cmp.Or(f.Controller.APICert, filepath.Join(f.Controller.State, "api.crt"))
}

// ownAPI returns a proxy that forwards requests for the controller's API.
func (f *Flags) ownAPI() http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(f.apiURL())
	proxy.Transport = &http.Transport{
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			pool, err := certutil.NewPool(f.apiCert()) // renewed before it expires
			if err != nil {
				return nil, err
			}
			d := tls.Dialer{Config: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}} // verifies the host name
			return d.DialContext(ctx, network, address)
		},
	}
	return proxy
}
