package chart

import (
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestLint(t *testing.T) {
	out, err := Helm(t.Context(), os.DevNull, "lint", Folder, "--strict", "--namespace", "kubenergy-system")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestRefusals verifies that invalid values make the installation fail with a message that describes the mistake.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"another namespace": {
			[]string{"--namespace", "default"},
			"must be installed in the namespace kubenergy-system, not in default",
		},
		"an old cluster":          {[]string{"--kube-version", "1.35.2"}, "Jobs are held by MutatingAdmissionPolicy v1"},
		"a cluster that is newer": {[]string{"--kube-version", "1.38.0"}, "may be at most one minor version older"},
		"an unknown value":        {[]string{"--set", "scheduller.replicas=1"}, "scheduller"},
		"an unknown setting":      {[]string{"--set", "policy.alloweddelay=6h"}, "alloweddelay"},
		"an unknown mode":         {[]string{"--set", "policy.mode=on"}, "/policy/mode"},
		"an invalid delay":        {[]string{"--set", "policy.maxDelay=abc"}, "/policy/maxDelay"},
		"a delay without a unit":  {[]string{"--set-string", "policy.allowedDelay=6"}, "/policy/allowedDelay"},
		"a negative delay":        {[]string{"--set", "policy.allowedDelay=-6h"}, "/policy/allowedDelay"},
		"an invalid duration of a workload type": {
			[]string{"--set", "policy.workloadTypes.batch.expectedDuration=1 day"},
			"/policy/workloadTypes/batch/expectedDuration",
		},
		"an unknown kind of meter": {[]string{
			"--set-json", `meters=[{"node":"n","kind":"shely1","url":"http://x"}]`,
		}, "/meters/0/kind"},
		"an unknown source": {
			[]string{
				"--set-json", `zones=[{"name":"x","spec":{"zone":"DE","carbon":{"sources":[{"crystalBall":{}}]}}}]`,
			},
			"crystalBall",
		},
		"an unknown zone":         {[]string{"--set", "zone=GERMANY"}, `zone "GERMANY" is unknown`},
		"a zone in small letters": {[]string{"--set", "zone=de"}, "docs/reference/zones.md"},
		"two kinds of data": {[]string{
			"--set", "signals.data.configMap=a,signals.data.persistentVolumeClaim=b",
		}, "name one of them"},
		"passwords of meters among keys of signals": {[]string{
			"--set", "signals.keysSecret=keys", "--set-json", `meters=[{"node":"n","kind":"shelly2","url":"http://x","passwordKey":"p"}]`,
		}, "meterKeysSecret"},
		"one Secret for two kinds of keys": {
			[]string{"--set", "signals.keysSecret=keys,budgets.webhookKeySecret=keys"}, "give each a Secret of its own",
		},
		"a ServiceMonitor without a certificate": {[]string{"--set", "metrics.serviceMonitor.enabled=true"}, "metrics.tlsSecret"},
		"names without rules": {
			[]string{"--set", "metrics.computeGardenerNames.code=true"},
			"metrics.rules.enabled",
		},
		"Prometheus in no namespace": {
			[]string{
				"--set",
				"metrics.tlsSecret=t,metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.prometheus.name=p",
			},
			"metrics.serviceMonitor.prometheus.namespace",
		},
		"an unknown value of the agent": {[]string{"--set", "agent.privileged=true"}, "privileged"},
		"a push in the clear":           {[]string{"--set", "agent.push.url=http://central"}, "/agent/push/url"},
		"no unavailable agents":         {[]string{"--set", "agent.maxUnavailable=0"}, "/agent/maxUnavailable"},
		"the host's files for an agent": {
			[]string{"--set-json", `agent.extraVolumes=[{"name":"etc","hostPath":{"path":"/etc"}}]`}, "hostPath",
		},
		"two certificates": {
			[]string{"--set", "agent.enabled=true,agent.metrics.tlsSecret=a,agent.metrics.webConfigSecret=b"},
			"name the certificate in the web configuration",
		},
		"a Secret of another namespace for agents": {
			[]string{"--set", "agent.enabled=true,api.tlsSecret=api"},
			"name it in agent.push.caSecret",
		},
		"a token in clear": {
			[]string{"--set", "agent.enabled=true,agent.metrics.tokenSecret=t"}, "without TLS, the network sees the token",
		},
		"metrics without a token or network policy": {
			[]string{"--set", "agent.enabled=true,networkPolicy.enabled=false"},
			"agent.metrics.tokenSecret",
		},
		"forwarding without a name": {
			[]string{"--set", "federation.forward.url=https://x,federation.forward.tokenSecret=t"}, "federation.cluster",
		},
		"forwarding in the clear": {
			[]string{"--set", "federation.forward.url=http://x"}, "/federation/forward/url",
		},
		"a token among keys of signals": {
			[]string{"--set", "signals.keysSecret=keys,federation.forward.tokenSecret=keys"}, "give each a Secret of its own",
		},
		"a member with a slash": {
			[]string{"--set-json", `federation.members=[{"name":"a/b"}]`}, "/federation/members/0/name",
		},
		"an unknown way to expose":  {[]string{"--set", "api.expose.type=NodePort"}, "/api/expose/type"},
		"an Ingress without a host": {[]string{"--set", "api.expose.type=Ingress"}, "api.expose.host"},
		"a route without a Gateway": {
			[]string{"--set", "api.expose.type=Gateway,api.expose.host=x.example.org"}, "api.expose.gateway.name",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Template(t.Context(), c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one that contains %q", err, c.want)
			}
		})
	}
}

