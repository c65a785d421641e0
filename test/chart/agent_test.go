package chart

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// agent renders the agent's part of the chart and returns its DaemonSet, its NetworkPolicy and the kinds of all
// objects.
func agent(t *testing.T, args ...string) (set appsv1.DaemonSet, policy networkingv1.NetworkPolicy, kinds []string) {
	t.Helper()
	documents, err := Template(t.Context(), append([]string{"--set", "agent.enabled=true"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	for i := range documents {
		d := &documents[i]
		if d.Object.GetLabels()["app.kubernetes.io/name"] != "kubenergy-agent" {
			continue
		}
		kinds = append(kinds, d.Object.GetKind())
		var into any
		switch d.Object.GetKind() {
		case "DaemonSet":
			into = &set
		case "NetworkPolicy":
			into = &policy
		default:
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, into); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(kinds)
	return set, policy, kinds
}

// TestAgentCanDoLittle verifies that the pods of the agent can only read two host directories, as root. They have
// no permissions, token or capabilities and cannot write to any file of the host.
func TestAgentCanDoLittle(t *testing.T) {
	set, _, kinds := agent(t)
	// The Role belongs to the controller.
	if want := []string{
		"ConfigMap", "DaemonSet", "Namespace", "NetworkPolicy", "Role", "RoleBinding", "Service", "ServiceAccount",
	}; !slices.Equal(kinds, want) {
		t.Errorf("rendered kinds = %q, want %q", kinds, want)
	}
	spec := &set.Spec.Template.Spec
	if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.HostUsers != nil {
		t.Error("pods of the agent use host namespaces or a user namespace")
	}
	if token := spec.AutomountServiceAccountToken; token == nil || *token {
		t.Error("pods of the agent mount a service account token")
	}
	c := &spec.Containers[0]
	want := &v1.SecurityContext{
		AllowPrivilegeEscalation: new(bool), ReadOnlyRootFilesystem: new(true),
		Capabilities: &v1.Capabilities{Drop: []v1.Capability{"ALL"}},
	}
	if diff := cmp.Diff(want, c.SecurityContext); diff != "" || len(spec.Containers) != 1 ||
		len(spec.InitContainers) != 0 {
		t.Errorf("unexpected containers (%d) or security context (-want,+got):\n%s", len(spec.Containers), diff)
	}
	if s := spec.SecurityContext; *s.RunAsUser != 0 || s.SeccompProfile.Type != v1.SeccompProfileTypeRuntimeDefault ||
		s.RunAsNonRoot != nil {
		t.Errorf("unexpected pod security context: %+v", s)
	}
	if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
		c.Resources.Limits.Memory().IsZero() {
		t.Errorf("unexpected resources: %v", c.Resources)
	}
	mounts := map[string]v1.VolumeMount{}
	for _, m := range c.VolumeMounts {
		mounts[m.Name] = m
	}
	paths := map[string]string{}
	for _, v := range spec.Volumes {
		m := mounts[v.Name]
		if v.HostPath == nil {
			continue
		}
		paths[v.HostPath.Path] = m.MountPath
		// Control groups of version 1 are separate file systems below the mount point. ReadOnly alone would leave
		// them writable.
		if !m.ReadOnly || m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != v1.RecursiveReadOnlyIfPossible {
			t.Errorf("unexpected mount of host path %s: %+v", v.HostPath.Path, m)
		}
	}
	// The container runtime masks the path /sys/devices/virtual/powercap, so it is mounted elsewhere.
	if diff := cmp.Diff(map[string]string{
		"/sys/fs/cgroup": "/host/sys/fs/cgroup", "/sys/devices/virtual": "/host/sys/devices/virtual",
	}, paths); diff != "" {
		t.Error(diff)
	}
	for _, arg := range []string{
		"--cgroup-root=/host/sys/fs/cgroup", "--powercap-root=/host/sys/devices/virtual/powercap",
	} {
		if !slices.Contains(c.Args, arg) {
			t.Errorf("missing argument %s in %q", arg, c.Args)
		}
	}
	if env := c.Env[0]; env.Name != "NODE_NAME" || env.ValueFrom.FieldRef.FieldPath != "spec.nodeName" {
		t.Errorf("unexpected source of the node name: %+v", env)
	}
}

// TestAgentsHaveANamespace verifies that agents have their own namespace, so that no other namespace of KubEnergy
// requires the Pod Security level privileged, and that the network policies still allow traffic between the agents
// and the controller.
func TestAgentsHaveANamespace(t *testing.T) {
	const own = "kubenergy-agent"
	documents, err := Template(t.Context(), append(slices.Clone(everything), "--set", "agent.enabled=true", "--set-json",
		`api.from=[{"ipBlock":{"cidr":"10.0.0.0/8"}}]`)...)
	if err != nil {
		t.Fatal(err)
	}
	peers, levels := map[string]string{}, map[string]string{}
	for i := range documents {
		d := &documents[i]
		namespace := d.Object.GetNamespace()
		if namespace != "" && (namespace == own) != (d.Object.GetLabels()["app.kubernetes.io/name"] == own) {
			t.Errorf("unexpected namespace for %s: %s", d.Name(), namespace)
		}
		switch d.Object.GetKind() {
		case "Namespace":
			levels[d.Object.GetName()] = d.Object.GetLabels()["pod-security.kubernetes.io/enforce"]
			if d.Object.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("%s lacks the resource policy keep, so its Secrets would be deleted", d.Name())
			}
		case "NetworkPolicy":
			var policy networkingv1.NetworkPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &policy); err != nil {
				t.Fatal(err)
			}
			peers[d.Object.GetName()] = podsElsewhere(policy.Spec)
		}
	}
	if diff := cmp.Diff(map[string]string{own: "privileged"}, levels); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{
		own: "kubenergy-system/kubenergy-controller", "kubenergy-controller": "kubenergy-agent/kubenergy-agent",
		"kubenergy-scheduler": "", "kubenergy-release": "", "kubenergy-power": "",
	}, peers); diff != "" {
		t.Error(diff)
	}
}

// podsElsewhere returns the peers of a network policy that select pods in other namespaces.
func podsElsewhere(s networkingv1.NetworkPolicySpec) string {
	var all []networkingv1.NetworkPolicyPeer
	for _, r := range s.Ingress {
		all = append(all, r.From...)
	}
	for _, r := range s.Egress {
		all = append(all, r.To...)
	}
	var found []string
	for _, p := range all {
		if p.NamespaceSelector != nil {
			found = append(found, p.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]+"/"+
				p.PodSelector.MatchLabels["app.kubernetes.io/name"])
		}
	}
	return strings.Join(found, " ")
}

