package karmada

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/test/kit"
)

func boxes(name string, n int) (nodes []lab.NodeSpec) {
	for i := range n {
		nodes = append(nodes, lab.NodeSpec{
			Name: fmt.Sprintf("%s%d", name, i), Capacity: lab.Capacity(8, 32),
			Labels: map[string]string{"kubenergy.io/power-profile": "box"},
		})
	}
	return nodes
}

// grids sets the carbon intensities of sites for the next two days.
func (f *federation) grids(intensity map[string]float64) {
	f.t.Helper()
	for site, grams := range intensity {
		f.apply(f.t, fmt.Appendf(nil, `
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: %s}
spec: {zone: SE, carbon: {sources: [{static: {value: %g}}]}}
`, site, grams))
		values := make([]any, 49)
		for i := range values {
			values[i] = grams
		}
		now := time.Now().UTC()
		f.status(zones, site, map[string]any{"observedGeneration": int64(1), "carbon": map[string]any{
			"now": grams, "unit": "gCO2e/kWh", "quality": "measured", "source": "test", "asOf": now.Format(time.RFC3339),
			"start": now.Truncate(time.Hour).Format(time.RFC3339), "step": "1h", "values": values,
		}})
	}
}

// ours runs kubenergy-karmada until the test ends or the caller stops it.
func (f *federation) ours(args ...string) *kit.Process {
	f.t.Helper()
	config := f.account("kubenergy-karmada")
	kubeconfig := kit.Write(f.t, filepath.Join(f.dir, "kubenergy-karmada.kubeconfig"), fmt.Sprintf(`
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
`, config.Host, base64.StdEncoding.EncodeToString(config.CAData), config.BearerToken))
	address := kit.Address(f.t)
	_, port, _ := net.SplitHostPort(address)
	for name := range f.members {
		f.announce(name, port)
	}
	return kit.Start(f.t, f.dir, "kubenergy-karmada", exec.Command(kit.Build(f.t, "./cmd/kubenergy-karmada"),
		append([]string{
			"--kubeconfig=" + kubeconfig, "--metrics-bind-address=",
			"--estimator-bind-address=" + address,
			"--tls-cert-file=" + f.pki.file("tls.crt"), "--tls-private-key-file=" + f.pki.file("tls.key"),
		}, args...)...))
}

// kubenergy installs the objects that kubenergy-karmada requires, with the given power profile and policy.
func (f *federation) kubenergy(power, policy string) {
	f.t.Helper()
	crds := filepath.Join(kit.Root, "charts", "kubenergy", "crds")
	f.applyFolder(f.t, crds)
	kinds, err := os.ReadDir(crds)
	if err != nil {
		f.t.Fatal(err)
	}
	f.await(time.Minute, "the KubEnergy kinds are available", func() bool {
		found, err := f.client.Discovery().ServerResourcesForGroupVersion("kubenergy.io/v1alpha1")
		return err == nil && len(found.APIResources) == 2*len(kinds) // with their status subresources
	})
	f.apply(f.t, fmt.Appendf(nil, `
{apiVersion: v1, kind: Namespace, metadata: {name: kubenergy-system}}
---
{apiVersion: kubenergy.io/v1alpha1, kind: PowerProfile, metadata: {name: box}, spec: %s}
---
apiVersion: kubenergy.io/v1alpha1
kind: EnergyPolicy
metadata: {name: default, namespace: kubenergy-system}
spec: %s
`, power, policy))
	f.apply(f.t, f.file("federation.yaml"))
	f.apply(f.t, f.file("guard.yaml"))
	for _, m := range f.members {
		m.apply(f.t, f.file("member.yaml"))
	}
}

// namespace creates a namespace with the given mode.
func (f *federation) namespace(name, mode string) {
	f.t.Helper()
	f.apply(f.t, fmt.Appendf(nil,
		"{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {kubenergy.io/mode: %q}}}", name, mode))
}

// holds enables the holding of new Jobs.
func (f *federation) holds() {
	f.t.Helper()
	f.apply(f.t, deploy.HoldAdmission)
	f.apply(f.t, f.file("admission.yaml"))
	time.Sleep(5 * time.Second) // until the policies are effective
}

// long skips a test that takes many minutes unless KUBENERGY_LONG is set.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes many minutes: run make karmada")
	}
}

// account returns a client configuration for a KubEnergy service account in the API server of Karmada.
func (f *federation) account(name string) *rest.Config {
	f.t.Helper()
	r, err := f.client.CoreV1().ServiceAccounts("kubenergy-system").CreateToken(f.t.Context(), name,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(f.config)
	config.BearerToken = r.Status.Token
	return config
}

func (f *federation) file(name string) []byte {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(kit.Root, "deploy", "karmada", name))
	if err != nil {
		f.t.Fatal(err)
	}
	return text
}

