package chart

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/kubenergy/kubenergy/internal/controller"
	"github.com/kubenergy/kubenergy/internal/karmada"
)

// TestKarmada checks the installation described in docs/how-to/karmada.md. The chart must not create pods in the
// API server of Karmada, because nothing would run them there, and the programs in host.yaml must accept their
// flags, including the commented ones for a common ledger.
func TestKarmada(t *testing.T) {
	repository := filepath.Join("..", "..")
	page, errPage := os.ReadFile(filepath.Join(repository, "docs", "how-to", "karmada.md"))
	host, errHost := os.ReadFile(filepath.Join(repository, "deploy", "karmada", "host.yaml"))
	hosted, err := Documents(strings.ReplaceAll(string(host), "# - --", "- --"))
	_, install, found := strings.Cut(string(page), "helm install kubenergy charts/kubenergy -n kubenergy-system \\\n")
	options, _, _ := strings.Cut(install, "\n")
	if err := errors.Join(errPage, errHost, err); err != nil || !found {
		t.Fatal(err, found)
	}
	installed := template(t, strings.Fields(options)...)
	for i := range installed {
		d := appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: new(int32)}}
		kind := installed[i].Object.GetKind()
		if kind == "Deployment" && !rendered(t, installed, kind, installed[i].Object.GetName(), &d) ||
			*d.Spec.Replicas != 0 ||
			slices.Contains([]string{"DaemonSet", "MutatingAdmissionPolicy", "PersistentVolumeClaim"}, kind) {
			t.Errorf("%s must not be installed or have replicas in Karmada", installed[i].Name())
		}
	}
	for _, name := range []string{"kubenergy-karmada", "kubenergy-controller"} {
		var d appsv1.Deployment
		if !rendered(t, hosted, "Deployment", name, &d) {
			t.Fatalf("host.yaml contains no Deployment %s", name)
		}
		set := flag.NewFlagSet(name, flag.ContinueOnError)
		set.SetOutput(io.Discard)
		kubeconfig := set.String("kubeconfig", "", "")
		if name == "kubenergy-karmada" {
			new(karmada.Flags).Add(set)
		} else {
			controller.NewOptions(set)
		}
		if err := set.Parse(d.Spec.Template.Spec.Containers[0].Args); err != nil || *kubeconfig == "" || set.NArg() > 0 {
			t.Errorf("unexpected arguments of %s: error %v, remaining arguments %q", name, err, set.Args())
		}
	}
}