// TestAgentsStateOutlivesThePod checks the only host directory that agents may write to if it is enabled in the
// values.
func TestAgentsStateOutlivesThePod(t *testing.T) {
	state := func(args ...string) (v1.VolumeSource, v1.VolumeMount) {
		set, _, _ := agent(t, args...)
		spec := &set.Spec.Template.Spec
		volume := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == "state" })
		mount := slices.IndexFunc(spec.Containers[0].VolumeMounts, func(m v1.VolumeMount) bool {
			return m.Name == "state"
		})
		if volume < 0 || mount < 0 {
			t.Fatal("agent has no volume or mount for its state")
		}
		return spec.Volumes[volume].VolumeSource, spec.Containers[0].VolumeMounts[mount]
	}
	if v, _ := state(); v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumMemory || v.HostPath != nil {
		t.Errorf("unexpected default volume for the state: %+v", v)
	}
	v, m := state("--set", "agent.state.hostPath=/run/kubenergy/agent")
	if v.EmptyDir != nil || v.HostPath == nil || v.HostPath.Path != "/run/kubenergy/agent" ||
		*v.HostPath.Type != v1.HostPathDirectoryOrCreate {
		t.Errorf("unexpected volume for the state: %+v", v)
	}
	if m.ReadOnly || m.MountPath != "/var/lib/kubenergy" {
		t.Errorf("unexpected mount of the state: %+v", m)
	}
	for _, path := range []string{"run", "/", "/run/", "/run/../etc", "/run//x"} {
		if _, err := Template(t.Context(), "--set", "agent.enabled=true,agent.state.hostPath="+path); err == nil {
			t.Errorf("expected state path %s to be rejected", path)
		}
	}
}

