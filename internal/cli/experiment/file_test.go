package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const small = `apiVersion: kubenergy.io/v1alpha1
kind: Experiment
name: small
contestants: [{name: stock}, {name: ours, strategy: energy}, {name: third, strategy: exec}]
load: [{name: load, cpu: 100m, utilisation: 1}]
duration: 10m
seed: 7
`

func read(t *testing.T, text string) (*File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "experiment.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Read(path, "", 1)
}

func TestShippedFilesAreRead(t *testing.T) {
	files, err := filepath.Glob("../../../scenarios/experiments/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		if filepath.Base(name) == "machines.yaml" {
			continue
		}
		f, err := Read(name, TargetLab, 20)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Load {
			l := &f.Load[i]
			if jobs := l.jobs; l.Trace != "" && (len(jobs) < 50 || jobs[0].Submitted.UnixNano() != 0 ||
				jobs[len(jobs)-1].Submitted.Sub(jobs[0].Submitted) > f.Duration.Duration) {
				t.Errorf("%s: got %d jobs of the trace, starting at %v", name, len(jobs), jobs[0].Submitted)
			}
		}
	}
}

// The examples in the documentation are valid, one for each target.
func TestSamplesOfThePageAreRead(t *testing.T) {
	top, errTop := filepath.Abs("../../..")
	page, err := os.ReadFile("../../../docs/how-to/experiments.md")
	if err = errors.Join(err, errTop); err != nil {
		t.Fatal(err)
	}
	samples := strings.Split(string(page), "```yaml\n")[1:]
	if len(samples) != 2 {
		t.Fatalf("got %d samples", len(samples))
	}
	for i, target := range []string{TargetLab, TargetCluster} {
		text, _, _ := strings.Cut(samples[i], "```")
		text = strings.Replace(text, "objects: ", "objects: "+top+"/", 1)
		path := filepath.Join(t.TempDir(), "experiment.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, target, 1); err != nil {
			t.Error(err)
		}
	}
}

