package app

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/controller"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
)

const config = `apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: de}
spec: {zone: DE, default: true, carbon: {sources: [{file: {path: grid.csv}}]}}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyPolicy
metadata: {name: default}
spec: {mode: enforce}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyPolicy
metadata: {name: default, namespace: chemistry}
spec: {mode: shadow}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyBudget
metadata: {name: month, namespace: physics}
spec: {limits: {energyKWh: 200}, period: {type: Month}, actions: [{at: 100, do: HoldNewWork}]}
`

// queue is a fake slurmrestd with a running and a pending job.
type queue struct {
	mu     sync.Mutex
	submit time.Time
	begin  int64
}

func (q *queue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	number := func(n int64) any { return map[string]any{"set": true, "number": n} }
	switch path := strings.TrimSuffix(r.URL.Path, "/"); path {
	case "/slurm/v0.0.45/ping":
		fmt.Fprint(w, `{}`)
	case "/slurm/v0.0.45/nodes":
		fmt.Fprint(w, `{"nodes":[{"name":"n1","cpus":64,"state":["IDLE"],"partitions":["main"]}]}`)
	case "/slurm/v0.0.45/jobs":
		_ = json.NewEncoder(w).Encode(map[string]any{"jobs": []any{map[string]any{
			"job_id": 8, "account": "physics", "user_name": "bob", "partition": "main", "job_state": []string{"RUNNING"},
			"nodes": "n[1-2]", "submit_time": number(q.submit.Unix()), "cpus": number(4),
		}, map[string]any{
			"job_id": 7, "account": "physics", "user_name": "ada", "partition": "main", "job_state": []string{"PENDING"},
			"comment": "kubenergy:allowed-delay=8h", "submit_time": number(q.submit.Unix()), "cpus": number(4),
			"eligible_time": number(q.begin), "time_limit": number(60),
		}, map[string]any{
			"job_id": 9, "account": "chemistry", "partition": "main", "job_state": []string{"RUNNING"},
			"comment": "kubenergy:allowed-delay=8h", "submit_time": number(time.Now().Unix()), "cpus": number(4),
		}}})
	case "/slurm/v0.0.45/job/7":
		var body struct {
			Begin struct{ Number int64 } `json:"begin_time"`
		}
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			q.begin = body.Begin.Number
		}
		fmt.Fprint(w, `{}`)
	default:
		http.NotFound(w, r)
	}
}

func (q *queue) begins() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return time.Unix(q.begin, 0)
}

// deliver sends a batch like the agent of a compute node.
func deliver(t *testing.T, address, state, token string, b *batch.Batch) {
	t.Helper()
	pool, err := certutil.NewPool(filepath.Join(state, "api.crt"))
	if err != nil {
		t.Fatal(err)
	}
	body, err := batch.Encode(b)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost:"+port+"/api/v1/batches",
		bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if said, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Fatalf("unexpected response to the batch: %s: %s", answer.Status, said)
	}
}

