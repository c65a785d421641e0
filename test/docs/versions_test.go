package docs

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var (
	// image matches a KubEnergy image with a version as its tag.
	image = regexp.MustCompile(`([\w./$-]*kubenergy[\w./$-]*):(v?\d+\.[\w.]+)`)
	// built matches the names of images built by make images, without a registry or with the registry of the
	// examples.
	built = regexp.MustCompile(
		`^(.*registry\.example\.(org|com)/kubenergy/)?(kubenergy(-scheduler|-controller|-karmada|-agent|-gpu)?|\$name)$`)
)

// TestImagesAreThoseBuilt compares the images in documents, examples and manifests with the images that make images
// builds and with the version of the chart. It also compares the version in CITATION.cff with that of the chart.
func TestImagesAreThoseBuilt(t *testing.T) {
	chart := reference.ReadObject(t, filepath.Join(kit.Root, "charts/kubenergy/Chart.yaml"))
	version := reference.Text(chart["appVersion"])
	found := 0
	look := func(name, text string) {
		for _, m := range image.FindAllStringSubmatch(text, -1) {
			found++
			if m[2] != version {
				t.Errorf("%s: image %s has the tag %s, want the chart's appVersion %s", name, m[0], m[2], version)
			}
			if !built.MatchString(m[1]) {
				t.Errorf("%s: image %s is not built by make images", name, m[0])
			}
		}
	}
	files(t, ".md", look)
	files(t, ".yaml", look)
	if found < 6 {
		t.Errorf("found only %d images", found)
	}
	cited := reference.Text(reference.ReadObject(t, filepath.Join(kit.Root, "CITATION.cff"))["version"])
	if cited != version {
		t.Errorf("version in CITATION.cff = %s, want the chart's appVersion %s", cited, version)
	}
}