// TestAgentIsOnEveryNodeOnce verifies that taints do not prevent a node from being metered and that no node ever
// runs two agents.
func TestAgentIsOnEveryNodeOnce(t *testing.T) {
	set, _, _ := agent(t)
	spec := &set.Spec.Template.Spec
	if !slices.Equal(spec.Tolerations, []v1.Toleration{{Operator: v1.TolerationOpExists}}) ||
		len(spec.NodeSelector) > 0 || spec.Affinity != nil {
		t.Errorf("agent does not run on all nodes: tolerations %v, node selector %v",
			spec.Tolerations, spec.NodeSelector)
	}
	update := set.Spec.UpdateStrategy
	if update.Type != appsv1.RollingUpdateDaemonSetStrategyType || update.RollingUpdate.MaxSurge.IntValue() != 0 ||
		update.RollingUpdate.MaxUnavailable.String() != "10%" {
		t.Errorf("unexpected update strategy: %+v", update)
	}
}

// TestAgentsNetwork checks the ingress and egress rules of an agent.
func TestAgentsNetwork(t *testing.T) {
	const prometheus = `networkPolicy.metricsFrom=[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"monitoring"}}}]`
	for name, c := range map[string]struct {
		args    []string
		ingress string // number of peers and ports of each rule
		egress  string
	}{
		"by default":      {nil, "", "0:53,53 1:9443 "},
		"with Prometheus": {[]string{"--set-json", prometheus}, "1:2112 ", "0:53,53 1:9443 "},
		"with a token":    {[]string{"--set", "agent.metrics.tokenSecret=t,agent.metrics.tlsSecret=c"}, "0:2112 ", "0:53,53 1:9443 "},
		"with a config":   {[]string{"--set", "agent.metrics.webConfigSecret=t"}, "0:2112 ", "0:53,53 1:9443 "},
		"with both": {
			[]string{"--set", "agent.metrics.tokenSecret=t,agent.metrics.tlsSecret=c", "--set-json", prometheus},
			"1:2112 ",
			"0:53,53 1:9443 ",
		},
		"pushing":           {[]string{"--set", "agent.push.url=https://central/ingest"}, "", "0:53,53 0:443 "},
		"pushing to a port": {[]string{"--set", "agent.push.url=https://[fd00::1]:8444/x:9"}, "", "0:53,53 0:8444 "},
		"pushing to a peer": {
			[]string{
				"--set", "agent.push.url=https://central", "--set-json",
				`agent.push.to=[{"ipBlock":{"cidr":"10.0.0.7/32"}}]`,
			}, "", "0:53,53 1:443 ",
		},
		"with Scaphandre": {
			[]string{"--set-json", `networkPolicy.agentEgress=[{"ports":[{"port":8080}]}]`},
			"",
			"0:53,53 1:9443 0:8080 ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, policy, _ := agent(t, c.args...)
			if !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
				t.Errorf("unexpected policy types: %v", policy.Spec.PolicyTypes)
			}
			var ingress, egress strings.Builder
			for _, r := range policy.Spec.Ingress {
				describe(&ingress, len(r.From), r.Ports)
			}
			for _, r := range policy.Spec.Egress {
				describe(&egress, len(r.To), r.Ports)
			}
			if ingress.String() != c.ingress || egress.String() != c.egress {
				t.Errorf("ingress = %q, egress = %q, want %q, %q", &ingress, &egress, c.ingress, c.egress)
			}
		})
	}
}

func describe(into *strings.Builder, peers int, ports []networkingv1.NetworkPolicyPort) {
	var names []string
	for _, p := range ports {
		names = append(names, p.Port.String())
	}
	into.WriteString(string(rune('0'+peers)) + ":" + strings.Join(names, ",") + " ")
}