func TestWrongFiles(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"name: ours, strategy: energy", "name: ours, strategy: enrgy", "energy"},
		{"name: third", "name: ours", "or duplicate"},
		{"load: [", "load: [{name: probe, cpu: 1, run: 1m}, ", "probe is reserved"},
		{"name: third", "name: " + strings.Repeat("a", 31), "want at most 30 lower-case letters, digits and -"},
		{"strategy: exec", "strategy: exec+window", `want strategy "exec" without +`},
		{"strategy: exec", "strategy: exec, binary: ./s", "a binary excludes a strategy or image"},
		{"strategy: exec", "binary: ./s", "third: schedulerName is missing: want the schedulerName of its pods; contestants: third: binary: exec: \"/"},
		{"strategy: exec", "strategy: exec, schedulerName: x", "a strategy excludes schedulerName"},
		{"strategy: exec", "strategy: exec, args: [-v=2]", "args require a binary"},
		{"strategy: exec", "image: theirs:1", "schedulerName is missing"},
		{"strategy: exec", "image: theirs:1, binary: ./s, schedulerName: x", "a binary excludes a strategy or image"},
		{"seed: 7", "objects: nowhere.yaml", "nowhere.yaml: no such file"},
		{"seed: 7", "rounds: 0", "want rounds of 1 or more"},
		{"duration: 10m", "duration: 30", "duration is a number: want a string, e.g. a duration such as 30s"},
		{"utilisation: 1", "utilisation: 1, class: training", "only apply to Jobs, which require run"},
		{"utilisation: 1", "run: 1m, args: [x]", "args require an image"},
		{"utilisation: 1", "utilisation: 1.5", "a utilisation of at most 1"},
		{"utilisation: 1", "utilisation: 1, requestsPerSecond: 1", "requestsPerSecond (of services)"},
		{"seed: 7", "nodes: [{name: vm, cpu: 1}]", "nodes: vm: want cpu and memory"},
		{"cpu: 100m", "cpu: 0", "want cpu"},
		{"duration: 10m", "duration: 0s", "duration"},
		{"seed: 7", "kill: {pods: 3}", "kill: want"},
		{"seed: 7", "scale: {every: 1m}", "scale: want"},
		{"utilisation: 1", "utilisation: 1, run: 1m", "want one of"},
		{"load: [", "load: [{name: b, cpu: 1, run: 1m, after: a}, ", `at least as many Jobs in the preceding entry "a"`},
		{"load: [", "load: [{name: a, cpu: 1, run: 1m}, {name: b, cpu: 1, run: 1m, count: 2, after: a}, ", `at least as many Jobs in the preceding entry "a"`},
	} {
		if _, err := read(t, strings.Replace(small, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

// Fields that a target would ignore are rejected, because the experiment would be a different one.
func TestTargets(t *testing.T) {
	for _, c := range []struct{ target, old, new, want string }{
		{
			TargetLab, "strategy: exec", "image: theirs:1", "third: image: the lab does not run images: set binary, or --target " +
				"cluster; contestants: third: schedulerName is missing",
		},
		{TargetLab, "strategy: exec", "schedulerName: x", "third: a schedulerName without binary or image requires --target cluster"},
		{TargetLab, "utilisation: 1", "run: 1m, image: i", "load: load: image: the lab does not run images"},
		{TargetLab, "seed: 7", "image: i", "image: the lab does not run images"},
		{TargetCluster, "seed: 7", "monitor: true", "monitor only apply to the lab"},
		{TargetCluster, "seed: 7", "nodes: [{name: vm, cpu: 1, memory: 1Gi}]", "nodes, objects and monitor only apply to the lab"},
	} {
		path := filepath.Join(t.TempDir(), "experiment.yaml")
		if err := os.WriteFile(path, []byte(strings.Replace(small, c.old, c.new, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, c.target, 1); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: %v", c.target, c.new, err)
		}
	}
}

// A binary is resolved relative to the file, and not to the working directory.
func TestBinaryBesideTheFile(t *testing.T) {
	t.Chdir(t.TempDir())
	text := strings.Replace(small, "strategy: exec", "binary: ./s, schedulerName: x", 1)
	if os.WriteFile("s", nil, 0o700) != nil || os.WriteFile("e.yaml", []byte(text), 0o600) != nil {
		t.Fatal("the directory contains no files")
	}
	f, err := Read("e.yaml", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if binary := f.beside(f.Contestants[2].Binary); !filepath.IsAbs(binary) {
		t.Errorf("unexpected binary %s", binary)
	}
}

// TestAllow checks that programs only run if the user has allowed them by name.
func TestAllow(t *testing.T) {
	f := &File{Contestants: []Contestant{
		{Name: "stock"},
		{Name: "ours", Strategy: "energy"},
		{Name: "theirs", Binary: "./s"},
		{Name: "image", Image: "registry.example/theirs:1"},
		{Name: "there", SchedulerName: "other"},
	}}
	for want, allowed := range map[string][]string{
		`theirs: it would run "./s"`:                       nil,
		`theirs: it would run "./s" `:                      {"s", "./s ", "registry.example/theirs:1"},
		`image: it would run "registry.example/theirs:1" `: {"./s", "registry.example/theirs"},
		"": {"registry.example/theirs:1", "./s"},
	} {
		if err := f.Allow(allowed); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Allow(%q) = %v, want %q", allowed, err, want)
		}
	}
}

// Each round contains every contestant once. The order differs between rounds and only depends on the seed.
func TestOrder(t *testing.T) {
	f, err := read(t, small)
	if err != nil {
		t.Fatal(err)
	}
	f.Rounds = 20
	order := f.order()
	if again := f.order(); !slices.Equal(order, again) {
		t.Error("the order differs with the same seed")
	}
	firsts := map[*Contestant]int{}
	for i := 0; i < len(order); i += 3 {
		if a, b, c := order[i], order[i+1], order[i+2]; a == b || b == c || a == c {
			t.Errorf("round %d: %s, %s, %s", i/3+1, a.Name, b.Name, c.Name)
		}
		firsts[order[i]]++
	}
	if len(firsts) != 3 {
		t.Errorf("unexpected first contestants: %v", firsts)
	}
}

func TestFaster(t *testing.T) {
	f, err := Read("../../../scenarios/experiments/escheduler.yaml", TargetLab, 60)
	if err != nil {
		t.Fatal(err)
	}
	if f.Duration.Duration != time.Minute || f.Kill.Every.Duration != time.Second || f.Takes() > 15*time.Minute {
		t.Errorf("got a duration of %v, kills every %v, and a total of %v", f.Duration, f.Kill.Every, f.Takes())
	}
}
