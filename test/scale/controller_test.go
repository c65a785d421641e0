package scale

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
	"github.com/kubenergy/kubenergy/test/paired"
)

// The load consists of the agents of 5,000 nodes with 25 pods of four containers each. The agents push every 15
// seconds. This corresponds to the limits that Kubernetes supports, 5,000 nodes and about 150,000 pods.
const (
	podsOfNode = 25
	containers = 4
	interval   = 15 * time.Second
	writers    = 48              // number of concurrent requests that create objects
	maxWorks   = 100.            // maximum CPU usage per second in multiples of kit.Work
	settling   = 2 * time.Minute // until the queues, the journal and the windows have reached a steady state
)

// size configures the size of the cluster and the duration of the measurement. It can be reduced for development.
type size struct {
	nodes   int
	jobs    int // number of held Jobs
	minutes int
}

func sizes(t *testing.T, usual size, takes string) size {
	t.Helper()
	if os.Getenv("KUBENERGY_BENCH") == "" {
		t.Skip("the measurement takes " + takes)
	}
	fromEnvironment(t, map[string]*int{"NODES": &usual.nodes, "JOBS": &usual.jobs, "MINUTES": &usual.minutes})
	return usual
}

// fromEnvironment overrides sizes with the values of the variables KUBENERGY_BENCH_NAME.
func fromEnvironment(t *testing.T, sizes map[string]*int) {
	t.Helper()
	for name, v := range sizes {
		if text := os.Getenv("KUBENERGY_BENCH_" + name); text != "" {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			*v = n
		}
	}
}

// TestController measures the resources that the controller uses under the load. The limits are one core of the
// machine described in docs/measurements (maxWorks), one gigabyte of memory, 50 writes per second to the API server
// and 6 GB per day in the ledger.
func TestController(t *testing.T) {
	s := sizes(t, size{nodes: 5000, minutes: 10}, "ten minutes: run make bench-controller")
	// The API server, its objects and the load generator run in this process. Its garbage collection would take CPU
	// time from the controller, which runs on the same processors.
	const percent, most = 300, 14 << 30
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(most))
	c := newCluster(t, s.nodes)
	for store := range strings.FieldsSeq(cmp.Or(os.Getenv("KUBENERGY_BENCH_STORES"), "sqlite postgres")) {
		t.Run(store, func(t *testing.T) {
			var env []string
			var grown func() int64
			state := t.TempDir()
			if store == "postgres" {
				dsn := pgtest.Start(t)
				env = append(env, "KUBENERGY_LEDGER_DSN="+dsn)
				grown = func() int64 { return pgtest.Bytes(t, dsn) }
			} else {
				grown = func() int64 { return folder(t, state) }
			}
			c.measure(t, state, env, grown, s.minutes)
		})
	}
}

type testCluster struct {
	*cluster.Cluster
	agents []*agent
}

// agent is the simulated agent of a node.
type agent struct {
	node   string
	token  string
	ids    []string // sorted IDs of the consumers
	stream batch.Stream
	number uint64
	body   bytes.Buffer
	client *http.Client
	rnd    *mathrand.Rand
}

func newCluster(t *testing.T, nodes int) *testCluster {
	t.Helper()
	c := &testCluster{Cluster: cluster.Start(t, lab.Options{ControlPlaneOnly: true})}
	if err := c.AddKinds(t.Context()); err != nil {
		t.Fatal(err)
	}
	workloads := func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" || o.GetKind() == "PersistentVolumeClaim"
	}
	daemonSet := func(o *unstructured.Unstructured) bool { return o.GetKind() == "DaemonSet" }
	for _, manifests := range []struct {
		text []byte
		skip func(*unstructured.Unstructured) bool
	}{{deploy.Everything, workloads}, {deploy.Agent, daemonSet}} {
		if err := c.Apply(t.Context(), manifests.text, manifests.skip); err != nil {
			t.Fatal(err)
		}
	}
	// No controller creates this service account in this cluster.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := c.Client.CoreV1().ServiceAccounts("default").Create(t.Context(), account,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	c.agents = make([]*agent, nodes)
	parallel(t, nodes, func(ctx context.Context, i int) (err error) {
		c.agents[i], err = c.populate(ctx, i)
		return err
	})
	t.Logf("created %d nodes with %d pods in %v", nodes, nodes*podsOfNode, time.Since(began).Round(time.Second))
	return c
}

