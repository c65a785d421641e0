package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// tally contains the number of tests by outcome.
type tally struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"` // including unfinished ones
	Skipped int `json:"skipped"`
}

func count(seen outcomes) (t tally) {
	for test, o := range seen {
		switch {
		case test == whole || test == leaks:
		case o == passed:
			t.Passed++
		case o == skipped:
			t.Skipped++
		default:
			t.Failed++
		}
	}
	return t
}

func (t tally) String() string { return fmt.Sprintf("%d/%d/%d", t.Passed, t.Failed, t.Skipped) }

// A result is the result of one suite in one mode.
type result struct {
	Suite      string         `json:"suite"`
	Mode       enabled.Mode   `json:"mode"`
	Kubernetes string         `json:"kubernetes"`
	Stock      tally          `json:"stock"`
	Ours       tally          `json:"ours"`
	StockTook  float64        `json:"stockSeconds"`
	OursTook   float64        `json:"oursSeconds"`
	StockCPU   float64        `json:"stockCPUSeconds"` // of the process with API server and scheduler, without etcd
	OursCPU    float64        `json:"oursCPUSeconds"`
	Again      int            `json:"again,omitempty"` // runs in which the API server did not start
	Counts     enabled.Counts `json:"counts"`
	Suspects   []suspect      `json:"suspects,omitempty"`
	Wrong      []string       `json:"wrong,omitempty"` // empty if ours passes like stock
}

// settle determines the problems of the result.
func (r *result) settle() {
	for _, s := range r.Suspects {
		if s.Verdict == fails {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s: stock %v, ours %v", describe(s.Test), s.Stock, s.Ours))
		}
	}
	// The result is meaningless if the plugins were not called.
	if r.Stock.Passed == 0 {
		r.Wrong = append(r.Wrong, "stock passes no test")
	}
	if _, none := podless[r.Suite]; r.Counts.Asked == 0 && !none {
		r.Wrong = append(r.Wrong, "plugins were not called for any pod")
	}
	if r.Mode != enabled.Scored && r.Counts.Scored > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("plugin scored nodes in %d cycles, want none", r.Counts.Scored))
	}
}

func describe(test string) string {
	if test == whole {
		return "(the process)"
	}
	return test
}

func (r *result) with(v verdict) (n int) {
	for _, s := range r.Suspects {
		if s.Verdict == v {
			n++
		}
	}
	return n
}

// write writes the result as JSON.
func (r *result) write(dir string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	name := strings.ReplaceAll(r.Suite, "/", "-") + "." + string(r.Mode) + ".json"
	return os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644)
}

// printTable prints a summary of all results.
func printTable(w io.Writer, results []*result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SUITE\tMODE\tSTOCK\tOURS\tFLAKY\tEXCUSED\tASKED\tCYCLES\tSCORED\tCPU, STOCK\tCPU, OURS\tVERDICT")
	for _, r := range results {
		verdict := "as stock"
		if len(r.Wrong) > 0 {
			verdict = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", r.Suite, r.Mode, r.Stock, r.Ours,
			r.with(flaky), r.with(excused),
			r.Counts.Asked, r.Counts.Cycles, r.Counts.Scored, seconds(r.StockCPU), seconds(r.OursCPU), verdict)
	}
	fmt.Fprintln(t,
		"(tests including subtests: passed/failed/skipped; asked, cycles and scored: number of plugin calls)")
	return t.Flush()
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Second)
}
