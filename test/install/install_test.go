package install

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// valueSets contains sets of values for rendering the chart. Together with the defaults they cover every branch of
// the templates.
var valueSets = map[string][]string{
	"defaults": nil,
	"mode default": {
		"--set",
		"scheduler.mode=default,scheduler.priorityClassName=system-cluster-critical,policy.mode=enforce",
	},
	"several": {
		"--set",
		"controller.replicas=2,ledger.postgres.secret=ledger,scheduler.replicas=3,image.registry=registry.example.com/kubenergy,image.pullSecrets={pull},api.proxyGroups={ops,dev}",
	},
	"single": {"--set", "scheduler.replicas=1,hold.enabled=false,networkPolicy.enabled=false"},
	"keys and data": {
		"--set",
		"signals.keysSecret=signal-keys,signals.data.configMap=signal-files,metrics.tlsSecret=tls",
	},
	"a volume": {"--set", "signals.data.persistentVolumeClaim=files,cli.image.digest=sha256:" +
		strings.Repeat("0", 64)},
	"own config": {"--set-file", "scheduler.config=" + filepath.Join(chart.Folder,
		"files/scheduler/config-default.yaml")},
	"stress": {
		"--set",
		"stress.enabled=true,stress.jobs=2,stress.labels.load=yes,stress.annotations.a=b,stress.nodeSelector.rack=seven",
	},
	"placed": {
		"--set-json",
		`scheduler={"nodeSelector":{"a":"b"},"tolerations":[{"key":"a","operator":"Exists"}],"podAnnotations":{"a":"b"},"extraArgs":["-v=4"],` +
			`"extraEnv":[{"name":"MAX_SCHEDULING_DELAY","value":"12h"}],"extraVolumes":[{"name":"files","configMap":{"name":"files"}}],` +
			`"extraVolumeMounts":[{"name":"files","mountPath":"/files"}]}`,
		"--set-json",
		`controller={"nodeSelector":{"a":"b"},"tolerations":[{"key":"a","operator":"Exists"}],"podAnnotations":{"a":"b"},"extraArgs":["--log-level=DEBUG"],` +
			`"extraEnv":[{"name":"ELECTRICITY_MAP_API_KEY","valueFrom":{"secretKeyRef":{"name":"em","key":"key"}}}],` +
			`"extraVolumes":[{"name":"files","configMap":{"name":"files"}}],"extraVolumeMounts":[{"name":"files","mountPath":"/files"}]}`,
	},
	"zones": {
		"--set-json",
		`zones=[{"name":"germany","spec":{"zone":"DE","default":true,"carbon":{"sources":[{"electricityMaps":{"key":"electricitymaps"}},{"typical":{}}]}}}]`,
		"--set-json", `profiles=[{"name":"server","spec":{"default":true,"idleWatts":100,"maxWatts":400}}]`,
		"--set-json",
		`policy={"mode":"advise","allowedDelay":"6h","maxDelay":"12h","hold":{"rule":"Threshold","carbonPercentile":25},"workloadTypes":{"service":{"allowedDelay":"0s"}}}`,
	},
	"agent": {"--set", "agent.enabled=true"},
	"machines that sleep": {
		"--set", "power.enabled=true,power.mode=enforce,power.keysSecret=bmcs,image.pullSecrets={pull}",
		"--set-json",
		`power.machines=[{"node":"n1","uuid":"11111111-2222-3333-4444-555555555555","kind":"redfish",` +
			`"url":"https://192.0.2.1","passwordKey":"n1","username":"admin"}]`,
		"--set-json", `power.policy={"headroom":0.2,"minAwake":2,"after":"10m"}`,
	},
	"agent that pushes": {
		"--set",
		"agent.enabled=true,agent.idle=equal,agent.guestDir=/var/scaphandre,agent.maxUnavailable=3,agent.priorityClassName=system-node-critical",
		"--set",
		"agent.push.url=https://central.example.com:8444/ingest,agent.push.caSecret=ca,agent.push.certSecret=cert,image.pullSecrets={pull}",
		"--set", "agent.metrics.tlsSecret=agent-tls,agent.metrics.tokenSecret=agent-token",
		"--set-json",
		`agent.push.to=[{"ipBlock":{"cidr":"192.0.2.1/32"}}]`,
		"--set-json", `networkPolicy.agentEgress=[{"ports":[{"port":8080,"protocol":"TCP"}]}]`,
	},
	"agent and GPUs": {
		"--set", "agent.enabled=true,agent.gpu.enabled=true,agent.gpu.driverRoot=/run/nvidia/driver,agent.gpu.runtimeClassName=",
		"--set", "agent.gpu.dcgmURL=http://$(HOST_IP):9400/metrics",
	},
	"agent, placed": {
		"--set", "agent.enabled=true,agent.metrics.webConfigSecret=web,networkPolicy.enabled=false",
		"--set-json", `agent.nodeSelector={"a":"b"}`, "--set-json", `agent.tolerations=[]`, "--set-json",
		`agent.podAnnotations={"a":"b"}`,
		"--set-json", `agent.extraArgs=["--calibrate=rapl=1.05"]`, "--set-json",
		`agent.extraEnv=[{"name":"GOGC","value":"50"}]`,
		"--set-json", `agent.extraVolumes=[{"name":"profile","configMap":{"name":"profile"}}]`,
		"--set-json", `agent.extraVolumeMounts=[{"name":"profile","mountPath":"/profile"}]`,
	},
	"monitored": {
		"--set",
		"metrics.tlsSecret=tls,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.prometheus.name=prometheus,metrics.serviceMonitor.prometheus.namespace=monitoring",
		"--set",
		"metrics.rules.enabled=true,metrics.dashboards.enabled=true,metrics.computeGardenerNames.code=true,metrics.computeGardenerNames.documents=true,agent.enabled=true",
		"--set-json",
		`networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]`,
		"--set-json", `networkPolicy.controllerEgress=[{"ports":[{"port":9090,"protocol":"TCP"}]}]`,
	},
}