// populate creates a node and its pods.
func (c *testCluster) populate(ctx context.Context, i int) (*agent, error) {
	name := fmt.Sprintf("node-%04d", i)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyRegion: "eu-central-1", corev1.LabelInstanceTypeStable: "m5.12xlarge",
			corev1.LabelHostname: name,
		}},
		Status: corev1.NodeStatus{Capacity: lab.Capacity(48, 192), Allocatable: lab.Capacity(48, 192)},
	}
	if _, err := c.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	a := &agent{
		node: name, rnd: mathrand.New(mathrand.NewPCG(uint64(i), 1)),
		stream: batch.Stream{Node: name, Boot: random(16), Epoch: random(16)},
	}
	for k := range podsOfNode {
		pod, err := c.Client.CoreV1().Pods("default").Create(ctx, podOf(name, i, k), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		a.ids = append(a.ids, energy.ContainerID(string(pod.UID), ""))
		for range containers {
			a.ids = append(a.ids, energy.ContainerID(string(pod.UID), random(32)))
		}
	}
	a.ids = append(a.ids, energy.System)
	slices.Sort(a.ids)
	own := podOf(name, i, podsOfNode)
	own.Name, own.Namespace, own.Spec.ServiceAccountName = "kubenergy-agent-"+name, cluster.AgentNamespace,
		"kubenergy-agent"
	own, err := c.Client.CoreV1().Pods(cluster.AgentNamespace).Create(ctx, own, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	token, err := c.Client.CoreV1().ServiceAccounts(cluster.AgentNamespace).CreateToken(ctx, "kubenergy-agent",
		&authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{
				Audiences: []string{"kubenergy"}, ExpirationSeconds: new(int64(2 * 3600)),
				BoundObjectRef: &authenticationv1.BoundObjectReference{
					Kind: "Pod", APIVersion: "v1", Name: own.Name, UID: own.UID,
				},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	a.token = token.Status.Token
	return a, nil
}

// podOf returns a pod of one of a thousand Deployments.
func podOf(node string, i, k int) *corev1.Pod {
	const deployments = 1000
	owner := fmt.Sprintf("service-%04d-5c9f7d8b6", (i*podsOfNode+k)%deployments)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%05d-%02d", owner, i, k), Labels: map[string]string{
				"pod-template-hash": "5c9f7d8b6", "app": "service",
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: "0b0f3a52-1111-4222-8333-444455556666",
				Controller: new(true),
			}},
		},
		Spec: corev1.PodSpec{NodeName: node, AutomountServiceAccountToken: new(false)},
	}
	for n := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("container-%d", n), Image: "registry.example.com/service:1.2.3",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(
				"250m"), corev1.ResourceMemory: resource.MustParse("512Mi")}},
		})
	}
	return pod
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// measure runs a controller under the load and checks its resource usage.
func (c *testCluster) measure(t *testing.T, state string, env []string, grown func() int64, minutes int) {
	kubeconfig, _ := c.Account(t, "kubenergy-controller")
	address, probes := kit.Address(t), kit.Address(t)
	_, port, _ := strings.Cut(address, ":")
	cmd := exec.Command(kit.Build(t, "./cmd/kubenergy-controller"), "--kubeconfig="+kubeconfig, "--state-dir="+state,
		"--api-bind-address="+address, "--metrics-bind-address=0", "--health-probe-bind-address="+probes,
		"--api-name=localhost", "--leader-elect=false", "--log-format=text",
		"--agent-namespace="+cluster.AgentNamespace)
	cmd.Env = append(os.Environ(), append(env, "GOMEMLIMIT=800MiB")...) // same value as in the chart
	controller := kit.Start(t, state, "controller", cmd)
	var authority []byte
	kit.Eventually(t, time.Minute, "the controller has created its certificate", func() bool {
		var err error
		authority, err = os.ReadFile(filepath.Join(state, "api.crt"))
		return err == nil
	}, controller)
	// Listing all pods is expensive for the API server on this machine, so the load with its token reviews starts
	// afterwards.
	kit.Eventually(t, 10*time.Minute, "the caches of the controller have synced", func() bool {
		status, _ := kit.Get(t.Context(), http.DefaultClient, "http://"+probes+"/readyz", "")
		return status == http.StatusOK
	}, controller)
	load := c.load(t, "https://localhost:"+port+"/api/v1/batches", authority)
	// Only the steady state is measured. Initially, the controller sends a request to the API server for each
	// agent, which takes several minutes.
	began := time.Now()
	kit.Eventually(t, 10*time.Minute, "a batch of each agent is acknowledged",
		func() bool { return load.known.Load() == int64(len(c.agents)) })
	t.Logf("a batch of each agent was acknowledged after %v; rejections until then: %s",
		time.Since(began).Round(time.Second),
		load.reasons())
	time.Sleep(settling)
	load.forget()

	began = time.Now()
	writes, size, acked := c.writes(t), grown(), load.acked.Load()
	cores, works := cpu(controller, 4*minutes, time.Minute/4)
	took := time.Since(began)
	perSecond := func(n float64) float64 { return n / took.Seconds() }
	reference := paired.MedianOf(works, 1)
	peak := peakMemory(t, controller.Cmd.Process.Pid)
	written := perSecond(float64(c.writes(t) - writes))
	booked := load.acked.Load() - acked
	perDay := float64(grown()-size) / took.Hours() * 24 / 1e9
	t.Logf("%d nodes, %d pods, %d containers for %v: recorded %.1f batches/s, %.0f consumers/s; rejections: %s",
		len(c.agents), len(c.agents)*podsOfNode, len(c.agents)*podsOfNode*containers, took.Round(time.Second),
		perSecond(float64(booked)),
		perSecond(float64(booked*int64(len(c.agents[0].ids)))), load.reasons())
	t.Logf("CPU %.2f cores, peak memory %d MiB, %.1f writes/s to the API server, the ledger grows by %.2f GB per day; "+
		"CPU in multiples of the reference program per second: %v",
		cores, peak>>20, written, perDay, reference)
	if reference.Exceeds(maxWorks) || peak > 1<<30 || written > 50 || perDay > 6 {
		t.Errorf("want at most %v times the reference program per second, 1 GiB, 50 writes/s and 6 GB per day",
			maxWorks)
	}
	if want := float64(len(c.agents)) / interval.Seconds(); perSecond(float64(booked)) < 0.98*want {
		t.Errorf("throughput is too low, want %.1f batches/s", want)
	}
}

