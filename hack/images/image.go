package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the unprivileged user and group of all images.
const user = "65532:65532"

const passwd = "nobody:x:65532:65532:nobody:/nonexistent:/sbin/nologin\n"

// index builds an image for each architecture and returns the descriptor of the image index.
func (s *source) index(ctx context.Context, into blobs, name, pkg string, arches []string) (v1.Descriptor, error) {
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, arch := range arches {
		var binaries []file
		for i, of := range append([]string{pkg}, beside(name, arch)...) {
			binary, err := s.compile(ctx, of, arch)
			if err != nil {
				return v1.Descriptor{}, fmt.Errorf("for %s: %w", arch, err)
			}
			called := name
			if i > 0 {
				called = path.Base(of)
			}
			binaries = append(binaries, file{called, 0o755, binary})
		}
		image, err := s.image(into, name, arch, binaries)
		if err != nil {
			return v1.Descriptor{}, fmt.Errorf("for %s: %w", arch, err)
		}
		index.Manifests = append(index.Manifests, image)
	}
	return into.addJSON(index.MediaType, index)
}

// image builds an image that contains only the binaries, /etc/passwd and /etc/group, without a shell or libraries.
// The first binary is the entry point.
func (s *source) image(into blobs, name, arch string, binaries []file) (v1.Descriptor, error) {
	files, err := archive(s.created, append([]file{
		{"etc/passwd", 0o644, []byte(passwd)},
		{"etc/group", 0o644, []byte("nobody:x:65532:\n")},
	}, binaries...))
	if err != nil {
		return v1.Descriptor{}, err
	}
	compressed, err := compress(files)
	if err != nil {
		return v1.Descriptor{}, err
	}
	created, runsOn := v1.Time{Time: s.created}, platform(arch)
	config, err := into.addJSON(types.OCIConfigJSON, v1.ConfigFile{
		OS: runsOn.OS, Architecture: runsOn.Architecture, Variant: runsOn.Variant, Created: created,
		RootFS:  v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{digestOf(files)}},
		History: []v1.History{{Created: created, CreatedBy: "hack/images", Comment: name}},
		Config: v1.Config{
			User: user, Entrypoint: []string{"/" + name}, WorkingDir: "/",
			Labels: map[string]string{
				"org.opencontainers.image.title":    name,
				"org.opencontainers.image.version":  s.tag,
				"org.opencontainers.image.revision": s.revision,
				"org.opencontainers.image.source":   "https://github.com/kubenergy/kubenergy",
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := into.addJSON(types.OCIManifestSchema1, v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: config,
		Layers: []v1.Descriptor{into.add(types.OCILayer, compressed)},
	})
	manifest.Platform = &runsOn
	return manifest, err
}

// A file is an entry of a tar archive. Its name has no leading slash.
type file struct {
	name string
	mode int64
	text []byte
}

// archive returns a tar archive that depends only on the files and the modification time.
func archive(when time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: when,
			Format: tar.FormatPAX,
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func compress(text []byte) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out) // no modification time in the header
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
