// Package chart renders the Helm chart for tests, using the same helm commands as users.
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

// root is the root directory of the repository, relative to a package in test/.
const root = "../.."

// Folder is the directory of the chart, relative to a package in test/.
var Folder = filepath.Join(root, "charts", "kubenergy")

// Program returns the path of the helm version that go.tools.mod selects. The first build takes several minutes.
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

// Helm runs a helm command with isolated configuration directories and returns its standard output.
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

// Template renders the chart with additional arguments for helm template.
func Template(ctx context.Context, args ...string) ([]Document, error) {
	out, err := Helm(ctx, os.DevNull, append([]string{
		"template", "kubenergy", Folder, "--namespace", "kubenergy-system", "--kube-version", "1.36.0",
	}, args...)...)
	if err != nil {
		return nil, err
	}
	return Documents(out)
}

// Document is a rendered object, as text including comments and in decoded form.
type Document struct {
	Text   string
	Object *unstructured.Unstructured
}

// Documents splits a YAML stream into its documents and skips empty ones.
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

// HookOf returns the Helm hook events of an object, or "" if it is a regular part of the release.
func (d *Document) HookOf() string { return d.Object.GetAnnotations()["helm.sh/hook"] }

// Name returns the kind and name of the object.
func (d *Document) Name() string { return d.Object.GetKind() + "/" + d.Object.GetName() }
