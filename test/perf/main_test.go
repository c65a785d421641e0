package perf

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	upstream "k8s.io/kubernetes/test/integration/scheduler_perf"
)

// TestMain runs etcd if the binary is executed under that name, because the upstream harness starts the etcd
// executable in PATH.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "etcd" {
		etcdmain.Main(append(os.Args, "--unsafe-no-fsync"))
		return
	}
	upstream.LoggingConfig.Verbosity = 0 // default of kube-scheduler; the upstream tests log every pod
	if err := upstream.InitTests(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	legacyregistry.DefaultGatherer = gathered
	os.Exit(m.Run())
}

// gathered stores the metrics as of the last time that the harness gathered them, because the harness resets them
// immediately afterwards.
var gathered = &gatherer{Gatherer: legacyregistry.DefaultGatherer}

type gatherer struct {
	metrics.Gatherer
	last families
}

func (g *gatherer) Gather() (families, error) {
	f, err := g.Gatherer.Gather()
	if err == nil {
		g.last = f
	}
	return f, err
}

// etcdInPath adds a link named etcd to this binary to PATH.
func etcdInPath(tb testing.TB) {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := os.Symlink(self, filepath.Join(dir, "etcd")); err != nil {
		tb.Fatal(err)
	}
	tb.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
}
