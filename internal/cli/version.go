package cli

import (
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/report"
)

// built is what a program knows of how it was made.
type built struct {
	Version    string `json:"version"`            // of the module: a tag, or the time and commit
	Commit     string `json:"commit,omitempty"`   // "": not built from a checkout
	Time       string `json:"time,omitempty"`     // of the commit
	Modified   bool   `json:"modified,omitempty"` // files differed from the commit
	Go         string `json:"go"`
	Kubernetes string `json:"kubernetes,omitempty"` // of the client libraries
}

func newVersion(t terminal) *cobra.Command {
	var format *choice
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which commit this program is of, and which Kubernetes it was built for",
		Long: "Say which commit this program is of, and which Kubernetes it was built for. " +
			"kubenergy doctor looks at the cluster's.",
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error { return t.print(readBuilt(), format.value) },
	}
	format = output(cmd.Flags(), "table", "json", "yaml")
	return cmd
}

func readBuilt() *built {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return &built{Version: "unknown"}
	}
	b := &built{Version: info.Main.Version, Go: info.GoVersion}
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

// Text shows it as a table without a head.
func (b *built) Text(_, _ bool) string {
	t := report.Heads(2, "kubenergy", b.Version)
	commit := b.Commit
	switch {
	case commit == "":
		commit = "unknown: not built from a checkout"
	case b.Modified:
		commit += ", with changes"
	}
	t.Add("commit", commit)
	if b.Time != "" {
		t.Add("committed", b.Time)
	}
	t.Add("Go", b.Go)
	t.Add("Kubernetes", b.Kubernetes)
	return t.Plain()
}
