package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const kubernetes = "k8s.io/kubernetes"

// A graft replaces a function of Kubernetes by one that calls the renamed original and adds to its result.
type graft struct {
	file      string // file of Kubernetes
	function  string // name of the function
	signature string // expected signature
	renamed   string // new name of the original function
	ours      string // file with the replacement
}

var grafts = []graft{
	{
		file:     "pkg/scheduler/framework/plugins/registry.go",
		function: "NewInTreeRegistry", signature: "func() runtime.Registry", renamed: "stockRegistry",
		ours: "testdata/registry.go",
	},
	{
		file:      "pkg/scheduler/apis/config/v1/default_plugins.go",
		function:  "mergePlugins",
		signature: "func(logger klog.Logger, defaultPlugins, customPlugins *v1.Plugins) *v1.Plugins",
		renamed:   "stockMergePlugins",
		ours:      "testdata/defaults.go",
	},
}

// apply returns the source file with the function renamed. Any deviation is an error, because the unmodified
// Kubernetes would otherwise be compared with itself.
func (g *graft) apply(source []byte) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, g.file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var name *ast.Ident
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		switch f.Name.Name {
		case g.renamed:
			return nil, fmt.Errorf("%s already has a function %s", g.file, g.renamed)
		case g.function:
			var signature bytes.Buffer
			if err := format.Node(&signature, set, f.Type); err != nil {
				return nil, err
			}
			if signature.String() != g.signature {
				return nil, fmt.Errorf("%s in %s is a %s, want %s", g.function, g.file, &signature, g.signature)
			}
			name = f.Name
		}
	}
	if name == nil {
		return nil, fmt.Errorf("%s has no function %s, check how this version of Kubernetes registers its plugins",
			g.file,
			g.function)
	}
	at := set.Position(name.Pos()).Offset
	return append(append(append([]byte{}, source[:at]...), g.renamed...), source[at+len(g.function):]...), nil
}

// sources describes how test binaries are compiled, either from the published Kubernetes or with the KubEnergy
// plugins.
type sources struct {
	root       string // root of this repository
	kubernetes string // directory of the published sources
	version    string
	flags      []string // additional flags for go test
}

// published returns the Kubernetes sources of the version in go.mod.
func published(ctx context.Context) (*sources, error) {
	root, err := goOutput(ctx, "", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return nil, err
	}
	if _, err := goOutput(ctx, root, "mod", "download", kubernetes); err != nil {
		return nil, err
	}
	module, err := goOutput(ctx, root, "list", "-m", "-f", "{{.Version}} {{.Dir}}", kubernetes)
	if err != nil {
		return nil, err
	}
	version, dir, ok := strings.Cut(module, " ")
	if !ok {
		return nil, fmt.Errorf("sources of %s not found in the module cache", kubernetes)
	}
	return &sources{root: root, kubernetes: dir, version: version}, nil
}

// grafted returns the same sources with the KubEnergy plugins added. It writes the files for the go command to a
// hidden subdirectory of dir, which is not a package of this module. The go command does not allow overlays of
// files in the module cache, so it uses a link to the same directory and replaces files there.
func (s *sources) grafted(ctx context.Context, dir string) (*sources, error) {
	dir = filepath.Join(dir, ".sources")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	link := filepath.Join(dir, "kubernetes")
	if to, err := os.Readlink(link); err != nil || to != s.kubernetes {
		if err := errors.Join(os.RemoveAll(link), os.Symlink(s.kubernetes, link)); err != nil {
			return nil, err
		}
	}
	replace := map[string]string{}
	for _, g := range grafts {
		source, err := os.ReadFile(filepath.Join(s.kubernetes, g.file))
		if err != nil {
			return nil, err
		}
		changed, err := g.apply(source)
		if err != nil {
			return nil, fmt.Errorf("adding our plugins to %s %s: %w", kubernetes, s.version, err)
		}
		stock := filepath.Join(dir, "stock_"+filepath.Base(g.file))
		if err := os.WriteFile(stock, changed, 0o600); err != nil {
			return nil, err
		}
		file := filepath.Join(link, g.file)
		replace[file] = stock
		replace[filepath.Join(filepath.Dir(file), "kubenergy.go")] = filepath.Join(s.root, "test", "upstream", g.ours)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	overlayFile, modFile := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "go.mod")
	if err := os.WriteFile(overlayFile, overlay, 0o600); err != nil {
		return nil, err
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(s.root, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			return nil, err
		}
	}
	if _, err := goOutput(ctx, dir, "mod", "edit", "-replace", kubernetes+"="+link, modFile); err != nil {
		return nil, err
	}
	ours := *s
	ours.flags = []string{"-modfile", modFile, "-overlay", overlayFile}
	return &ours, nil
}

// compile builds the test binary of a Kubernetes package.
func (s *sources) compile(ctx context.Context, suite, binary string) error {
	args := append([]string{"test", "-c", "-o", binary}, s.flags...)
	_, err := goOutput(ctx, s.root, append(args, suitePackage(suite))...)
	return err
}

func goOutput(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running go %s: %w\n%s", strings.Join(args, " "), err, &complaints)
	}
	return strings.TrimSpace(string(out)), nil
}