// TestAgentsGPUs verifies that only agents with GPU metering can access the driver and the processes of the node.
func TestAgentsGPUs(t *testing.T) {
	set, _, _ := agent(t, "--set", "agent.gpu.enabled=true")
	spec := &set.Spec.Template.Spec
	c := &spec.Containers[0]
	mounted := slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
		return m.MountPath == "/host/driver/usr" && m.ReadOnly
	})
	from := slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool {
		return v.Name == "driver" && v.HostPath != nil && v.HostPath.Path == "/usr"
	})
	asks := slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool {
		return e.Name == "NVIDIA_VISIBLE_DEVICES" && e.Value == "all"
	})
	if !slices.Contains(c.Args, "--gpu-root=/host/driver") || !mounted || !from || !asks || !spec.HostPID ||
		spec.RuntimeClassName == nil || *spec.RuntimeClassName != "nvidia" {
		t.Errorf("unexpected GPU configuration: args %v, mounted %v, from host %v, GPUs %v, host PID %v, runtime class %v",
			c.Args, mounted, from, asks,
			spec.HostPID, spec.RuntimeClassName)
	}
	set, _, _ = agent(t, "--set", "agent.gpu.dcgmURL=http://$(HOST_IP):9400/metrics")
	spec = &set.Spec.Template.Spec
	if spec.HostPID || spec.RuntimeClassName != nil ||
		!slices.Contains(spec.Containers[0].Args, "--dcgm-url=http://$(HOST_IP):9400/metrics") {
		t.Errorf("unexpected pod spec for metering through the DCGM exporter: %v", spec)
	}
}

// TestAgentsSecrets verifies that every file on the command line is mounted, that only root can read the secrets
// and that the probes of the kubelet match the configuration of the web server.
func TestAgentsSecrets(t *testing.T) {
	set, _,
		kinds := agent(t, "--set", "agent.push.url=https://central,agent.push.caSecret=ca,agent.push.certSecret=cert",
		"--set", "agent.metrics.tlsSecret=tls,agent.metrics.tokenSecret=token,agent.guestDir=/var/scaphandre")
	if slices.Contains(kinds, "Role") {
		t.Errorf("unexpected Role for a ConfigMap that no agent reads in %q", kinds)
	}
	if !slices.Contains(kinds, "ConfigMap") {
		t.Errorf("no ConfigMap with the web configuration in %q", kinds)
	}
	spec := &set.Spec.Template.Spec
	c := &spec.Containers[0]
	for _, arg := range c.Args {
		name, value, _ := strings.Cut(arg, "=")
		if !strings.HasSuffix(name, "-file") && name != "--web-config" && name != "--guest-dir" {
			continue
		}
		if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool {
			return (value == m.MountPath || strings.HasPrefix(value, m.MountPath+"/")) && m.ReadOnly
		}) {
			t.Errorf("path of argument %s is not in a volume", arg)
		}
	}
	for _, v := range spec.Volumes {
		if !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == v.Name }) {
			t.Errorf("volume %s is not mounted", v.Name)
		}
		if v.Secret != nil && *v.Secret.DefaultMode != 0o400 ||
			v.Projected != nil && *v.Projected.DefaultMode != 0o400 {
			t.Errorf("volume %s is readable for users other than root", v.Name)
		}
		if p := v.Projected; p != nil {
			if token := p.Sources[0].ServiceAccountToken; token.Audience != "kubenergy" ||
				*token.ExpirationSeconds != 600 || len(p.Sources) != 1 {
				t.Errorf("unexpected service account token: %+v", token)
			}
		}
	}
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe} {
		if probe.HTTPGet == nil || probe.HTTPGet.Scheme != v1.URISchemeHTTPS || probe.HTTPGet.Path != "/healthz" {
			t.Errorf("unexpected probe: %+v", probe)
		}
	}
	set, _, _ = agent(t, "--set", "agent.metrics.webConfigSecret=web")
	for _, probe := range []*v1.Probe{
		set.Spec.Template.Spec.Containers[0].LivenessProbe, set.Spec.Template.Spec.Containers[0].ReadinessProbe,
	} {
		if probe.TCPSocket == nil {
			t.Errorf("with client certificates, unexpected probe: %+v", probe)
		}
	}
}

// endpoint is the part of a ServiceMonitor that determines the labels of stored series.
type endpoint struct {
	HonorLabels       bool      `json:"honorLabels"`
	Relabelings       []relabel `json:"relabelings"`
	MetricRelabelings []relabel `json:"metricRelabelings"`
}

