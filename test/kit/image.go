package kit

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type object = map[string]any

// layout maps the paths of the files of an OCI image layout to their content.
type layout map[string][]byte

func (l layout) add(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	l["blobs/sha256/"+digest] = content
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
}

func (l layout) addJSON(t testing.TB, mediaType string, value any) descriptor {
	t.Helper()
	return l.add(mediaType, encode(t, value))
}

// WriteImage archives an image that contains one static binary. The archive is an OCI layout that `ctr images
// import` can read.
func WriteImage(t testing.TB, image, binary, path string) {
	t.Helper()
	program, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(binary)
	files := layout{}
	layer := archive(t, layout{name: program}, 0o755)
	config := files.addJSON(t, "application/vnd.oci.image.config.v1+json", object{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": object{"Entrypoint": []string{"/" + name}, "WorkingDir": "/"},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	manifest := files.addJSON(t, "application/vnd.oci.image.manifest.v1+json", object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config,
		"layers": []descriptor{files.add("application/vnd.oci.image.layer.v1.tar", layer)},
	})
	manifest.Annotations = map[string]string{
		"io.containerd.image.name": image, "org.opencontainers.image.ref.name": image,
	}
	files["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)
	files["index.json"] = encode(t, object{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err := os.WriteFile(path, archive(t, files, 0o644), 0o600); err != nil {
		t.Fatal(err)
	}
}

func encode(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func archive(t testing.TB, files layout, mode int64) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, content := range files {
		err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content))})
		if err == nil {
			_, err = w.Write(content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
