package grafana

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
)

var long = os.Getenv("KUBENERGY_LONG") != ""

// TestGrafanasTypes type-checks every dashboard file with the TypeScript compiler and the types of Grafana, which
// it installs from the npm registry.
func TestGrafanasTypes(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil || !long {
		t.Skip("requires the types of Grafana from npm: run make grafana")
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), npm, "install", "--prefix", dir, "--ignore-scripts", "--no-audit",
		"--no-fund", "@grafana/schema@13.2.3", "typescript@7.0.2")
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("npm cannot access its registry: %v\n%s", err, out)
	}
	check := func(name, text string) (string, error) {
		// TypeScript does not accept string literals for enums, although the JSON contains strings.
		text = strings.ReplaceAll(text, `"mode": "absolute"`, `"mode": "absolute" as ThresholdsMode`)
		kit.Write(t, filepath.Join(dir, name+".ts"), fmt.Sprintf(
			"import type {Dashboard, ThresholdsMode} from '@grafana/schema';\nexport const d: Dashboard = %s;\n", text))
		tsc := exec.CommandContext(t.Context(), filepath.Join(dir, "node_modules", ".bin", "tsc"), "--noEmit", "--strict",
			"--skipLibCheck", "--module", "esnext", "--moduleResolution", "bundler", name+".ts")
		tsc.Dir = dir
		out, err := tsc.CombinedOutput()
		return string(out), err
	}
	for i := range dashboards {
		name := dashboards[i].name
		text, err := os.ReadFile(filepath.Join(chart.Folder, "files", "grafana", name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := check(name, string(text)); err != nil {
			t.Errorf("%s: %v\n%.3000s", name, err, out)
		}
		for previous, now := range map[string]string{
			`"gridPos"`: `"gridPosition"`, `"schemaVersion": 42`: `"schemaVersion": "42"`, `"h": 1,`: `"h": "1",`,
		} {
			if out, err := check("wrong", strings.Replace(string(text), previous, now, 1)); err == nil {
				t.Errorf("%s passes the type check with %s: %s", name, now, out)
			}
		}
	}
}
