// Package karmada tests with a real Karmada, built from the checkout in KARMADA_SRC, that work is sent to the
// cluster with the lowest cost at the right time and that no work is lost if programs fail.
package karmada

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
)

const planeEnv = "KUBENERGY_TEST_PLANE" // options of the control plane that the process runs

// planeOptions configures a control plane that runs in its own process, because a process can run only one.
type planeOptions struct {
	Dir           string
	API, Managers []string
	Nodes         []lab.NodeSpec
	Schedules     bool
}

func TestMain(m *testing.M) {
	if text := os.Getenv(planeEnv); text != "" {
		if err := plane(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func plane(text string) error {
	var o planeOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := lab.Start(ctx, lab.Options{Dir: o.Dir, APIServerArgs: o.API, ControllerManagerArgs: o.Managers})
	if err != nil {
		return err
	}
	defer func() { _ = c.Stop() }()
	if err := c.AddNodes(ctx, o.Nodes); err != nil {
		return err
	}
	if o.Schedules {
		if _, err := c.StartScheduler(ctx, lab.Scheduler{}); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(o.Dir, "ready"), nil, 0o600); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// server is an API server of a federation, either Karmada's or that of a member.
type server struct {
	*kit.Process
	kubeconfig string
	config     *rest.Config
	client     kubernetes.Interface
	dynamic    dynamic.Interface
}

func startPlane(t *testing.T, name string, o planeOptions) (ready func() *server) {
	t.Helper()
	o.Dir = kit.Dir(t, name)
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), planeEnv+"="+string(text))
	p := kit.Start(t, o.Dir, name, cmd)
	return func() *server {
		kit.Eventually(t, 2*time.Minute, name+" is ready", func() bool {
			_, err := os.Stat(filepath.Join(o.Dir, "ready"))
			return err == nil
		}, p)
		s := &server{Process: p, kubeconfig: filepath.Join(o.Dir, "kubeconfig")}
		if s.config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
			t.Fatal(err)
		}
		s.config.QPS = -1
		s.client, s.dynamic = kubernetes.NewForConfigOrDie(s.config), dynamic.NewForConfigOrDie(s.config)
		return s
	}
}

// federation is a real Karmada with members.
type federation struct {
	*server
	t       *testing.T
	bin     string
	pki     *pki
	dir     string
	members map[string]*server
}

// member configures a cluster of the federation.
type member struct {
	name, region, site string
	nodes              []lab.NodeSpec
	lies               bool      // run no scheduler for its pods
	link               *kit.Link // network link from Karmada to the member, nil for a direct connection
}

// binaries builds the programs of Karmada from the checkout unless they exist.
func binaries(t *testing.T) (bin, src string) {
	t.Helper()
	src = os.Getenv("KARMADA_SRC")
	if src == "" {
		t.Skip("requires a real Karmada: set KARMADA_SRC to a checkout of github.com/karmada-io/karmada (v1.19)")
	}
	bin = os.Getenv("KARMADA_BIN")
	if bin == "" {
		bin = filepath.Join(kit.Root, "out", "karmada")
	}
	programs := []string{
		"aggregated-apiserver", "controller-manager", "karmadactl", "scheduler", "scheduler-estimator", "webhook",
	}
	var missing []string
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(bin, p)); err != nil {
			missing = append(missing, "./cmd/"+p)
		}
	}
	if len(missing) == 0 {
		return bin, src
	}
	t.Logf("building %s, which takes about six minutes on one core", strings.Join(missing, ", "))
	cmd := exec.Command("go", append([]string{
		"build", "-p", "1", "-mod=vendor", "-trimpath", "-ldflags", "-s -w", "-o", bin + "/",
	}, missing...)...)
	cmd.Dir, cmd.Env = src, append(os.Environ(), "GOPROXY=off", "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building Karmada: %v\n%s", err, out)
	}
	return bin, src
}