// everything contains values that enable all optional parts of the chart.
var everything = []string{
	"--set",
	"stress.enabled=true,stress.jobs=2,controller.replicas=2,ledger.postgres.secret=ledger,metrics.tlsSecret=tls,metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true",
	"--set",
	"metrics.computeGardenerNames.code=true,metrics.computeGardenerNames.documents=true,signals.keysSecret=keys,power.enabled=true",
}

// TestPodsAreRestricted checks the requirements of the restricted Pod Security Standard. It also verifies that pods
// only have a token if they need one, that their root file systems are read-only and that they have requests and
// limits.
func TestPodsAreRestricted(t *testing.T) {
	documents, err := Template(t.Context(), everything...)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range documents {
		d := &documents[i]
		spec := podSpec(t, d)
		if spec == nil {
			continue
		}
		seen++
		report := func(what string) { t.Errorf("%s: %s", d.Name(), what) }
		s := spec.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || *s.RunAsUser == 0 ||
			s.SeccompProfile.Type != v1.SeccompProfileTypeRuntimeDefault {
			report("pods may run as root or without a seccomp profile")
		}
		if spec.HostNetwork || spec.HostPID || spec.HostIPC {
			report("pods use host namespaces")
		}
		asks := spec.ServiceAccountName != ""
		if token := spec.AutomountServiceAccountToken; token == nil || *token != asks {
			report("automountServiceAccountToken is unset or does not match the use of a service account")
		}
		for _, c := range spec.Containers {
			cs := c.SecurityContext
			if cs == nil || *cs.AllowPrivilegeEscalation || !*cs.ReadOnlyRootFilesystem ||
				!slices.Equal(cs.Capabilities.Drop, []v1.Capability{"ALL"}) {
				report("container " + c.Name + " is not restricted")
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() {
				report("container " + c.Name + " has no resource requests")
			}
			if c.Resources.Limits.Memory().IsZero() && !strings.HasPrefix(d.Object.GetName(), "kubenergy-stress") {
				report("container " + c.Name + " has no memory limit")
			}
		}
		for _, v := range spec.Volumes {
			if v.HostPath != nil {
				report("pods mount the host path " + v.HostPath.Path)
			}
		}
	}
	if seen != 7 {
		t.Errorf("got %d pod templates, want those of scheduler, controller, kubenergy-power, the release Job, "+
			"the wake-up Job and 2 stress Jobs", seen)
	}
}

func podSpec(t *testing.T, d *Document) *v1.PodSpec {
	t.Helper()
	var deployment appsv1.Deployment
	var daemonSet appsv1.DaemonSet
	var job batchv1.Job
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	switch d.Object.GetKind() {
	case "Deployment":
		if err := convert(d.Object.Object, &deployment); err != nil {
			t.Fatal(err)
		}
		return &deployment.Spec.Template.Spec
	case "DaemonSet":
		if err := convert(d.Object.Object, &daemonSet); err != nil {
			t.Fatal(err)
		}
		return &daemonSet.Spec.Template.Spec
	case "Job":
		if err := convert(d.Object.Object, &job); err != nil {
			t.Fatal(err)
		}
		return &job.Spec.Template.Spec
	}
	return nil
}

// TestHooks verifies that only the binding is created after an installation, that only the release and wake-up Jobs
// run before an uninstallation and that the objects of these Jobs are deleted afterwards.
func TestHooks(t *testing.T) {
	documents, err := Template(t.Context(), everything...)
	if err != nil {
		t.Fatal(err)
	}
	var hooks []string
	for i := range documents {
		d := &documents[i]
		hook := d.HookOf()
		if hook == "" {
			continue
		}
		hooks = append(hooks, hook+" "+d.Name())
		policy := d.Object.GetAnnotations()["helm.sh/hook-delete-policy"]
		if hook == "pre-delete" && (!strings.Contains(policy, "hook-succeeded") ||
			!strings.Contains(policy, "hook-failed")) {
			t.Errorf("%s is not deleted after its hook: %s", d.Name(), policy)
		}
	}
	slices.Sort(hooks)
	want := []string{
		"post-install,post-upgrade,post-rollback MutatingAdmissionPolicyBinding/kubenergy-hold",
		"pre-delete ClusterRole/kubenergy-release", "pre-delete ClusterRole/kubenergy-wake",
		"pre-delete ClusterRoleBinding/kubenergy-release", "pre-delete ClusterRoleBinding/kubenergy-wake",
		"pre-delete Job/kubenergy-release", "pre-delete Job/kubenergy-wake",
		"pre-delete ServiceAccount/kubenergy-release", "pre-delete ServiceAccount/kubenergy-wake",
	}
	if !slices.Equal(hooks, want) {
		t.Errorf("unexpected hooks: %q", hooks)
	}
	if documents, err = Template(t.Context(), "--set", "hold.enabled=false"); err != nil {
		t.Fatal(err)
	}
	for i := range documents {
		if strings.HasPrefix(documents[i].Object.GetKind(), "MutatingAdmission") {
			t.Errorf("unexpected %s although hold.enabled is false", documents[i].Name())
		}
	}
}

// TestStartsInShadow verifies that installing the chart does not affect any workload and requires no API key.
func TestStartsInShadow(t *testing.T) {
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for i := range documents {
		text := documents[i].Text
		switch documents[i].Object.GetKind() {
		case "EnergyPolicy":
			found["policy"] = strings.Contains(text, "mode: shadow") && !strings.Contains(text, "allowedDelay")
		case "GridZone":
			found["zone"] = strings.Contains(text, "typical: {}") && strings.Contains(text, "default: true") &&
				!strings.Contains(text, "key:")
		case "Job":
			found["job"] = documents[i].HookOf() == "pre-delete"
		}
	}
	for _, what := range []string{"policy", "zone", "job"} {
		if !found[what] {
			t.Errorf("unexpected %s after an installation without values", what)
		}
	}
}