// installed contains the values of the installed release.
const installed = "policy.mode=enforce,agent.enabled=true,power.enabled=true"

// TestInstall installs the chart with helm, checks the resulting cluster and uninstalls the chart. All parts share
// one control plane, because a process can run only one.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	w := start(t)
	w.helm(t, "install", "kubenergy", chart.Folder, "--create-namespace", "--set", installed)
	w.mapper.Reset()
	t.Run("the binding comes last", w.testBindingIsLast)
	t.Run("every value set is accepted", w.testValueSets)
	t.Run("every example is accepted", w.testExamples)
	t.Run("plain manifests are accepted", w.testManifests)
	t.Run("admission", w.testAdmission)
	t.Run("warnings", w.testWarnings)
	t.Run("rights", w.testRights)
	t.Run("guard", w.testGuard)
	t.Run("guard of budgets", w.testBudgetGuard)
	t.Run("guard of machines", w.testPowerGuard)
	t.Run("a tenant attacks", w.testTenant)
	t.Run("a kubelet attacks", w.testKubelet)
	t.Run("the agent has no rights", w.testAgentHasNoRights)
	t.Run("the agent and Pod Security", w.testAgentAndPodSecurity)
	t.Run("the rest and Pod Security", w.testPodsAreRestricted)
	t.Run("a viewer", w.testViewer)
	t.Run("upgrade", w.testUpgrade)
	t.Run("release and uninstall", w.testUninstall)
}

