package workload_test

import (
	"encoding/csv"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
)

var north, south = &sched.Site{Name: "north"}, &sched.Site{Name: "south"}

func TestNodesFromFile(t *testing.T) {
	path := write(t,
		"name,site,cpu,memory,gpu,speed,profile,idle_watts,max_watts,exponent,sleep_watts,wakeup_joules,gpu_idle_watts,gpu_max_watts,count\n"+
			"web,south,8,16Gi,,,sr655-2021,,,,,,,,12\n"+
			"gpu,,500m,1G,2,1.5,,100,300,1.4,10,5000,30,250,\n"+
			"cold,,4,1Gi,,,,40,80,,,,,,1\n")
	nodes, err := workload.Nodes(path, 0, north, south)
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 14 || nodes[0].Name != "web-00" || nodes[11].Name != "web-11" || nodes[12].Name != "gpu" ||
		nodes[13].Name != "cold" {
		t.Fatalf("got %d unexpected nodes: %v", len(nodes), names(nodes))
	}
	if nodes[0].Profile != nodes[11].Profile || nodes[0].Profile.Name != "sr655-2021" || nodes[0].Site != south ||
		nodes[0].Free != nodes[0].Capacity {
		t.Errorf("%+v and %+v: want empty nodes with a common profile at site south", nodes[0], nodes[11])
	}
	want := sched.Node{
		Name: "gpu", Site: north, Speed: 1.5,
		Capacity: sched.Resources{MilliCPU: 500, Memory: 1e9, GPU: 2},
		Free:     sched.Resources{MilliCPU: 500, Memory: 1e9, GPU: 2},
		Profile: &energy.Profile{
			Name: "gpu", Idle: 100, Max: 300, Exponent: 1.4, Sleep: 10, WakeUp: 5000, GPUIdle: 30, GPUMax: 250,
			Quality: energy.Estimated, Source: "node file",
		},
	}
	if diff := cmp.Diff(want, nodes[12]); diff != "" {
		t.Errorf("unexpected node (-want +got):\n%s", diff)
	}
	if p := nodes[13].Profile; p.Sleep != p.Idle {
		t.Errorf("sleep power of a row without sleep_watts = %v W, want its idle power", float64(p.Sleep))
	}
}

func names(nodes []sched.Node) []string {
	var all []string
	for i := range nodes {
		all = append(all, nodes[i].Name)
	}
	return all
}

func TestNodesRefuses(t *testing.T) {
	const header = "name,site,cpu,memory,profile,idle_watts,max_watts,sleep_watts,wakeup_joules,gpu,count,speed\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":          {"", "the file is empty"},
		"header only":    {header, "workload.csv: the file has no nodes"},
		"no cpu column":  {"name,profile\na,dl360-2018\n", `workload.csv:1: column "cpu" is missing`},
		"unknown column": {"name,cpu,cores\na,1,1\n", `workload.csv:1: unknown column "cores"`},
		"truncated":      {header + "a,,1\n", "workload.csv:2: the row has 3 fields"},
		"no name":        {header + ",,1,0,dl360-2018,,,,,,,\n", "workload.csv:2: name: is empty"},
		"same name": {
			header + "a,,1,0,dl360-2018,,,,,,,\na,,1,0,dl360-2018,,,,,,,\n",
			`workload.csv:3: name: "a" is used twice`,
		},
		"unknown site": {
			header + "a,west,1,0,dl360-2018,,,,,,,\n",
			`workload.csv:2: site: unknown site "west": have north, south`,
		},
		"no cpu": {header + "a,,0,0,dl360-2018,,,,,,,\n", `workload.csv:2: cpu: "0" must be more than 0`},
		"unknown profile": {
			header + "a,,1,0,cray,,,,,,,\n",
			`workload.csv:2: profile: unknown power profile "cray": have r610-2010`,
		},
		"no power": {
			header + "a,,1,0,,,,,,,,\n",
			"workload.csv:2: profile: is empty: want the name of a profile, or idle_watts and max_watts",
		},
		"both": {
			header + "a,,1,0,dl360-2018,5,,,,,,\n",
			`workload.csv:2: idle_watts: cannot be combined with the profile "dl360-2018"`,
		},
		"NaN watts":      {header + "a,,1,0,,NaN,5,,,,,\n", `workload.csv:2: idle_watts: "NaN" is not a finite number`},
		"negative watts": {header + "a,,1,0,,-1,5,,,,,\n", `workload.csv:2: idle_watts: "-1" is negative`},
		"max below idle": {
			header + "a,,1,0,,9,5,,,,,\n",
			"workload.csv:2: power profile \"a\": max 5 W is below idle 9 W",
		},
		"wakes unslept": {header + "a,,1,0,,5,9,,100,,,\n", "but the node never sleeps"},
		"unpriced GPUs": {
			header + "a,,1,0,dl360-2018,,,,,2,,\n",
			"workload.csv:2: gpu: the node has GPUs: want gpu_idle_watts",
		},
		"count zero":       {header + "a,,1,0,dl360-2018,,,,,,0,\n", `workload.csv:2: count: "0" must be more than 0`},
		"count of a crowd": {header + "a,,1,0,dl360-2018,,,,,,99999999,\n", "workload.csv:2: count: "},
		"speed zero":       {header + "a,,1,0,dl360-2018,,,,,,,0\n", `workload.csv:2: speed: "0" must be more than 0`},
	} {
		nodes, err := workload.Nodes(write(t, c.text), 0, north, south)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", name, err, c.want)
		}
		if nodes != nil {
			t.Errorf("%s: Nodes() returned both %d nodes and an error", name, len(nodes))
		}
	}
	_, err := workload.Nodes("ecshed50", 0, north)
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "the presets are demo24, ecsched40") {
		t.Errorf("unexpected error for an unknown preset: %v", err)
	}
	if _, err := workload.Nodes("ecsched50", 0); err == nil {
		t.Error("Nodes() without a site returned nil, want an error")
	}
}