// start starts Karmada in the configuration of its installer and joins the members.
func start(t *testing.T, members ...member) *federation {
	t.Helper()
	bin, src := binaries(t)
	f := &federation{t: t, bin: bin, dir: kit.Dir(t, "karmada"), members: map[string]*server{}}
	f.pki = newPKI(t, f.dir)
	wait := map[string]func() *server{}
	for _, m := range members {
		wait[m.name] = startPlane(t, m.name, planeOptions{Nodes: m.nodes, Schedules: !m.lies})
	}
	f.server = startPlane(t, "cp", planeOptions{
		API: []string{
			"--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount",
			"--proxy-client-cert-file=" + f.pki.file("front.crt"), "--proxy-client-key-file=" + f.pki.file("front.key"),
			"--requestheader-client-ca-file=" + f.pki.file("front-ca.crt"),
		},
		// Other controllers would create pods of Deployments and Jobs in the control plane of Karmada.
		Managers: []string{
			"--controllers=namespace,garbagecollector,serviceaccount,serviceaccount-token,ttl-after-finished," +
				"clusterrole-aggregation",
		},
	})()
	for name, ready := range wait {
		f.members[name] = ready()
	}
	f.install(src)
	for _, m := range members {
		f.karmadactl("join", m.name, "--cluster-kubeconfig", f.reaches(m))
		patch := fmt.Sprintf(`{"metadata":{"labels":{"kubenergy.io/site":%q}},"spec":{"region":%q}}`, m.site, m.region)
		f.patch(f.t, clusters, "", m.name, patch)
	}
	f.await(time.Minute, "all members are ready", func() bool {
		for name := range f.members {
			if !f.clusterReady(name) {
				return false
			}
		}
		return true
	})
	return f
}

// reaches returns the kubeconfig that Karmada uses to access a member.
func (f *federation) reaches(m member) string {
	f.t.Helper()
	s := f.members[m.name]
	if m.link == nil {
		return s.kubeconfig
	}
	m.link.Start(f.t, s.config.Host)
	return m.link.Kubeconfig(f.t, s.kubeconfig)
}

