package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// blobs contains the blobs of an OCI layout by digest.
type blobs map[v1.Hash][]byte

func digestOf(text []byte) v1.Hash {
	sum := sha256.Sum256(text)
	return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
}

func (b blobs) add(kind types.MediaType, text []byte) v1.Descriptor {
	digest := digestOf(text)
	b[digest] = text
	return v1.Descriptor{MediaType: kind, Size: int64(len(text)), Digest: digest}
}

func (b blobs) addJSON(kind types.MediaType, value any) (v1.Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return v1.Descriptor{}, fmt.Errorf("writing %s: %w", kind, err)
	}
	return b.add(kind, text), nil
}

// writeArchive writes an image as an OCI layout to a tar archive. The annotations contain the name of the image for
// the tools that load it.
func writeArchive(path string, b blobs, image v1.Descriptor, reference string, when time.Time) error {
	image.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": reference,
		"io.containerd.image.name":          reference,
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{image},
	})
	if err != nil {
		return err
	}
	files := []file{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, index}}
	digests := slices.SortedFunc(maps.Keys(b), func(x, y v1.Hash) int {
		return slices.Compare([]byte(x.Hex), []byte(y.Hex))
	})
	for _, digest := range digests {
		files = append(files, file{"blobs/" + digest.Algorithm + "/" + digest.Hex, 0o644, b[digest]})
	}
	text, err := archive(when, files)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
