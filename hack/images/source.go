package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

// source describes a module and the names and metadata of its images.
type source struct {
	dir           string // directory of the module; defaults to the working directory
	registry, tag string
	ldflags       string
	revision      string
	created       time.Time // timestamp of all files in the images
}

// architectures returns the default architectures of an image. The agent is also built for boards that cannot run
// the other components.
func architectures(name string) []string {
	if name == "kubenergy-agent" {
		return []string{"amd64", "arm64", "arm/v7"}
	}
	return []string{"amd64", "arm64"}
}

// beside returns the packages of additional binaries in an image. The agent starts kubenergy-gpu to read GPUs,
// which is only available on two architectures.
func beside(name, arch string) []string {
	if name == "kubenergy-agent" && arch != "arm/v7" {
		return []string{"./cmd/kubenergy-gpu"}
	}
	return nil
}

// run builds all images and writes them to the output directory.
func run(ctx context.Context, out string, names, arches []string, s source) error {
	if err := s.describe(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var digests, values strings.Builder
	for _, name := range names {
		contents, arches := blobs{}, arches
		if len(arches) == 0 {
			arches = architectures(name)
		}
		image, err := s.index(ctx, contents, name, "./cmd/"+name, arches)
		if err != nil {
			return fmt.Errorf("building the image %s: %w", name, err)
		}
		path := filepath.Join(out, name+".tar")
		if err := writeArchive(path, contents, image, s.reference(name), s.created); err != nil {
			return fmt.Errorf("writing %s: %w", path, err)
		}
		fmt.Fprintf(&digests, "%s %s\n", image.Digest, s.reference(name))
		// these images are not part of the chart
		if name != "kubenergy-karmada" && name != "kubenergy-gpu" {
			values.WriteString(pinned(name, image.Digest))
		}
		fmt.Printf("%s  %s  %s\n", path, s.reference(name), image.Digest)
	}
	return errors.Join(os.WriteFile(filepath.Join(out, "digests.txt"), []byte(digests.String()), 0o644),
		os.WriteFile(filepath.Join(out, "digests.yaml"), []byte(values.String()), 0o644))
}

// pinned returns the Helm value that refers to an image by digest instead of by tag. A registry cannot replace an
// image with a given digest.
func pinned(name string, digest v1.Hash) string {
	section := cmp.Or(strings.TrimPrefix(strings.TrimPrefix(name, "kubenergy"), "-"), "cli")
	return fmt.Sprintf("%s: {image: {digest: %q}}\n", section, digest)
}

// describe sets the tag, the revision and the timestamp from the repository. SOURCE_DATE_EPOCH overrides the
// timestamp.
func (s *source) describe(ctx context.Context) error {
	if s.tag == "" {
		text, err := os.ReadFile(filepath.Join(s.dir, "charts/kubenergy/Chart.yaml"))
		if err != nil {
			return fmt.Errorf("reading the version: %w", err)
		}
		var chart struct {
			AppVersion string `json:"appVersion"`
		}
		if err := yaml.Unmarshal(text, &chart); err != nil {
			return fmt.Errorf("reading the version: %w", err)
		}
		if chart.AppVersion == "" {
			return errors.New("reading the version: Chart.yaml contains no appVersion")
		}
		s.tag = chart.AppVersion
	}
	out, err := s.command(ctx, nil, "git", "log", "-1", "--format=%H %ct")
	revision, committed, _ := strings.Cut(strings.TrimSpace(out), " ")
	if err != nil { // source archives have no history
		revision, committed = "", "0"
	}
	seconds, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), committed), 10, 64)
	if err != nil {
		return fmt.Errorf("parsing SOURCE_DATE_EPOCH or the time of the commit: %w", err)
	}
	s.revision, s.created = revision, time.Unix(seconds, 0).UTC()
	return nil
}

// reference returns the name that is used to pull an image.
func (s *source) reference(name string) string {
	if s.registry != "" {
		name = strings.TrimSuffix(s.registry, "/") + "/" + name
	}
	return name + ":" + s.tag
}

// platform parses an architecture such as arm64 or arm/v7.
func platform(arch string) v1.Platform {
	architecture, variant, _ := strings.Cut(arch, "/")
	return v1.Platform{OS: "linux", Architecture: architecture, Variant: variant}
}

// compile builds a binary without cgo and with embedded time zone data, because images contain none. All binaries
// except for kubenergy-gpu are static.
func (s *source) compile(ctx context.Context, pkg, arch string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "binary")
	p := platform(arch)
	environment := []string{
		"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Architecture, "GOAMD64=v1", "GOARM64=v8.0",
		"GOARM=" + strings.TrimPrefix(p.Variant, "v"),
		"GOFLAGS=", "GOEXPERIMENT=",
	}
	_, err = s.command(ctx, environment, "go", "build", "-trimpath", "-buildvcs=auto", "-tags=timetzdata",
		"-ldflags="+strings.TrimSpace("-s -w -buildid= "+s.ldflags), "-o", binary, pkg)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

func (s *source) command(ctx context.Context, environment []string, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = s.dir, append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("running %s %s: %w\n%s", name, args[0], err, &stderr)
	}
	return stdout.String(), nil
}