func (w *world) testBindingIsLast(t *testing.T) {
	binding, err := w.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(t.Context(),
		"kubenergy-hold", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	documents, err := chart.Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range documents {
		if documents[i].HookOf() != "" {
			continue
		}
		client, err := w.resource(documents[i].Object)
		if err != nil {
			t.Fatal(err)
		}
		object, err := client.Get(t.Context(), documents[i].Object.GetName(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if created := object.GetCreationTimestamp(); binding.CreationTimestamp.Time.Before(created.Time) {
			t.Errorf("%s was created %v after the binding, want it created before", documents[i].Name(),
				created.Sub(binding.CreationTimestamp.Time))
		}
	}
	if seen < 30 {
		t.Errorf("only %d objects are part of the release", seen)
	}
}

// notServed contains the kinds of the Prometheus operator, which are not installed in the cluster.
var notServed = map[string]bool{"ServiceMonitor": true, "PrometheusRule": true}

func (w *world) testValueSets(t *testing.T) {
	for name, args := range valueSets {
		t.Run(name, func(t *testing.T) {
			documents, err := chart.Template(t.Context(), args...)
			if err != nil {
				t.Fatal(err)
			}
			w.wantAccepted(t, documents)
		})
	}
}

func (w *world) wantAccepted(t *testing.T, documents []chart.Document) {
	t.Helper()
	for i := range documents {
		switch served, err := w.accepts(t.Context(), documents[i].Object); {
		case err != nil:
			t.Errorf("%s: %v", documents[i].Name(), err)
		case served == notServed[documents[i].Object.GetKind()]:
			t.Errorf("%s: unexpected result for its kind: served is %v", documents[i].Name(), served)
		}
	}
}

// testExamples applies every example to a separate namespace, as described in its first lines, and deletes it
// afterwards.
func (w *world) testExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*.yaml")
	if err != nil || len(files) != 12 {
		t.Fatalf("got %d examples (error %v), want 12", len(files), err)
	}
	const namespace = "examples"
	if err := w.put(t.Context(),
		object(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+"}}")); err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../../docs/how-to/compare-indexed-job.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			begins, _, _ := strings.Cut(string(text), "\napiVersion")
			if !strings.HasPrefix(begins, "# ") || !strings.Contains(begins, "\n#   kubectl ") {
				t.Error("example does not start with a description and commands")
			}
			documents, err := chart.Documents(string(text))
			if err != nil {
				t.Fatal(err)
			}
			for i := range documents {
				w.wantExample(t, documents[i].Object, namespace, filepath.Base(file) == "placed-job.yaml")
			}
		})
	}
}

// wantExample checks that an object of an example can be used in any namespace, that it selects the KubEnergy
// scheduler only if the example is about placement and that the server accepts it.
func (w *world) wantExample(t *testing.T, object *unstructured.Unstructured, namespace string, places bool) {
	t.Helper()
	name := object.GetKind() + "/" + object.GetName()
	if object.GetNamespace() != "" {
		t.Errorf("%s must not set a namespace", name)
	}
	if text, err := object.MarshalJSON(); err != nil || strings.Contains(string(text), `"schedulerName"`) != places {
		t.Errorf("%s: unexpected schedulerName, want one: %v (error %v)", name, places, err)
	}
	object.SetNamespace(namespace)
	client, err := w.resource(object)
	if err != nil || client == nil {
		t.Fatalf("%s: kind is not supported by the server: %v", name, err)
	}
	if _, err := client.Create(t.Context(), object, metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict,
	}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if err := client.Delete(t.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

func (w *world) testManifests(t *testing.T) {
	for _, name := range []string{
		"kubenergy.yaml", "hold/admission.yaml", "hold/guard.yaml", "scheduler/rbac.yaml", "agent/daemonset.yaml",
	} {
		w.wantFileAccepted(t, filepath.Join("../../deploy", name))
	}
}

func (w *world) wantFileAccepted(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := chart.Documents(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	t.Run(filepath.Base(file), func(t *testing.T) { w.wantAccepted(t, documents) })
}

// testUpgrade disables and reenables the holding of Jobs and the agent. The admission policy is removed from and
// added to the release, and the agent is reinstalled in its existing namespace.
func (w *world) testUpgrade(t *testing.T) {
	policies := w.Client.AdmissionregistrationV1().MutatingAdmissionPolicies()
	w.helm(t, "upgrade", "kubenergy", chart.Folder, "--set", "policy.mode=enforce,hold.enabled=false")
	if _, err := policies.Get(t.Context(), "kubenergy-hold", metav1.GetOptions{}); err == nil {
		t.Error("admission policy still exists although hold.enabled is false")
	}
	w.wantAgent(t, false)
	w.helm(t, "upgrade", "kubenergy", chart.Folder, "--set", installed)
	w.wantAgent(t, true)
	if _, err := policies.Get(t.Context(), "kubenergy-hold", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := w.Client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Get(t.Context(), "kubenergy-hold",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func (w *world) wantAgent(t *testing.T, want bool) {
	t.Helper()
	_, err := w.Client.AppsV1().DaemonSets(cluster.AgentNamespace).Get(t.Context(), "kubenergy-agent",
		metav1.GetOptions{})
	if (err == nil) != want {
		t.Errorf("agent DaemonSet exists: want %v (error %v)", want, err)
	}
	n, err := w.Client.CoreV1().Namespaces().Get(t.Context(), cluster.AgentNamespace, metav1.GetOptions{})
	if err != nil || n.DeletionTimestamp != nil {
		t.Errorf("namespace of the agent is missing or being deleted: %v", err)
	}
}
