package experiment

import (
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
	files, err := filepath.Glob("../../scenarios/experiments/*.yaml")
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
				t.Errorf("%s: %d jobs of the trace, from %v on", name, len(jobs), jobs[0].Submitted)
			}
		}
	}
}

func TestWrongFiles(t *testing.T) {
	for _, c := range []struct{ old, new, want string }{
		{"name: ours, strategy: energy", "name: ours, strategy: enrgy", "energy"},
		{"name: third", "name: ours", "comes twice"},
		{"load: [", "load: [{name: probe, cpu: 1, run: 1m}, ", "probe is taken"},
		{"strategy: exec", "strategy: exec, binary: ./s", "a strategy or a binary"},
		{"strategy: exec", "binary: ./s", "schedulerName is missing"},
		{"strategy: exec", "strategy: exec, schedulerName: x", "schedulerName is of a binary"},
		{"strategy: exec", "image: theirs:1", "schedulerName is missing"},
		{"strategy: exec", "image: theirs:1, binary: ./s, schedulerName: x", "with no binary"},
		{"utilisation: 1", "utilisation: 1.5", "a utilisation of 1 or less"},
		{"utilisation: 1", "utilisation: 1, requestsPerSecond: 1", "requestsPerSecond, of services"},
		{"seed: 7", "nodes: [{name: vm, cpu: 1}]", "nodes: vm: want cpu and memory"},
		{"cpu: 100m", "cpu: 0", "want cpu"},
		{"duration: 10m", "duration: 0s", "duration"},
		{"seed: 7", "kill: {pods: 3}", "kill: want"},
		{"seed: 7", "scale: {every: 1m}", "scale: want"},
		{"utilisation: 1", "utilisation: 1, run: 1m", "want one of"},
		{"load: [", "load: [{name: b, cpu: 1, run: 1m, after: a}, ", `not as many Jobs called "a"`},
		{"load: [", "load: [{name: a, cpu: 1, run: 1m}, {name: b, cpu: 1, run: 1m, count: 2, after: a}, ", `not as many Jobs called "a"`},
	} {
		if _, err := read(t, strings.Replace(small, c.old, c.new, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

// Every round has each contestant once; the order differs between rounds and depends on the seed alone.
func TestOrder(t *testing.T) {
	f, err := read(t, small)
	if err != nil {
		t.Fatal(err)
	}
	f.Rounds = 20
	order := f.order()
	if again := f.order(); !slices.Equal(order, again) {
		t.Error("the same seed gives another order")
	}
	firsts := map[*Contestant]int{}
	for i := 0; i < len(order); i += 3 {
		if a, b, c := order[i], order[i+1], order[i+2]; a == b || b == c || a == c {
			t.Errorf("round %d: %s, %s, %s", i/3+1, a.Name, b.Name, c.Name)
		}
		firsts[order[i]]++
	}
	if len(firsts) != 3 {
		t.Errorf("who begins: %v", firsts)
	}
}

func TestFaster(t *testing.T) {
	f, err := Read("../../scenarios/experiments/escheduler.yaml", TargetLab, 60)
	if err != nil {
		t.Fatal(err)
	}
	if f.Duration.Duration != time.Minute || f.Kill.Every.Duration != time.Second || f.Takes() > 15*time.Minute {
		t.Errorf("%v, killing every %v, in all %v", f.Duration, f.Kill.Every, f.Takes())
	}
}