// TestWithoutKubernetes runs the program with signals from a file and a Slurm job, and verifies the output of
// commands of kubenergy.
func TestWithoutKubernetes(t *testing.T) {
	now := time.Now().UTC()
	folder, state, socket := t.TempDir(), filepath.Join(t.TempDir(), "state"), filepath.Join(t.TempDir(), "s")
	kit.Write(t, filepath.Join(folder, "all.yaml"), config)
	var grid strings.Builder
	fmt.Fprintln(&grid, "time,carbon_intensity")
	valley := now.Truncate(time.Hour).Add(3 * time.Hour)
	for at := now.Truncate(time.Hour).Add(-24 * time.Hour); at.Before(now.Add(72 * time.Hour)); at = at.Add(time.Hour) {
		value := 400
		if at.Equal(valley) || at.Equal(valley.Add(time.Hour)) {
			value = 90
		}
		fmt.Fprintf(&grid, "%s,%d\n", at.Format(time.RFC3339), value)
	}
	kit.Write(t, filepath.Join(folder, "grid.csv"), grid.String())
	kit.Write(t, filepath.Join(folder, "hosts"), fmt.Sprintf("hosts: [{node: n1, tokenSHA256: %x}]\n",
		sha256.Sum256([]byte("n1-token"))))
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	q := &queue{submit: now.Truncate(time.Second), begin: now.Unix()}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: q}}
	server.Start()
	defer server.Close()

	objects, ledgerAddress := kit.Address(t), kit.Address(t)
	var f Flags
	if err := f.Parse([]string{
		"--slurm-url=unix:" + socket, "--slurm-interval=1s", "--slurm-conf=", "--config-dir=" + folder,
		"--data-dir=" + folder, "--state-dir=" + state, "--api-bind-address=" + ledgerAddress,
		"--objects-bind-address=" + objects, "--host-tokens-file=" + filepath.Join(folder, "hosts"), "--metrics-bind-address=0", "--health-probe-bind-address=0",
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	metrics.Registry = prometheus.NewRegistry() // for this run only
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, &f, f.Controller.Logger(t.Output())) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	}()
	kit.Eventually(t, time.Minute, "a BeginTime in the valley", func() bool { return q.begins().Equal(valley) })
	said := func(args ...string) (string, int) {
		var out, errs bytes.Buffer
		code := cli.Run(t.Context(), append(args, "--kubeconfig", filepath.Join(state, "kubeconfig")), nil, &out, &errs)
		return out.String() + errs.String(), code
	}
	description := func(want string, args ...string) {
		t.Helper()
		kit.Eventually(t, time.Minute, fmt.Sprintf("output of %v contains %q", args, want), func() bool {
			text, code := said(args...)
			return code == 0 && strings.Contains(text, want)
		})
	}
	description("slurm-7", "held", "-A")
	if text, _ := said("held", "-A"); strings.Contains(text, "no scheduler is running") {
		t.Error(text)
	}
	description("CheaperLater", "explain", "job", "slurm-7", "-n", "physics")
	description("To enforce decisions: set mode: enforce in the EnergyPolicy of the account", "explain", "job", "slurm-9",
		"-n", "chemistry")
	kit.Eventually(t, time.Minute, "the decision is counted in the policy of the account", func() bool {
		var list v1alpha1.EnergyPolicyList
		config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(state, "kubeconfig"))
		if err == nil {
			client := kubernetes.NewForConfigOrDie(config)
			err = cmdutil.GetJSON(t.Context(), client, cmdutil.ResourcePath+"energypolicies", &list)
		}
		return err == nil && slices.ContainsFunc(list.Items, func(p v1alpha1.EnergyPolicy) bool {
			c := p.Status.Shadow
			return p.Namespace == "chemistry" && c != nil && c.Decided == 1 && c.Held == 1 && c.SavedGrams > 0
		})
	})
	description("1 recorded decisions", "replay", "--strategy", "carbon+window", "--from", "-1h")
	description("No energy is recorded in this period yet", "report", "--from", "-1h")
	deliver(t, ledgerAddress, state, "n1-token", &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "n1", Boot: "b", Epoch: "e"}, First: 1, Last: 1,
		Start: now.Add(-time.Minute), End: now, StartSinceBoot: time.Hour, EndSinceBoot: time.Hour + time.Minute,
		Source: "package (rapl)", Quality: energy.Measured, IdlePolicy: "apart",
		Measured: 3_600_000_000, Idle: 1_000_000_000, Unknown: 100_000_000, Shares: []energy.Share{
			{ID: "cgroup//slurm/uid_0/job_9/step_0", Dynamic: 200_000_000},
			{ID: "cgroup//system.slice/slurmstepd.scope/job_8/step_0", Dynamic: 1_500_000_000},
			{ID: "cgroup//system.slice/slurmstepd.scope/job_8/step_batch", Dynamic: 300_000_000},
			{ID: energy.System, Dynamic: 500_000_000},
		},
	})
	text, _ := said("report", "--from", "-1h", "--group-by", "account,user,partition,kind", "-o", "csv")
	sum, ofJob := 0.0, 0.0
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%v\n%s", err, text)
	}
	column := slices.IndexFunc(rows[0], func(s string) bool { return strings.Contains(strings.ToLower(s), "kwh") })
	for _, row := range rows[1:] {
		kwh, _ := strconv.ParseFloat(row[column], 64)
		sum += kwh
		if row[0] == "physics" && row[1] == "bob" && row[2] == "Partition/main" {
			ofJob += kwh
		}
	}
	if math.Abs(ofJob-0.0005) > 1e-9 || math.Abs(sum-0.001) > 1e-9 && math.Abs(sum-0.002) > 1e-9 {
		t.Errorf("energy of the job = %v kWh of %v kWh:\n%s", ofJob, sum, text)
	}
	description("requested to start now", "run-now", "job", "slurm-7", "-n", "physics")
	kit.Eventually(t, time.Minute, "started now", func() bool { return q.begins().Before(valley) })
}

