package kubelet

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/kwok/pkg/utils/expression"
)

func podOf(images ...string) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name = "some"
	for i, image := range images {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: string(rune('a' + i)), Image: image})
	}
	return p
}

// TestRuns verifies that Runs is equivalent to Expression, which KWOK uses to ignore the same pods.
func TestRuns(t *testing.T) {
	o := &Programs{Images: []string{"kubenergy", "kubenergy-scheduler"}}
	query, err := expression.NewQuery(o.Expression())
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]bool{
		"kubenergy":    true,
		"kubenergy:v1": true,
		"registry.example:5000/group/kubenergy-scheduler":   true,
		"registry.example/kubenergy@sha256:00":              true,
		"registry.example/kubenergy-scheduler:v1@sha256:00": true,
		"kubenergy-controller":                              false,
		"kubenergy/other":                                   false,
		"my-kubenergy":                                      false,
		"kubenergy2":                                        false,
		"registry.example:5000/kubenergy.d/x":               false,
		"":                                                  false,
	} {
		for _, pod := range []*corev1.Pod{podOf(image), podOf("other:v1", image)} {
			if got := o.Runs(pod); got != want {
				t.Errorf("Runs() of image %q = %t", image, got)
			}
			found, err := query.Execute(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(found) > 0 && found[0] != nil; got != want {
				t.Errorf("unexpected result of the expression for image %q: %v", image, found)
			}
		}
	}
}

func TestPorts(t *testing.T) {
	spec := podOf("x").Spec
	c := &spec.Containers[0]
	c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8443}}
	c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8081)}}}
	c.Args = []string{"--secure-port=10259", "--metrics-bind-address=0", "--size=77"}
	p, err := newPorts(&spec)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(p)), []int{8081, 8443, 10259}; !cmp.Equal(got, want) {
		t.Errorf("newPorts() = %v, want %v", got, want)
	}
	p = ports{8081: 41, 8443: 42, 10259: 43}
	for arg, want := range map[string]string{
		"--secure-port=10259":                    "--secure-port=43",
		"--metrics-bind-address=:8443":           "--metrics-bind-address=127.0.0.1:42",
		"--health-probe-bind-address=[::]:8081":  "--health-probe-bind-address=127.0.0.1:41",
		"--health-probe-bind-address=1.2.3.4:81": "--health-probe-bind-address=1.2.3.4:81",
		"0.0.0.0:8081":                           "127.0.0.1:41",
		"8081":                                   "41",
		"--bind-address=0.0.0.0":                 "--bind-address=127.0.0.1",
		"--metrics-bind-address=0":               "--metrics-bind-address=0",
		"--other-port=9999":                      "--other-port=9999",
		"http://localhost:8081/":                 "http://localhost:8081/",
		"a=8081":                                 "a=8081",
		"":                                       "",
	} {
		if got := p.rewrite(arg); got != want {
			t.Errorf("rewrite(%s) = %s, want %s", arg, got, want)
		}
	}
	if got := p.String(); got != "8081=41,8443=42,10259=43" {
		t.Errorf("unexpected String() = %s", got)
	}
	for _, port := range []intstr.IntOrString{intstr.FromString("web"), intstr.FromInt32(8443)} {
		if got, err := p.probed(c, port); err != nil || got != 42 {
			t.Errorf("probed(%s) = %d, error %v, want 42", port.String(), got, err)
		}
	}
	if _, err := p.probed(c, intstr.FromString("other")); err == nil {
		t.Error("probed() of an undeclared port = nil, want an error")
	}
}

func TestMounts(t *testing.T) {
	p := &pod{dir: "/pods/p"}
	c := &corev1.Container{VolumeMounts: []corev1.VolumeMount{
		{Name: "etc", MountPath: "/etc/app/"},
		{Name: "keys", MountPath: "/etc/app/keys"},
		{Name: "one", MountPath: "/one.yaml", SubPath: "a/b.yaml"},
	}}
	m := p.mounts(c)
	for arg, want := range map[string]string{
		"/etc/app":                             "/pods/p/volumes/etc",
		"--config=/etc/app/config.yaml":        "--config=/pods/p/volumes/etc/config.yaml",
		"/etc/app/keys/a,/etc/app/b:/one.yaml": "/pods/p/volumes/keys/a,/pods/p/volumes/etc/b:/pods/p/volumes/one/a/b.yaml",
		"/etc/apple /etc/app2 /etc/app.d":      "/etc/apple /etc/app2 /etc/app.d",
		"/srv/etc/app":                         "/srv/etc/app",
		"http://example.org/etc/app":           "http://example.org/etc/app",
		`{"file":"/etc/app/x"}`:                `{"file":"/pods/p/volumes/etc/x"}`,
		"":                                     "",
	} {
		if got := m.rewrite(arg); got != want {
			t.Errorf("rewrite(%s) = %s, want %s", arg, got, want)
		}
	}
}

func TestServing(t *testing.T) {
	p := &pod{dir: "/p"}
	if got := p.withServing([]string{"--v=2"}, true); len(got) != 1 {
		t.Errorf("unexpected arguments of a program without --secure-port: %v", got)
	}
	got := p.withServing([]string{"--secure-port=1", "--authentication-kubeconfig=mine"}, true)
	want := []string{
		"--secure-port=1", "--authentication-kubeconfig=mine", "--bind-address=127.0.0.1",
		"--authorization-kubeconfig=/p/kubeconfig",
	}
	if !cmp.Equal(got, want) {
		t.Errorf("withServing() = %v, want %v", got, want)
	}
	if got := p.withServing([]string{"--secure-port=1"}, false); len(got) != 2 {
		t.Errorf("unexpected arguments without a service account: %v", got)
	}
}

func TestWithKubeconfig(t *testing.T) {
	p := &pod{dir: "/p"}
	const config = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
	if got := string(p.withKubeconfig([]byte(config + "clientConnection: {qps: 5}\n"))); !strings.Contains(got,
		"kubeconfig: /p/kubeconfig") || !strings.Contains(got, "qps: 5") {
		t.Errorf("withKubeconfig() = %s, want the kubeconfig and qps", got)
	}
	for _, same := range []string{
		config + "clientConnection: {kubeconfig: mine}\n", "# KubeSchedulerConfiguration\nkind: Other\n",
		"KubeSchedulerConfiguration: [",
	} {
		if got := string(p.withKubeconfig([]byte(same))); got != same {
			t.Errorf("withKubeconfig(%q) = %q, want it unchanged", same, got)
		}
	}
}

func TestShow(t *testing.T) {
	dir := t.TempDir()
	read := func() map[string]string {
		all := map[string]string{}
		for _, name := range []string{"a", "b/c"} {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				all[name] = string(text)
			}
		}
		return all
	}
	for _, want := range []map[string]string{{"a": "1", "b/c": "2"}, {"a": "3"}, {"b/c": "4"}, {}} {
		files := content{}
		for name, text := range want {
			files[name] = file([]byte(text))
		}
		if err := show(dir, files); err != nil {
			t.Fatal(err)
		}
		if got := read(); !cmp.Equal(got, want) {
			t.Errorf("files in the volume = %v, want %v", got, want)
		}
	}
	if err := show(dir, content{"../x": file(nil)}); err == nil {
		t.Error("show() with a path outside the volume = nil, want an error")
	}
}
