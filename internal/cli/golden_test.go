package cli

import (
	"flag"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the golden files; review the diff before committing it")

// golden compares output with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	kit.Golden(t, filepath.Join("testdata", "golden", name), []byte(got), *rewrite)
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }
