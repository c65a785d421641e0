package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"sigs.k8s.io/yaml"
)

var commit = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// tiny returns a module with a main package in a temporary directory.
func tiny(t *testing.T) source {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module tiny\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { println(\"tiny\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return source{dir: dir, registry: "registry.example.com/kubenergy/", tag: "1.2.3", revision: "abc", created: commit}
}

func build(t *testing.T, arches ...string) (digest v1.Hash, archived []byte) {
	t.Helper()
	s, contents := tiny(t), blobs{}
	image, err := s.index(t.Context(), contents, "tiny", ".", arches)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "tiny.tar")
	if err := writeArchive(path, contents, image, s.reference("tiny"), s.created); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return image.Digest, text
}

// TestSameSourceSameBytes builds the same source in two directories. The result must not depend on the directory or
// the time of the build.
func TestSameSourceSameBytes(t *testing.T) {
	digest, first := build(t, "amd64", "arm64")
	again, second := build(t, "amd64", "arm64")
	if digest != again || !bytes.Equal(first, second) {
		t.Errorf("two builds of the same source differ: %s and %s", digest, again)
	}
}

// TestPinned checks that digests are written to the correct keys of the chart values.
func TestPinned(t *testing.T) {
	var chart map[string]any
	text, err := os.ReadFile("../../charts/kubenergy/values.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &chart)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubenergy", "kubenergy-scheduler", "kubenergy-controller", "kubenergy-power", "kubenergy-agent"} {
		var values map[string]struct{ Image struct{ Digest string } }
		if err := yaml.UnmarshalStrict([]byte(pinned(name, digestOf([]byte(name)))), &values); err != nil {
			t.Fatal(err)
		}
		for section, v := range values {
			part, _ := chart[section].(map[string]any)
			image, _ := part["image"].(map[string]any)
			if image["repository"] != name || v.Image.Digest != digestOf([]byte(name)).String() {
				t.Errorf("%s: the values of %s contain the image %v", name, section, image)
			}
		}
	}
}

// TestImage reads an image archive like a container runtime does.
func TestImage(t *testing.T) {
	digest, archived := build(t, "amd64", "arm64", "arm/v7")
	l := loaded{}
	for _, f := range read(t, bytes.NewReader(archived)) {
		l[f.name] = f.text
		if want, ok := strings.CutPrefix(f.name, "blobs/sha256/"); ok && digestOf(f.text).Hex != want {
			t.Errorf("%s has the digest %s, want the digest in its name", f.name, digestOf(f.text))
		}
	}
	if string(l["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout contains %s", l["oci-layout"])
	}
	var top, index v1.IndexManifest
	l.json(t, l["index.json"], &top)
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest {
		t.Fatalf("manifests in the archive = %v, want only %s", top.Manifests, digest)
	}
	if name := top.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "registry.example.com/kubenergy/tiny:1.2.3" {
		t.Errorf("unexpected image name %q", name)
	}
	l.json(t, l.blob(t, top.Manifests[0]), &index)
	var platforms []string
	for _, m := range index.Manifests {
		platforms = append(platforms, m.Platform.String())
		l.checkImage(t, m)
	}
	if !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64", "linux/arm/v7"}) {
		t.Errorf("unexpected platforms %v", platforms)
	}
}

// loaded contains the files of an archive by name.
type loaded map[string][]byte

func (l loaded) blob(t *testing.T, d v1.Descriptor) []byte {
	t.Helper()
	text := l["blobs/"+d.Digest.Algorithm+"/"+d.Digest.Hex]
	if int64(len(text)) != d.Size || d.Size == 0 {
		t.Fatalf("%s has %d bytes, want %d", d.Digest, len(text), d.Size)
	}
	return text
}