// job creates a Job in the federation.
func (f *federation) job(name string, pods int, labels string) {
	f.t.Helper()
	f.jobIn(metav1.NamespaceDefault, name, pods, labels)
}

func (f *federation) jobIn(namespace, name string, pods int, labels string) {
	f.t.Helper()
	f.apply(f.t, fmt.Appendf(nil, `
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s, labels: {%s}}
spec:
  parallelism: %d
  completions: %d
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, resources: {requests: {cpu: "2"}}}]
`, name, namespace, labels, pods, pods))
}

// went returns the number of replicas of a Job by cluster.
func (f *federation) went(name string) (all map[string]int64) {
	return f.wentIn(metav1.NamespaceDefault, name)
}

func (f *federation) wentIn(namespace, name string) (all map[string]int64) {
	o, err := f.get(f.t.Context(), bindings, namespace, name+"-job")
	if err != nil {
		return nil
	}
	targets, _, _ := unstructured.NestedSlice(o.Object, "spec", "clusters")
	all = map[string]int64{}
	for _, t := range targets {
		t := t.(map[string]any)
		n, _ := t["replicas"].(int64)
		all[t["name"].(string)] = n
	}
	return all
}

func (f *federation) policy(name, label, scheduler, division string) {
	f.t.Helper()
	f.policyIn(metav1.NamespaceDefault, name, label, scheduler, division)
}

func (f *federation) policyIn(namespace, name, label, scheduler, division string) {
	f.t.Helper()
	f.apply(f.t, fmt.Appendf(nil, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: %s, namespace: %s}
spec:
  schedulerName: %s
  resourceSelectors: [{apiVersion: batch/v1, kind: Job, labelSelector: {matchLabels: {way: %s}}}]
  placement: {replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: %s}}
`, name, namespace, scheduler, label, division))
}

func TestFederation(t *testing.T) {
	f := start(t, member{name: "north", region: "eu-north-1", site: "north", nodes: boxes("n", 3)},
		member{name: "south", region: "eu-central-1", site: "south", nodes: boxes("s", 3)})
	f.kubenergy("{idleWatts: 100, maxWatts: 300}", "{mode: enforce}")
	f.grids(map[string]float64{"north": 50, "south": 400})
	ours := f.ours()
	f.scheduler()
	f.policy("ours", "ours", "kubenergy", "Weighted")
	f.policy("stock", "stock", "default-scheduler", "Aggregated")
	both := func(name string, pods int, want map[string]int64) {
		t.Helper()
		for _, way := range []string{"ours", "stock"} {
			f.job(name+way, pods, "way: "+way)
		}
		for _, way := range []string{"ours", "stock"} {
			f.await(30*time.Second, name+way+" is sent to a cluster", func() bool { return len(f.went(name+way)) > 0 })
			if got := f.went(name + way); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("target of %s%s = %v, want %v", name, way, got, want)
			}
		}
	}
	time.Sleep(10 * time.Second)
	both("clean", 1, map[string]int64{"north": 1})
	f.grids(map[string]float64{"north": 500, "south": 40})
	time.Sleep(5 * time.Second)
	both("turned", 2, map[string]int64{"south": 2})
	f.await(time.Minute, "the Job runs in the south", func() bool {
		jobs := f.members["south"].client.BatchV1().Jobs(metav1.NamespaceDefault)
		j, err := jobs.Get(t.Context(), "turnedours", metav1.GetOptions{})
		return err == nil && j.Status.Active+j.Status.Succeeded == 2
	})

	f.holds()
	f.job("waits", 1, "way: stock}, annotations: {kubenergy.io/allowed-delay: 1h")
	both("held", 1, map[string]int64{"south": 1}) // no delay is allowed, so they are released immediately
	o, err := f.get(t.Context(), bindings, metav1.NamespaceDefault, "waits-job")
	if err != nil || len(f.went("waits")) > 0 {
		t.Errorf("held Job was sent to %v: %v, error %v", f.went("waits"), o, err)
	}
	f.patch(t, jobs, metav1.NamespaceDefault, "waits", `{"spec":{"suspend":false}}`)
	f.await(10*time.Second, "the Job is released", func() bool { return len(f.went("waits")) > 0 })

	f.namespace(metav1.NamespaceDefault, "off")
	// Kill kubenergy-karmada. The fallback scheduler must take over its bindings.
	f.standIn()
	ours.Kill()
	killed := time.Now()
	f.job("orphan", 1, "way: ours")
	f.await(time.Minute, "the fallback scheduler has bound the Job", func() bool { return len(f.went("orphan")) > 0 })
	if took := time.Since(killed); took > 30*time.Second {
		t.Errorf("fallback scheduler took over after %v, want at most 30 s", took)
	}
}
