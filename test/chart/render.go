// Package chart renders the Helm chart for tests, as helm does for users.
package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// root is the repository, as seen from a package of test/.
const root = "../.."

// Folder is that of the chart, as seen from a package of test/.
var Folder = filepath.Join(root, "charts", "kubenergy")

// Program returns the path of the helm that go.tools.mod pins; the first build takes minutes.
var Program = sync.OnceValues(func() (string, error) {
	var stderr bytes.Buffer
	tool := exec.Command("go", "tool", "-modfile=go.tools.mod", "-n", "helm")
	tool.Dir, tool.Stderr = root, &stderr
	out, err := tool.Output()
	if err != nil {
		return "", fmt.Errorf("building helm: %w\n%s", err, &stderr)
	}
	return strings.TrimSpace(string(out)), nil
})

// Helm runs one helm command with an environment of its own, and returns what it writes.
func Helm(ctx context.Context, kubeconfig string, args ...string) (string, error) {
	path, err := Program()
	if err != nil {
		return "", err
	}
	home, err := os.MkdirTemp("", "helm")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(home)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home, "XDG_DATA_HOME="+home,
		"KUBECONFIG="+kubeconfig)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// Template renders the chart with further arguments of helm template.
func Template(ctx context.Context, args ...string) ([]Document, error) {
	out, err := Helm(ctx, os.DevNull, append([]string{
		"template", "kubenergy", Folder, "--namespace", "kubenergy-system", "--kube-version", "1.36.0",
	}, args...)...)
	if err != nil {
		return nil, err
	}
	return Documents(out)
}

// Document is one object, as text with its comments, and as it reads.
type Document struct {
	Text   string
	Object *unstructured.Unstructured
}

// Documents splits a stream of YAML; empty documents are left out.
func Documents(text string) ([]Document, error) {
	var documents []Document
	for part := range strings.SplitSeq("\n"+text, "\n---") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(part), &object.Object); err != nil {
			return nil, fmt.Errorf("reading rendered YAML: %w\n%s", err, part)
		}
		if len(object.Object) > 0 {
			documents = append(documents, Document{strings.TrimSpace(part) + "\n", object})
		}
	}
	return documents, nil
}

// HookOf returns the events of Helm at which an object is created; "" for one that is part of the release.
func (d *Document) HookOf() string { return d.Object.GetAnnotations()["helm.sh/hook"] }

// Name returns kind and name.
func (d *Document) Name() string { return d.Object.GetKind() + "/" + d.Object.GetName() }