func TestPresets(t *testing.T) {
	for _, c := range []struct {
		name         string
		nodes, cores int64
		kinds        int
	}{{"ecsched50", 50, 2500, 3}, {"ecsched40", 40, 2000, 3}, {"ecsched65", 65, 3250, 3}, {"demo24", 24, 600, 4}} {
		nodes, err := workload.Nodes(c.name, 0, north)
		if err != nil {
			t.Fatal(err)
		}
		var milli int64
		kinds := map[*energy.Profile]bool{}
		for i := range nodes {
			milli += nodes[i].Capacity.MilliCPU
			kinds[nodes[i].Profile] = true
		}
		if int64(len(nodes)) != c.nodes || milli != c.cores*1000 || len(kinds) != c.kinds {
			t.Errorf("%s: got %d nodes of %d kinds with %d millicores", c.name, len(nodes), len(kinds), milli)
		}
		if !slices.Contains(workload.Presets(), c.name) {
			t.Errorf("preset %s is not in %v", c.name, workload.Presets())
		}
	}
}

func TestProfilesAreUsable(t *testing.T) {
	all := workload.Profiles()
	if len(all) < 5 {
		t.Fatalf("got %d profiles, want at least 5", len(all))
	}
	for i := range all {
		p := &all[i]
		if err := p.Validate(); err != nil {
			t.Error(err)
		}
		if p.Sleep >= p.Power(0) || p.WakeUp <= 0 || !strings.Contains(p.Source, "SPECpower_ssj2008") {
			t.Errorf("unexpected profile %s: sleep %v W, idle %v W, wake-up %v, source %q", p.Name, float64(p.Sleep), float64(p.Power(0)),
				p.WakeUp, p.Source)
		}
	}
}

// Every profile matches a row of the published table exactly.
func TestProfilesAreThePublishedOnes(t *testing.T) {
	text, err := grid.ReadFile(shared(t, "power/ccf/SPECpower-2023-05-23.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	idle, full, published := column("avg. watts @ active idle"), column("avg. watts @ 100%"), column("Published")
	cores, threads := column("# Cores"), column("Total Threads")
	for _, p := range workload.Profiles() {
		found := slices.ContainsFunc(rows[1:], func(row []string) bool {
			i, errIdle := strconv.ParseFloat(row[idle], 64)
			f, errFull := strconv.ParseFloat(row[full], 64)
			date := strings.ReplaceAll(row[published], "-", " ")
			size := row[cores] + " cores, " + row[threads] + " threads"
			return errIdle == nil && errFull == nil && energy.Watts(i) == p.Idle && energy.Watts(f) == p.Max &&
				strings.Contains(p.Source, date) && strings.Contains(p.Source, size)
		})
		if !found {
			t.Errorf("profile %s: no published result has %v W idle and %v W at full load: %s", p.Name, float64(p.Idle),
				float64(p.Max), p.Source)
		}
	}
}

func TestDemo(t *testing.T) {
	jobs := workloadtest.Demo(7, t0)
	if diff := cmp.Diff(jobs, workloadtest.Demo(7, t0)); diff != "" {
		t.Errorf("Demo() returned different traces for the same seed:\n%s", diff)
	}
	if cmp.Equal(jobs, workloadtest.Demo(8, t0)) {
		t.Error("Demo() returned the same trace for another seed")
	}
	if len(jobs) > 300 {
		t.Errorf("got %d jobs, want at most 300", len(jobs))
	}
	patient := 0
	for i := range jobs {
		j := &jobs[i]
		if d := j.Submitted.Sub(t0); d < 0 || d > 12*time.Hour || j.Duration < 5*time.Minute ||
			j.Duration > 3*time.Hour {
			t.Errorf("job %s: unexpected arrival after %v or run time of %v", j.ID, d, j.Duration)
		}
		if c := j.Request.MilliCPU; c < 500 || c > 16000 || j.Request.Memory < c<<30/1000 {
			t.Errorf("job %s: unexpected request %+v", j.ID, j.Request)
		}
		if j.AllowedDelay > 0 {
			patient++
			if j.AllowedDelay < 2*time.Hour || j.AllowedDelay > 6*time.Hour {
				t.Errorf("job %s: unexpected allowed delay of %v", j.ID, j.AllowedDelay)
			}
		}
	}
	if impatient := len(jobs) - patient; impatient != (len(jobs)+2)/3 {
		t.Errorf("%d of %d jobs must start immediately, want a third", impatient, len(jobs))
	}
	// As promised in the documentation, every job fits several nodes of the preset.
	nodes, err := workload.Nodes("demo24", 0, north)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		fitting := 0
		for k := range nodes {
			if jobs[i].Fits(&nodes[k]) {
				fitting++
			}
		}
		if fitting < 5 {
			t.Errorf("job %s with request %+v fits on %d nodes of demo24, want at least 5", jobs[i].ID, jobs[i].Request, fitting)
		}
	}
}

func TestExampleNodesFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "nodes.csv")
	if err := os.WriteFile(path, []byte("name,cpu,memory,profile,count\nnode,16,64Gi,rx2540-2014,3\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	nodes, err := workload.Nodes(path, 0, north)
	if diff := cmp.Diff([]string{"node-0", "node-1", "node-2"}, names(nodes)); err != nil || diff != "" {
		t.Errorf("unexpected names, error %v (-want +got):\n%s", err, diff)
	}
}
