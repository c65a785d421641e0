package main

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRead parses logs of the benchmarks at different revisions.
func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want map[string]float64
	}{
		"cycle": {
			"    cycle_test.go:130: unmarked, 1000 nodes: CPU of a pod 1.009 (95 %: 0.980 to 1.053, 30 pairs), cycle by the " +
				"clock 1.1\n    cycle_test.go:130: shipped-second-scheduler, 5000 nodes: CPU of a pod 0.032 (95 %: 0.028\n",
			map[string]float64{
				"unmarked, 1000 nodes: CPU of a pod, ours ÷ stock":                 1.009,
				"shipped-second-scheduler, 5000 nodes: CPU of a pod, ours ÷ stock": 0.032,
			},
		},
		"agent": {
			"    cost_test.go:58: 250 busy containers, 1 s: 0.289 % of a core in all, of which the sweep 0.131 % (wall time); " +
				"16.6 MiB resident, 167 descriptors\n",
			map[string]float64{"250 busy containers: % of a core": 0.289, "250 busy containers: MiB resident": 16.6},
		},
		"controller": {
			"    controller_test.go:296: CPU 0.52 cores, peak memory 801 MiB, 12.4 writes/s to the API server, the ledger grows " +
				"by -4.01 GB a day\n",
			map[string]float64{
				"cores": 0.52, "MiB at most": 801, "writes/s to the API server": 12.4, "GB a day of ledger": -4.01,
			},
		},
		"hold": {
			"    hold_test.go:203: held Jobs: ratio of unheld pods bound per second with and without holds: 0.99 (95 %: 0.9 " +
				"to 1.1, 24 pairs); of scheduler CPU per pod: 1.02 (95 %: 1 to 1.1\n" +
				"    hold_test.go:361: heap with holds 61 MB, without 40 MB; idle cores with holds 0.020, without 0.010\n" +
				"    hold_test.go:457: released: created 100/s, first bound after 0.40 s, all after 5.6 s; unheld\n",
			map[string]float64{
				"held Jobs: scheduler's CPU of an unheld pod, with ÷ without holds": 1.02, "MB of heap with holds": 61,
				"released: s until all are bound": 5.6,
			},
		},
	} {
		b := benchmarks[name]
		if got := b.read(c.log); !maps.Equal(got, c.want) {
			t.Errorf("%s: read %v, want %v", name, got, c.want)
		}
		if got := b.read("--- SKIP: TestCost (0.00s)\nPASS\n"); len(got) != 0 {
			t.Errorf("%s: read %v from a log without figures", name, got)
		}
	}
}

func TestInTurns(t *testing.T) {
	var order []string
	arm := func(name string, figures ...float64) func() (map[string]float64, error) {
		return func() (map[string]float64, error) {
			order = append(order, name)
			if len(figures) == 0 {
				return nil, errors.New("no figure")
			}
			figure := figures[0]
			figures = figures[1:]
			all := map[string]float64{"cores": figure}
			if name == "new" {
				all["added"] = 1
			}
			return all, nil
		}
	}
	var out bytes.Buffer
	// A negative figure, such as the growth of a ledger that shrinks, has no ratio.
	arms := [2]func() (map[string]float64, error){arm("base", 1, 2, 3, 4), arm("new", 2, 3, -1, 4)}
	ratios, err := inTurns(&out, arms, 4)
	if err != nil {
		t.Fatal(err)
	}
	if want := slices.Repeat([]string{"base", "new"}, 4); !slices.Equal(order, want) {
		t.Errorf("unexpected order %v", order)
	}
	if len(ratios) != 1 || !slices.Equal(ratios["cores"], []float64{2, 1.5, 1}) {
		t.Errorf("unexpected ratios %v", ratios)
	}
	if _, err := inTurns(&out, [2]func() (map[string]float64, error){arm("base", 1), arm("new")}, 1); err == nil {
		t.Error("expected an error for a benchmark without figures")
	}
	other := func() (map[string]float64, error) { return map[string]float64{"writes": 1}, nil }
	_, err = inTurns(&out, [2]func() (map[string]float64, error){arm("base", 1), other}, 1)
	if err == nil || !strings.Contains(err.Error(), `pair 1: the working tree does not log the figure "cores"`) {
		t.Errorf("unexpected error for a missing figure: %v", err)
	}
}

// TestFailedBenchmark verifies that the error of a failed benchmark is printed although it logged a figure.
func TestFailedBenchmark(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "base.test")
	script := "#!/bin/sh\necho 'cost_test.go:58: 250 busy containers, 1 s: 0.289 %'\necho --- FAIL: TestCost\nexit 1\n"
	if err := os.WriteFile(binary, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	printed, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	before := os.Stderr
	os.Stderr = printed
	b := benchmarks["agent"]
	found, err := b.measure(t.Context(), binary, ".")
	os.Stderr = before
	if err != nil || found["250 busy containers: % of a core"] != 0.289 {
		t.Errorf("measure() = %v, %v", found, err)
	}
	text, err := os.ReadFile(printed.Name())
	if err != nil || !strings.Contains(string(text), "base.test: exit status 1\n") ||
		!strings.Contains(string(text), "--- FAIL: TestCost") {
		t.Errorf("printed %q, %v", text, err)
	}
}

func TestJudge(t *testing.T) {
	var out bytes.Buffer
	noisy := []float64{0.9, 1.2, 1.1, 1.15, 1, 1.1} // the median is above the limit, but not the entire interval
	if err := judge(&out, map[string][]float64{"cores": noisy}, 1.05); err != nil {
		t.Error(err)
	}
	err := judge(&out, map[string][]float64{"cores": noisy, "MiB": {1.1, 1.2, 1.1, 1.3, 1.2, 1.1}}, 1.05)
	if err == nil || !strings.Contains(err.Error(), "1.05: MiB") {
		t.Errorf("unexpected error: %v", err)
	}
	if !strings.Contains(out.String(), "cores: 1.100 (95 %: 0.950 to 1.175, 6 pairs)") {
		t.Errorf("unexpected output: %s", out.String())
	}
	if err := judge(&out, map[string][]float64{"MiB": {1.1, 1.2, 1.1, 1.3, 1.2}}, 1.05); err != nil {
		t.Errorf("five pairs must not be judged: %v", err)
	}
}