// generator pushes batches for all agents until the test ends.
type generator struct {
	acked atomic.Int64
	known atomic.Int64 // number of agents with at least one acknowledged batch

	mu  sync.Mutex
	why map[string]int
}

// refused counts a reason why a batch was not acknowledged.
func (g *generator) refused(why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why[why]++
}

// forget resets the counts of refused.
func (g *generator) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.why)
}

func (g *generator) reasons() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return fmt.Sprint(g.why) // sorted by key
}

func (c *testCluster) load(t *testing.T, url string, authority []byte) *generator {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	g := &generator{why: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	began := time.Now()
	for i, a := range c.agents {
		// Like real agents, each one has its own address and connection, and it has a separate stream for this
		// store.
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(i>>8), byte(i))}}
		a.client = &http.Client{
			Timeout: time.Minute, Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots}, DialContext: dialer.DialContext,
			},
		}
		a.stream.Epoch, a.number = random(16), 0
		first := time.Duration(i) * interval / time.Duration(len(c.agents))
		all.Go(func() { g.push(ctx, a, url, began, first) })
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		for _, a := range c.agents {
			a.client.CloseIdleConnections()
		}
	})
	return g
}

func (g *generator) push(ctx context.Context, a *agent, url string, began time.Time, first time.Duration) {
	timer := time.NewTimer(first)
	defer timer.Stop()
	for last := began; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(interval)
		now := time.Now()
		if err := a.encode(began, last, now); err != nil {
			panic(err)
		}
		last = now
		for failures := 0; ; failures++ {
			after, why := a.send(ctx, url)
			if why == "" {
				break
			}
			g.refused(why)
			// Like real agents, back off exponentially with jitter and respect Retry-After.
			wait := time.Second << min(failures, 5)
			wait = max(wait/2+time.Duration(a.rnd.Int64N(int64(wait/2))),
				after+time.Duration(a.rnd.Int64N(int64(after/4+1))))
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
		g.acked.Add(1)
		if a.number == 1 {
			g.known.Add(1)
		}
	}
}