// TestUnit verifies that the example environment file of the systemd unit contains valid flags.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", "..", "deploy", "systemd", "kubenergy-slurm.default"))
	if err != nil {
		t.Fatal(err)
	}
	_, args, ok := strings.Cut(string(text), `KUBENERGY_SLURM_ARGS="`)
	args, _, closed := strings.Cut(args, `"`)
	var f Flags
	if err := f.Parse(strings.Fields(args), io.Discard); !ok || !closed || err != nil {
		t.Errorf("%s: %v", args, err)
	}
	unit, err := os.ReadFile(filepath.Join("../..", "..", "deploy", "systemd", "kubenergy-slurm.service"))
	if err != nil || !strings.Contains(string(unit), "--state-dir=/var/lib/kubenergy-slurm ") {
		t.Errorf("the unit does not set its own state directory: %v", err)
	}
}

func TestFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"--slurm-url":            {},
		"--slurm-interval":       {"--slurm-url=unix:/s", "--slurm-interval=1ms"},
		"unexpected argument":    {"--slurm-url=unix:/s", "x"},
		"not defined: -leader-e": {"--slurm-url=unix:/s", "--leader-elect"},
	} {
		var f Flags
		if err := f.Parse(args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// TestSitesCertificate verifies that the process connects to its own API with a host name in the custom
// certificate.
func TestSitesCertificate(t *testing.T) {
	for name, want := range map[string]string{"slurm.example": "slurm.example:9443", "localhost": "localhost:9443"} {
		cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		f := Flags{Controller: controller.Options{
			API: ":9443", APICert: kit.Write(t, filepath.Join(dir, "crt"), string(cert)),
			APIKey: kit.Write(t, filepath.Join(dir, "key"), string(key)),
		}}
		if got := f.apiURL().Host; got != want {
			t.Errorf("host of the URL for certificate %s = %s", name, got)
		}
	}
}

// TestTornState verifies that the ledger and the objects in files are served even if state files are corrupt, and
// that jobs are rejected.
func TestTornState(t *testing.T) {
	folder, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	kit.Write(t, filepath.Join(folder, "all.yaml"), strings.Replace(config, "{file: {path: grid.csv}}", "{typical: {}}", 1))
	kit.Write(t, filepath.Join(state, "objects.json"), `[{"apiVersion":"batch/v1","ki`)
	kit.Write(t, filepath.Join(state, "slurm.json"), `{"jobs":{"7":{"subm`)
	kit.Write(t, filepath.Join(folder, "batch"), "x")
	server := httptest.NewServer(&queue{submit: time.Now()})
	defer server.Close()
	kit.Write(t, filepath.Join(folder, "token"), "x")
	var f Flags
	api := kit.Address(t)
	if err := f.Parse([]string{
		"--slurm-url=" + server.URL, "--slurm-token-file=" + filepath.Join(folder, "token"), "--slurm-conf=",
		"--config-dir=" + folder, "--state-dir=" + state, "--api-bind-address=" + api,
		"--objects-bind-address=" + kit.Address(t), "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--ingest-namespace=physics", "--ingest-token-file=" + filepath.Join(folder, "batch"),
	}, io.Discard); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	metrics.Registry = prometheus.NewRegistry() // for this run only
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, &f, f.Controller.Logger(t.Output())) }()
	request := func(method, path, body string) (status int, answer string) {
		token, err := os.ReadFile(filepath.Join(state, "token"))
		if err != nil {
			return 0, err.Error()
		}
		pool, err := certutil.NewPool(filepath.Join(state, "api.crt"))
		if err != nil {
			return 0, err.Error()
		}
		_, port, _ := net.SplitHostPort(api)
		r, err := http.NewRequestWithContext(t.Context(), method, "https://localhost:"+port+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+string(token))
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true,
		}}
		w, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer w.Body.Close()
		text, _ := io.ReadAll(w.Body)
		return w.StatusCode, string(text)
	}
	kit.Eventually(t, time.Minute, "the ledger responds", func() bool {
		status, _ := request(http.MethodGet, "/api/v1/ledger/statistics", "")
		return status == http.StatusOK
	})
	const job = `{"id": "fit-7", "namespace": "physics", "cpu": 1, "command": ["true"]}`
	if status, answer := request(http.MethodPost, "/ingest", job); status != http.StatusServiceUnavailable {
		t.Errorf("unexpected response to a job: %d: %s", status, answer)
	}
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "objects.json") {
		t.Errorf("ended with %v", err)
	}
	if text, err := os.ReadFile(filepath.Join(state, "objects.json")); string(text) != `[{"apiVersion":"batch/v1","ki` {
		t.Errorf("unexpected content of objects.json: %q, %v", text, err)
	}
}
