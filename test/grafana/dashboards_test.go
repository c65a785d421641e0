package grafana

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/reference"
)

var rewrite = flag.Bool("rewrite", false, "regenerate the dashboards of the chart and their documentation")

// TestDashboardsAreCurrent compares the dashboard files of the chart with the tables.
func TestDashboardsAreCurrent(t *testing.T) {
	folder := filepath.Join(chart.Folder, "files", "grafana")
	var names []string
	for i := range dashboards {
		d := &dashboards[i]
		now, err := d.json()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, d.name+".json")
		names = append(names, path)
		kit.Golden(t, path, now, *rewrite)
	}
	slices.Sort(names)
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	if diff := cmp.Diff(names, files); err != nil || diff != "" {
		t.Errorf("unexpected dashboard files (error %v, -want,+got):\n%s", err, diff)
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// imported is the part of a dashboard file that the tests read.
type imported struct {
	UID        string
	Tags       []string
	Refresh    string
	Time       struct{ From, To string }
	Templating struct {
		List []struct{ Name, Type string }
	}
	Links []struct {
		Type     string
		Tags     []string
		KeepTime bool
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ Type, UID string }
		FieldConfig              struct{ Defaults struct{ Unit string } }
		Targets                  []struct {
			Expr       string
			Datasource struct{ UID string }
		}
	}
}

func read(t *testing.T, d *dashboard) (b imported) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart.Folder, "files", "grafana", d.name+".json"))
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPanelsAreWhole checks each dashboard file. Every panel must have a description, a unit and a quality, query
// the selected data source and be placed on the grid without overlapping others.
func TestPanelsAreWhole(t *testing.T) {
	uids := map[string]bool{}
	for i := range dashboards {
		b := read(t, &dashboards[i])
		name := dashboards[i].name
		if uids[b.UID] || b.UID == "" || len(b.UID) > 40 {
			t.Errorf("dashboard %s has an invalid or duplicate UID %q", name, b.UID)
		}
		uids[b.UID] = true
		if len(b.Links) == 0 || !slices.Equal(b.Links[0].Tags, b.Tags) || !b.Links[0].KeepTime ||
			b.Refresh == "" || b.Time.From == "" {
			t.Errorf("dashboard %s lacks links, a refresh interval or a time range", name)
		}
		if len(b.Templating.List) == 0 || b.Templating.List[0].Name != "datasource" ||
			b.Templating.List[0].Type != "datasource" {
			t.Errorf("dashboard %s has no variable for the data source", name)
		}
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range b.Panels {
			what := fmt.Sprintf("%s, panel %d %q", name, p.ID, p.Title)
			if ids[p.ID] || p.Title == "" {
				t.Errorf("%s: the ID is a duplicate or the title is empty", what)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := taken[[2]int{x, y}]; other != "" || x >= columns {
						t.Fatalf("%s is outside of the grid or overlaps %q", what, other)
					}
					taken[[2]int{x, y}] = what
				}
			}
			if p.Type == "row" {
				continue
			}
			if len(p.Description) < 30 || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s lacks a description or a unit, or does not use the data source variable", what)
			}
			for _, q := range p.Targets {
				if q.Datasource.UID != "${datasource}" || chart.Balanced(q.Expr) != nil {
					t.Errorf("%s: %s", what, q.Expr)
				}
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s has no query", what)
			}
		}
	}
}

// foreign lists the metrics of other programs that panels read.
var foreign = []string{
	"up", "leader_election_master_status", "process_resident_memory_bytes", "process_cpu_seconds_total",
	"scheduler_cache_size", "scheduler_schedule_attempts_total", "scheduler_scheduling_attempt_duration_seconds",
}

// undocumented returns the metrics of an expression that are not listed in docs/reference/metrics.md.
func undocumented(t *testing.T, expr string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(kit.Root, "docs/reference/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile(`\bkubenergy_[a-z_]+`).FindAllString(string(text), -1)
	for _, name := range chart.Metrics(expr) {
		if !slices.Contains(documented, name) && !slices.Contains(foreign, name) {
			names = append(names, name)
		}
	}
	return names
}

func TestPanelsReadMetricsThatAreDocumented(t *testing.T) {
	read := map[string]bool{}
	for i := range dashboards {
		for _, r := range dashboards[i].rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					for _, name := range undocumented(t, q.expr) {
						t.Errorf("panel %s/%s reads %s, which is missing in docs/reference/metrics.md",
							dashboards[i].name,
							p.title, name)
					}
					for _, name := range chart.Metrics(q.expr) {
						read[name] = true
					}
				}
			}
		}
	}
	// Verify that the check detects unknown metrics.
	for name := range read {
		broken := "sum by (node) (rate(" + name + "s_broken{node=~\"a\"}[$__rate_interval])) / 2"
		if got := undocumented(t, broken); !slices.Equal(got, []string{name + "s_broken"}) {
			t.Errorf("undocumented() did not detect a metric like %s: %q", broken, got)
		}
	}
}

// TestQuietPanels generates the list of panels that may be empty on a healthy cluster.
func TestQuietPanels(t *testing.T) {
	var b strings.Builder
	for i := range dashboards {
		var panels []string
		for _, r := range dashboards[i].rows {
			for _, p := range r.panels {
				if p.quiet != "" {
					panels = append(panels, fmt.Sprintf("*%s* (%s)", p.title, p.quiet))
				}
			}
		}
		if len(panels) > 0 {
			fmt.Fprintf(&b, "* %s: %s\n", dashboards[i].title, strings.Join(panels, ", "))
		}
	}
	reference.Hold(t, "docs/how-to/grafana.md", "./test/grafana -run TestQuietPanels", b.String(), *rewrite)
}

// TestConfigMaps checks the ConfigMaps that the sidecar of Grafana imports.
func TestConfigMaps(t *testing.T) {
	fn := func(args ...string) map[string]chart.Document {
		documents, err := chart.Template(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]chart.Document{}
		for _, d := range documents {
			if strings.HasPrefix(d.Object.GetName(), "kubenergy-dashboard-") {
				found[d.Object.GetName()] = d
			}
		}
		return found
	}
	if found := fn(); len(found) > 0 {
		t.Errorf("got %d ConfigMaps without the value, want none", len(found))
	}
	found := fn("--set", "metrics.dashboards.enabled=true,metrics.dashboards.namespace=monitoring",
		"--set", "metrics.dashboards.annotations.grafana_folder=KubEnergy")
	for i := range dashboards {
		d := found["kubenergy-dashboard-"+dashboards[i].name]
		if d.Object == nil || d.Object.GetNamespace() != "monitoring" ||
			d.Object.GetLabels()["grafana_dashboard"] != "1" ||
			d.Object.GetAnnotations()["grafana_folder"] != "KubEnergy" {
			t.Fatalf("%s: %v", dashboards[i].name, d.Text)
		}
		want, err := dashboards[i].json()
		if err != nil {
			t.Fatal(err)
		}
		data, _ := d.Object.Object["data"].(map[string]any)
		if diff := cmp.Diff(map[string]any{"kubenergy-" + dashboards[i].name + ".json": string(want)}, data); diff != "" {
			t.Errorf("ConfigMap of %s differs from the dashboard file (-want,+got):\n%.2000s", dashboards[i].name, diff)
		}
	}
	if len(found) != len(dashboards) {
		t.Errorf("got %d ConfigMaps, want %d", len(found), len(dashboards))
	}
}