func (loaded) json(t *testing.T, text []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

func (l loaded) checkImage(t *testing.T, d v1.Descriptor) {
	t.Helper()
	var manifest v1.Manifest
	var config v1.ConfigFile
	l.json(t, l.blob(t, d), &manifest)
	l.json(t, l.blob(t, manifest.Config), &config)
	c := config.Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/tiny"}) ||
		config.Platform().String() != d.Platform.String() {
		t.Errorf("unexpected config %+v for %s", c, config.Platform())
	}
	if !config.Created.Equal(commit) || c.Labels["org.opencontainers.image.version"] != "1.2.3" {
		t.Errorf("unexpected creation time %v or labels %v", config.Created, c.Labels)
	}
	if len(manifest.Layers) != 1 {
		t.Fatalf("got %d layers, want 1", len(manifest.Layers))
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(l.blob(t, manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	if got := digestOf(layer); !slices.Equal(config.RootFS.DiffIDs, []v1.Hash{got}) {
		t.Errorf("the digest of the layer is %s, want %v as in the config", got, config.RootFS.DiffIDs)
	}
	names := map[string]int64{}
	for _, f := range read(t, bytes.NewReader(layer)) {
		names[f.name] = f.mode
		if f.name == "tiny" {
			checkBinary(t, f.text, d.Platform.Architecture)
		}
	}
	if diff := cmp.Diff(map[string]int64{"etc/passwd": 0o644, "etc/group": 0o644, "tiny": 0o755}, names); diff != "" {
		t.Error(diff)
	}
}

// checkBinary checks that a binary is built for the architecture of its image.
func checkBinary(t *testing.T, text []byte, arch string) {
	t.Helper()
	binary, err := elf.NewFile(bytes.NewReader(text))
	if err != nil {
		t.Fatalf("tiny is not an ELF file: %v", err)
	}
	if want := map[string]elf.Machine{
		"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM,
	}[arch]; binary.Machine != want {
		t.Errorf("the image for %s contains a binary for %s", arch, binary.Machine)
	}
}

// TestArchitectures checks that the agent is also built for 32-bit ARM boards.
func TestArchitectures(t *testing.T) {
	for name, want := range map[string][]string{
		"kubenergy": {"amd64", "arm64"}, "kubenergy-scheduler": {"amd64", "arm64"},
		"kubenergy-agent": {"amd64", "arm64", "arm/v7"},
	} {
		if got := architectures(name); !slices.Equal(got, want) {
			t.Errorf("architectures(%q) = %v", name, got)
		}
	}
}

// TestBeside checks that the agent image includes kubenergy-gpu on all architectures with NVIDIA drivers.
func TestBeside(t *testing.T) {
	for arch, want := range map[string]int{"amd64": 1, "arm64": 1, "arm/v7": 0} {
		if got := beside("kubenergy-agent", arch); len(got) != want {
			t.Errorf("%s: unexpected additional binaries %v", arch, got)
		}
	}
	s, contents := source{dir: "../..", created: commit}, blobs{}
	if testing.Short() {
		t.Skip("builds the agent")
	}
	image, err := s.index(t.Context(), contents, "kubenergy-agent", "./cmd/kubenergy-agent", []string{"amd64"})
	if err != nil {
		t.Fatal(err)
	}
	var index v1.IndexManifest
	var manifest v1.Manifest
	loaded{}.json(t, contents[image.Digest], &index)
	loaded{}.json(t, contents[index.Manifests[0].Digest], &manifest)
	layer, err := gzip.NewReader(bytes.NewReader(contents[manifest.Layers[0].Digest]))
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{} // dynamically linked
	for _, f := range read(t, layer) {
		if binary, err := elf.NewFile(bytes.NewReader(f.text)); err == nil {
			libraries, _ := binary.ImportedLibraries()
			linked[f.name] = len(libraries) > 0
		}
	}
	if diff := cmp.Diff(map[string]bool{"kubenergy-agent": false, "kubenergy-gpu": true}, linked); diff != "" {
		t.Error(diff)
	}
}

func read(t *testing.T, r io.Reader) []file {
	t.Helper()
	var files []file
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if !h.ModTime.Equal(commit) {
			t.Errorf("unexpected modification time of %s: %v", h.Name, h.ModTime)
		}
		files = append(files, file{h.Name, h.Mode, text})
	}
}

// TestDescribe checks that the tag defaults to the chart version and the time to SOURCE_DATE_EPOCH.
func TestDescribe(t *testing.T) {
	s := source{dir: "../.."}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if err := s.describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.tag == "" || s.created.Unix() != 1700000000 || s.reference("kubenergy") != "kubenergy:"+s.tag {
		t.Errorf("unexpected description %+v", s)
	}
}
