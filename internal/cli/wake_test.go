package cli

import (
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/power"
)

// sleeper returns a node with a machine that is asleep.
func sleeper(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1alpha1.LabelPowerState: "asleep", v1alpha1.LabelMaySleep: "true", "node.kubernetes.io/exclude-disruption": "true",
		}, Annotations: map[string]string{v1alpha1.AnnotationPower: `{"excluded":true}`}},
		Spec: v1.NodeSpec{Taints: []v1.Taint{
			{Key: "own", Effect: v1.TaintEffectNoSchedule},
			{Key: v1alpha1.TaintAsleep, Effect: v1.TaintEffectNoSchedule},
		}},
	}
}

func TestWake(t *testing.T) {
	const nodes = "/api/v1/nodes"
	var reported []string
	broken, stuck := "", ""
	var mu sync.Mutex // machines are woken up concurrently
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if broken != "" && strings.Contains(string(body), broken) || r.Header.Get("X-Kubenergy-Signature-256") == "" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if reported = append(reported, string(body)); strings.Contains(string(body), `"state"`) {
			node := fmt.Sprint("n", slices.IndexFunc([]string{"n0", "n1", "n2"}, func(n string) bool { return strings.Contains(string(body), `"`+n+`"`) }))
			fmt.Fprintf(w, `{"on": %v}`, slices.ContainsFunc(reported, func(b string) bool {
				return strings.Contains(b, `{"action":"on",`) && strings.Contains(b, `"node":"`+node+`"`) && stuck != node
			}))
		}
	}))
	t.Cleanup(hook.Close)
	var text strings.Builder
	text.WriteString("keysSecret: power\nmachines:\n")
	for i := range 3 {
		fmt.Fprintf(&text, "- {node: n%d, uuid: 4c4c4544-0042-3510-8054-b4c04f56443%d, kind: webhook, url: '%s', "+
			"passwordKey: k}\n", i, i, hook.URL)
	}
	machines := strings.Replace(text.String(), "passwordKey: k", "passwordKey: k, caFile: "+power.KeysDir+"/bmc.pem", 1)
	certificate := httptest.NewTLSServer(nil)
	certificate.Close()
	pem := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate().Raw})
	world := func(t *testing.T) *apiServer {
		a := newAPIServer(t)
		reported, broken = nil, ""
		system := "/api/v1/namespaces/kubenergy-system/"
		a.add(t, system+"configmaps", &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "kubenergy-power"}, Data: map[string]string{"machines.yaml": machines},
		})
		a.add(t, system+"secrets", &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "power"}, Data: map[string][]byte{"k": []byte("sesame\n"), "bmc.pem": pem},
		})
		for i := range 3 {
			a.add(t, nodes, sleeper(fmt.Sprint("n", i)))
		}
		a.add(t, nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "awake"}})
		return a
	}
	asleep := func(a *apiServer) (names []string) {
		for i := range 3 {
			o := a.get(t, fmt.Sprint(nodes, "/n", i))
			text, _ := o.MarshalJSON()
			if strings.Contains(string(text), v1alpha1.TaintAsleep) || o.GetLabels()[v1alpha1.LabelPowerState] != "" {
				names = append(names, o.GetName())
			}
			if !strings.Contains(string(text), `"own"`) || o.GetLabels()[v1alpha1.LabelMaySleep] != "true" {
				t.Errorf("an unrelated taint or label was removed: %s", text)
			}
		}
		return names
	}

	a := world(t)
	if code, stdout, stderr := a.run(t, "wake", "n1"); code != 0 ||
		stdout != "node n1: woken\n1 machine woken up\n" || !slices.Equal(asleep(a), []string{"n0", "n2"}) {
		t.Errorf("exit code %d: %s%s%v", code, stdout, stderr, asleep(a))
	}
	if len(reported) != 3 || !strings.Contains(reported[1], `{"action":"on",`) {
		t.Error(reported)
	}
	broken = "n2"
	if code, _, stderr := a.run(t, "wake", "--all", "--timeout=3s"); code != 1 ||
		!strings.Contains(stderr, "1 machine woken up, others failed: node n2: ") || !slices.Equal(asleep(a), []string{"n2"}) {
		t.Errorf("exit code %d: %s%v", code, stderr, asleep(a))
	}

	stuck, broken = "n2", ""
	if code, _, stderr := a.run(t, "wake", "--all", "--timeout=3s"); code != 1 ||
		!strings.Contains(stderr, "node n2: its machine was ordered to start but is not on") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	stuck = ""

	a = world(t) // files replace the missing ConfigMap and Secret
	dir := t.TempDir()
	for name, text := range map[string]string{"machines.yaml": machines, "k": "sesame", "bmc.pem": string(pem)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := a.run(t, "wake", "n7"); code != 1 || !strings.Contains(stderr, "no such node n7") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	a.refused["get configmaps"], a.refused["get secrets"] = true, true
	if code, _, _ := a.run(t, "wake", "--all"); code != 1 {
		t.Error("expected an error without permission to read the machines")
	}
	if code, stdout, stderr := a.run(t, "wake", "--all", "--config", filepath.Join(dir, "machines.yaml"), "--keys-dir", dir); code != 0 ||
		len(asleep(a)) > 0 {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}

	a = world(t) // one entry is invalid, but the other machines are woken up
	if err := os.WriteFile(filepath.Join(dir, "bmc.pem"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := a.run(t, "wake", "--all", "--timeout=3s", "--config", filepath.Join(dir, "machines.yaml"), "--keys-dir", dir); code != 1 ||
		!slices.Equal(asleep(a), []string{"n0"}) || !strings.Contains(stderr, `kubenergy: machines[0] ("n0"): no PEM certificate in caFile `) {
		t.Errorf("exit code %d: %s%v", code, stderr, asleep(a))
	}
	a = world(t) // the Deployment is scaled up again if not all machines wake up
	a.add(t, "/apis/apps/v1/namespaces/kubenergy-system/deployments", &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "kubenergy-power"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
	})
	replicas := func() string {
		o := a.get(t, "/apis/apps/v1/namespaces/kubenergy-system/deployments/kubenergy-power")
		n, found, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "replicas")
		if !found {
			t.Fatal(err)
		}
		return fmt.Sprint(n)
	}
	if code, _, stderr := a.run(t, "wake", "--all", "--stop"); code != 0 || replicas() != "0" {
		t.Errorf("exit code %d, %s replicas: %s", code, replicas(), stderr)
	}
	a.add(t, nodes, sleeper("n2"))
	broken = "n2"
	if code, _, stderr := a.run(t, "wake", "--all", "--stop", "--timeout=7s"); code != 1 ||
		replicas() != strconv.Itoa(power.Replicas) {
		t.Errorf("exit code %d, %s replicas: %s", code, replicas(), stderr)
	}
	for _, args := range [][]string{{"wake"}, {"wake", "a", "--all"}, {"wake", "a", "b"}, {"wake", "a", "--timeout=0s"}} {
		if code, _, _ := a.run(t, args...); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