// encode creates the next batch. The energy differs between consumers and batches.
func (a *agent) encode(began, start, end time.Time) error {
	a.number++
	b := &batch.Batch{
		Version: batch.Version, Stream: a.stream, First: a.number, Last: a.number, Start: start.UTC().Truncate(0),
		End:            end.UTC().Truncate(0),
		StartSinceBoot: start.Sub(began) + time.Second, EndSinceBoot: end.Sub(began) + time.Second,
		Source: "package+dram (rapl)", Quality: energy.Measured, IdlePolicy: energy.IdleByRequests.String(),
	}
	b.Start = b.End.Add(-(b.EndSinceBoot - b.StartSinceBoot))
	seconds := end.Sub(start).Seconds()
	for _, id := range a.ids {
		u := a.rnd.Float64()
		b.Shares = append(b.Shares, energy.Share{
			ID: id, Dynamic: energy.Microjoules(u * 1.5e6 * seconds), Idle: energy.Microjoules(0.6e6 * seconds),
			CPU: time.Duration(u * 0.3e9 * seconds),
		})
	}
	for i := range b.Shares {
		b.Measured += b.Shares[i].Dynamic + b.Shares[i].Idle
	}
	b.Idle = energy.Microjoules(20e6 * seconds)
	b.Measured += b.Idle
	data, err := batch.Encode(b)
	if err != nil {
		return err
	}
	a.body.Reset()
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	z.Reset(&a.body)
	if _, err := z.Write(data); err != nil {
		return err
	}
	return z.Close()
}

// packers are reused because each one uses a megabyte and the API server shares its memory with the load generator.
var packers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// send sends the batch. If it was not acknowledged, send returns the reason and the requested retry delay.
func (a *agent) send(ctx context.Context, url string) (after time.Duration, why string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(a.body.Bytes()))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	r.Header.Set("Authorization", "Bearer "+a.token)
	answer, err := a.client.Do(r)
	if err != nil {
		return 0, "no answer"
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusOK {
		return 0, ""
	}
	seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, fmt.Sprintf("%d %.80s", answer.StatusCode, bytes.TrimSpace(text))
}

// writes returns the number of write requests that the API server has processed.
func (c *testCluster) writes(t *testing.T) (n int64) {
	t.Helper()
	page, err := c.Client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"POST", "PUT", "PATCH", "DELETE", "APPLY"} {
		sum, _ := kit.Metric(t, string(page), "apiserver_request_total", `verb="`+verb+`"`)
		n += int64(sum)
	}
	return n
}

// cpu measures a process in several windows. It returns the mean usage in cores and, for each window, the usage per
// second in multiples of [kit.Work]. On the machine described in docs/measurements, one core corresponds to 100.
func cpu(p *kit.Process, windows int, length time.Duration) (cores float64, works []float64) {
	kit.Work() // the first call is slower
	pid := p.Cmd.Process.Pid
	for range windows {
		used, began := kit.CPUTimeOf(pid), time.Now()
		time.Sleep(length)
		share := (kit.CPUTimeOf(pid) - used).Seconds() / time.Since(began).Seconds()
		cores, works = cores+share/float64(windows), append(works, share/kit.Work().Seconds())
	}
	return cores, works
}

func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

func folder(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), "ledger") {
			bytes += info.Size()
		}
	}
	return bytes
}
