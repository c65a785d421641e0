package cmdutil

import (
	"cmp"
	"runtime/debug"
	"strings"

	"github.com/kubenergy/kubenergy/internal/report"
)

// Version returns the commit that the program was built from, with a + if the checkout had uncommitted changes, or the
// version of the module.
func Version() string {
	b := ReadBuilt()
	if b.Modified {
		b.Commit += "+"
	}
	return cmp.Or(b.Commit, b.Version)
}

// Build contains build information of the program.
type Build struct {
	Version    string `json:"version"`            // version of the module, a tag or a pseudo-version
	Commit     string `json:"commit,omitempty"`   // empty if not built from a checkout
	Time       string `json:"time,omitempty"`     // time of the commit
	Modified   bool   `json:"modified,omitempty"` // the checkout had uncommitted changes
	Go         string `json:"go"`
	Kubernetes string `json:"kubernetes,omitempty"` // version of the client libraries
}

// ReadBuilt returns the build information embedded by the Go toolchain. Without it, the version is "unknown" and
// all other fields are empty.
func ReadBuilt() *Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return &Build{Version: "unknown"}
	}
	b := &Build{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	for _, d := range info.Deps {
		if minor, ok := strings.CutPrefix(d.Version, "v0."); ok && d.Path == "k8s.io/client-go" {
			b.Kubernetes = "1." + minor
		}
	}
	return b
}

// Text returns the information as a table without a header.
func (b *Build) Text(_, _ bool) string {
	t := report.Heads(2, "kubenergy", b.Version)
	commit := b.Commit
	switch {
	case commit == "":
		commit = "unknown: not built from a checkout"
	case b.Modified:
		commit += " (modified)"
	}
	t.Add("commit", commit)
	if b.Time != "" {
		t.Add("committed", b.Time)
	}
	t.Add("Go", b.Go)
	t.Add("Kubernetes", b.Kubernetes)
	return t.Plain()
}