func (f *federation) install(src string) {
	f.t.Helper()
	f.applyFolder(f.t, filepath.Join(src, "charts", "karmada", "_crds", "bases"))
	aggregated, webhook := kit.Address(f.t), kit.Address(f.t)
	port := func(address string) string { _, p, _ := net.SplitHostPort(address); return p }
	ca := base64.StdEncoding.EncodeToString(f.pki.read("ca.crt"))
	f.apply(f.t, fmt.Appendf(nil, `
{apiVersion: v1, kind: Namespace, metadata: {name: karmada-system}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: karmada-cluster}}
---
apiVersion: v1
kind: Service
metadata: {name: karmada-aggregated-apiserver, namespace: karmada-system}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.cluster.karmada.io, labels: {app: karmada-aggregated-apiserver, apiserver: "true"}}
spec:
  caBundle: %s
  group: cluster.karmada.io
  groupPriorityMinimum: 2000
  service: {name: karmada-aggregated-apiserver, namespace: karmada-system, port: %s}
  version: v1alpha1
  versionPriority: 10
`, ca, port(aggregated)))
	f.program("aggregated-apiserver", "--kubeconfig="+f.kubeconfig, "--authentication-kubeconfig="+f.kubeconfig,
		"--authorization-kubeconfig="+f.kubeconfig, "--etcd-servers=unix://"+filepath.Dir(f.kubeconfig)+"/etcd.sock",
		"--tls-cert-file="+f.pki.file("tls.crt"), "--tls-private-key-file="+f.pki.file("tls.key"),
		"--bind-address=127.0.0.1", "--secure-port="+port(aggregated))
	f.program("webhook", "--kubeconfig="+f.kubeconfig, "--bind-address=127.0.0.1", "--secure-port="+port(webhook),
		"--cert-dir="+f.pki.dir, "--metrics-bind-address=0", "--health-probe-bind-address="+kit.Address(f.t),
		"--allow-no-execute-taint-policy=true")
	f.await(time.Minute, "the aggregated API is available", func() bool {
		_, err := f.client.Discovery().ServerResourcesForGroupVersion("cluster.karmada.io/v1alpha1")
		return err == nil
	})
	//nolint:misspell // the directory of Karmada has this name
	text, err := os.ReadFile(filepath.Join(src, "artifacts", "deploy", "webhook-configuration.yaml"))
	if err != nil {
		f.t.Fatal(err)
	}
	f.await(time.Minute, "the webhook accepts connections", func() bool {
		c, err := net.DialTimeout("tcp", webhook, time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	f.apply(f.t, []byte(strings.NewReplacer("https://karmada-webhook.karmada-system.svc:443", "https://"+webhook,
		"{{caBundle}}", ca).Replace(string(text))))
	// The tests run hours of work in minutes. The default rate limits, status update intervals, condition
	// thresholds and retry delays of Karmada would distort the results.
	f.program("controller-manager", "--kubeconfig="+f.kubeconfig, "--cluster-status-update-frequency=1s",
		"--cluster-failure-threshold=10s", "--cluster-success-threshold=10s",
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--cluster-api-qps=1000", "--cluster-api-burst=1000",
		"--rate-limiter-qps=1000", "--rate-limiter-bucket-size=1000", "--rate-limiter-max-delay=5s",
		"--metrics-bind-address=0", "--health-probe-bind-address="+kit.Address(f.t),
		"--enable-no-execute-taint-eviction=true", "--feature-gates=Failover=true")
}

// scheduler starts karmada-scheduler with estimators enabled.
func (f *federation) scheduler() *kit.Process {
	f.t.Helper()
	return f.plainScheduler("--enable-scheduler-estimator=true", "--insecure-skip-estimator-verify=true")
}

// estimator starts the official estimator of Karmada for a member.
func (f *federation) estimator(name string) *kit.Process {
	f.t.Helper()
	_, port, _ := net.SplitHostPort(kit.Address(f.t))
	f.announce(name, port)
	return f.program("scheduler-estimator", "--kubeconfig="+f.members[name].kubeconfig, "--cluster-name="+name,
		"--server-port="+port, "--grpc-auth-cert-file="+f.pki.file("tls.crt"), "--grpc-auth-key-file="+f.pki.file("tls.key"),
		"--insecure-skip-grpc-client-verify=true", "--metrics-bind-address="+kit.Address(f.t),
		"--health-probe-bind-address="+kit.Address(f.t))
}

// announce creates the Service through which karmada-scheduler discovers the estimator of a member.
func (f *federation) announce(name, port string) {
	f.t.Helper()
	f.apply(f.t, fmt.Appendf(nil, `
apiVersion: v1
kind: Service
metadata: {name: karmada-scheduler-estimator-%s, namespace: karmada-system}
spec: {type: ExternalName, externalName: localhost, ports: [{name: grpc, port: 10352, targetPort: %s}]}
`, name, port))
}

// standIn starts the karmada-scheduler that deploy/karmada/host.yaml provides as a fallback for kubenergy-karmada.
// It does not use estimators, because at startup it would wait ten seconds for each estimator that does not
// respond.
func (f *federation) standIn() *kit.Process {
	f.t.Helper()
	return f.plainScheduler("--scheduler-name=kubenergy", "--leader-elect-resource-name="+karmada.LeaseName)
}

func (f *federation) plainScheduler(args ...string) *kit.Process {
	f.t.Helper()
	return f.program("scheduler", append([]string{
		"--kubeconfig=" + f.kubeconfig, "--metrics-bind-address=" + kit.Address(f.t),
		"--health-probe-bind-address=" + kit.Address(f.t), "--enable-empty-workload-propagation=false",
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--rate-limiter-qps=1000", "--rate-limiter-bucket-size=1000",
	}, args...)...)
}

func (f *federation) program(name string, args ...string) *kit.Process {
	f.t.Helper()
	return kit.Start(f.t, f.dir, name, exec.Command(filepath.Join(f.bin, name), args...))
}

func (f *federation) await(within time.Duration, what string, done func() bool) {
	f.t.Helper()
	kit.Eventually(f.t, within, what, done, f.Process)
}

func (f *federation) karmadactl(args ...string) {
	f.t.Helper()
	cmd := exec.Command(filepath.Join(f.bin, "karmadactl"), append([]string{"--kubeconfig", f.kubeconfig}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.t.Fatalf("karmadactl %v: %v\n%s", args, err, out)
	}
}

// pki contains the certificates that the installer of Karmada creates: an authority, a server certificate and the
// certificates of the front proxy.
type pki struct {
	t   *testing.T
	dir string
}

func newPKI(t *testing.T, dir string) *pki {
	t.Helper()
	p := &pki{t, filepath.Join(dir, "pki")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ca, caKey := p.make("ca", nil, nil)
	p.make("tls", ca, caKey)
	front, frontKey := p.make("front-ca", nil, nil)
	p.make("front", front, frontKey)
	return p
}

func (p *pki) file(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) read(name string) []byte {
	data, err := os.ReadFile(p.file(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

func (p *pki) make(name string, authority *x509.Certificate, authorityKey *ecdsa.PrivateKey,
) (*x509.Certificate, *ecdsa.PrivateKey) {
	p.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "front-proxy-client"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		DNSNames:    []string{"localhost", "karmada-aggregated-apiserver.karmada-system.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:        authority == nil, BasicConstraintsValid: true,
	}
	if authority == nil {
		c.Subject.CommonName = name
		authority, authorityKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, authorityKey)
	if err != nil {
		p.t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		p.t.Fatal(err)
	}
	for suffix, block := range map[string]*pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "EC PRIVATE KEY", Bytes: raw},
	} {
		kit.Write(p.t, p.file(name+suffix), bytes.TrimSpace(pem.EncodeToMemory(block)))
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		p.t.Fatal(err)
	}
	return made, key
}