type relabel struct {
	Action       string   `json:"action"`
	SourceLabels []string `json:"sourceLabels"`
	TargetLabel  string   `json:"targetLabel"`
	Regex        string   `json:"regex"`
}

// apply applies a relabeling rule like Prometheus. It only supports the features that the chart uses.
func (r *relabel) apply(t *testing.T, labels map[string]string) {
	t.Helper()
	switch {
	case r.Action == "" && len(r.SourceLabels) == 1 && r.Regex == "":
		labels[r.TargetLabel] = labels[r.SourceLabels[0]]
	case r.Action == "labeldrop":
		drop := regexp.MustCompile("^(?:" + r.Regex + ")$")
		maps.DeleteFunc(labels, func(name, _ string) bool { return drop.MatchString(name) })
	default:
		t.Fatalf("unsupported relabeling rule: %+v", r)
	}
}

// scrape returns the labels under which Prometheus stores a series of a target.
func (e *endpoint) scrape(t *testing.T, target, series map[string]string) map[string]string {
	t.Helper()
	target = maps.Clone(target)
	for i := range e.Relabelings {
		e.Relabelings[i].apply(t, target)
	}
	maps.DeleteFunc(target, func(name, _ string) bool { return strings.HasPrefix(name, "__") })
	stored := maps.Clone(target)
	for name, value := range series {
		if _, taken := target[name]; taken && !e.HonorLabels {
			for name = "exported_" + name; series[name] != ""; {
				name = "exported_" + name
			}
		}
		stored[name] = value
	}
	for i := range e.MetricRelabelings {
		e.MetricRelabelings[i].apply(t, stored)
	}
	return stored
}

// TestAgentIsScraped verifies that series of pods cannot be mistaken for series of the agent, that an agent cannot
// write series of another node and that the scrape configuration contains the required credentials.
func TestAgentIsScraped(t *testing.T) {
	documents, err := Template(t.Context(), "--set",
		"agent.enabled=true,agent.metrics.tlsSecret=atls,agent.metrics.tokenSecret=atoken",
		"--set", "metrics.tlsSecret=tls,metrics.serviceMonitor.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(documents, func(d Document) bool { return d.Name() == "ServiceMonitor/kubenergy-agent" })
	if i < 0 {
		t.Fatal("no ServiceMonitor rendered")
	}
	for _, want := range []string{
		"{name: atls, key: ca.crt}", "{name: atoken, key: token}", "scheme: https",
		"serverName: kubenergy-agent.kubenergy-agent.svc",
	} {
		if !strings.Contains(documents[i].Text, want) {
			t.Errorf("ServiceMonitor does not contain %q:\n%s", want, documents[i].Text)
		}
	}
	var monitor struct {
		Spec struct {
			Endpoints []endpoint `json:"endpoints"`
		} `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents[i].Object.Object, &monitor); err != nil {
		t.Fatal(err)
	}
	// Labels that the operator and the service discovery set on a target.
	target := map[string]string{
		"__meta_kubernetes_pod_node_name": "worker-1", "job": "kubenergy-agent", "instance": "10.0.0.1:2112",
		"namespace": "kubenergy-agent",
		"pod":       "kubenergy-agent-x", "container": "agent", "service": "kubenergy-agent", "endpoint": "metrics",
	}
	for what, labels := range map[string][2]map[string]string{
		"the energy of a container": {
			{
				"node": "worker-1", "pod_uid": "u", "container_id": "c", "namespace": "shop", "pod": "cart-0",
				"container": "server",
			},
			{
				"node": "worker-1", "pod_uid": "u", "container_id": "c", "namespace": "shop", "pod": "cart-0",
				"container": "server",
			},
		},
		"without names": {{"node": "worker-1", "pod_uid": "u"}, {"node": "worker-1", "pod_uid": "u"}},
		"forged labels": {
			{"node": "worker-2", "instance": "worker-2", "job": "kubenergy-scheduler", "exported_node": "worker-3"},
			{"node": "worker-1"},
		},
	} {
		want := labels[1]
		want["instance"], want["job"] = "worker-1", "kubenergy-agent"
		if diff := cmp.Diff(want, monitor.Spec.Endpoints[0].scrape(t, target, labels[0])); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
}
