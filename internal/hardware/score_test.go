package hardware

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// made returns a catalogue with one model and one generation.
func made(t *testing.T) *Catalog {
	t.Helper()
	tables := &Tables{
		Errors:      []*Errors{{Basis: "model", Results: 12, IdleMedian: 0.3, FullMedian: 0.4}},
		Generations: []Generation{{Models: `made lake \d{4}`, Architecture: "Made Lake"}},
		CPUs: map[string]TableCPU{
			"Made Lake":      {CPU{IdlePower: 1, MaxPower: 3, NumCores: 1, ThreadsPerCore: 1}, "threads"},
			"Made Lake 1234": {CPU{IdlePower: 40, MaxPower: 200, NumCores: 8}, "model"},
		},
	}
	c, err := tables.Catalog([]byte("cpuProfiles: {Board: {idlePower: 1, maxPower: 2}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestScore(t *testing.T) {
	results, err := ReadResults([]byte(`cpu,Sockets,cores,memoryGB,idleWatts,fullWatts,date,note
Made Lake 1234,2,16,10,102,507,2024-05,two sockets
MADE LAKE 1234,,16,10,163,403.9,2024-05-07,two by their threads
Made Lake 1235,1,8,10,17.5,103.8,,its generation
Made Lake 12345,1,8,10,20,100,,unknown
Made Lake 1234,1,8,10,0,0,,failed
`))
	if err != nil {
		t.Fatal(err)
	}
	s := made(t).Score(results)
	var rows []string
	for _, r := range s.Rows {
		rows = append(rows, strings.Join([]string{r.CPU, r.Basis}, ": "))
	}
	// Memory adds 1.5 W idle and 3.9 W at full load.
	if diff := cmp.Diff([]string{
		"Made Lake 1235: threads", "Made Lake 1234: model",
		"MADE LAKE 1234: model", "Made Lake 12345: ",
	}, rows); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]Errors{
		{Basis: "all", Results: 3, IdleMedian: 0.20098, IdleP90: 0.5, FullMedian: 0.20335, FullP90: 0.5},
		{Basis: "model", Results: 2, IdleMedian: 0.5, IdleP90: 0.5, FullMedian: 0.20335, FullP90: 0.20335},
		{Basis: "threads", Results: 1, FullMedian: 0.5, FullP90: 0.5},
	}, s.Errors, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-5 })); diff != "" {
		t.Error(diff)
	}
	if s.Results != 4 || s.Unknown != 1 || s.Rows[1].Published.Month() != time.May {
		t.Errorf("%+v", s)
	}
}

// A profile contains the error measured for its basis.
func TestProfilesSayHowFarOffTheyAre(t *testing.T) {
	c := made(t)
	_, kind, ok := node{labels: map[string]string{labelCPUModel: "Made Lake 1234"}, cpus: 32, memory: 64 * gb}.detect(c)
	if !ok || kind.Error == nil || kind.Error.IdleMedian != 0.3 {
		t.Fatalf("%+v", kind)
	}
	kind.Components.Sockets = 2
	p, err := c.Profile(kind.Components)
	if err != nil || !strings.HasSuffix(p.Source, "profiles by model: half of 12 servers of the test "+
		"set were within 30 % idle and 40 % at full load") {
		t.Errorf("%+v %v", p, err)
	}
	board := node{labels: map[string]string{labelCPUModel: "Board"}, cpus: 4, memory: gb}
	if _, kind, ok := board.detect(c); !ok || kind.Error != nil {
		t.Errorf("unexpected error of a board without measurements: %+v", kind.Error)
	}
}

func TestReadResultsRefuses(t *testing.T) {
	for text, wrong := range map[string]string{
		"":                              "EOF",
		"cpu,cores,idleWatts,fullWatts": "no column memorygb",
		"cpu,cores,memoryGB,idleWatts,fullWatts\nx,8,16,lots,90\n":          `line 2: idlewatts is "lots"`,
		"cpu,cores,memoryGB,idleWatts,fullWatts\nx,8,16,-1,90\n":            "idlewatts is \"-1\"",
		"cpu,cores,memoryGB,idleWatts,fullWatts\nx,8\n":                     "wrong number of fields",
		"cpu,cores,memoryGB,idleWatts,fullWatts,date\nx,8,16,50,90,today\n": `date is "today": want`,
	} {
		if _, err := ReadResults([]byte(text)); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: got %v, want %q", text, err, wrong)
		}
	}
}

// The errors stored in profiles are from tables.json. This test computes the errors of the bundled catalogue, which
// was built from all results, for the newest results. Larger errors on known results indicate broken tables.
func TestScoreOfSPECpower(t *testing.T) {
	text, err := grid.ReadFile("../../../shared/data/power/ccf/SPECpower-2023-05-23.csv.gz")
	if err != nil {
		t.Skip("skipping because the shared data directory is missing: ", err)
	}
	results, err := ReadResults(text)
	if err != nil || len(results) != 840 {
		t.Fatal(len(results), err)
	}
	since := time.Date(2021, 6, 1, 0, 0, 0, 0, time.UTC)
	results = slices.DeleteFunc(results, func(r Result) bool { return r.Published.Before(since) })
	s := Default().Score(results)
	if all := s.Errors[0]; len(results) != 126 || s.Unknown > 6 || all.IdleMedian > 0.2 || all.FullMedian > 0.15 {
		t.Errorf("unexpected score: %d results, %d unknown, errors %+v", len(results), s.Unknown, all)
	}
}
