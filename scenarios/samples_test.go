package scenarios_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/internal/workload/workloadtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

// The samples are synthetic and contain no values from published data.
var samples = map[string]func() []byte{
	"gaia/sample_jobs.csv":               sampleOfGAIA,
	"gaia/sample_grid.csv":               func() []byte { return sampleGrid(11, "SUN", "WIND") },
	"ecsched/sample_jobs.txt":            sampleOfECSched,
	"lets-wait-awhile/sample_nights.csv": sampleNights,
	"lets-wait-awhile/sample_grid.csv":   func() []byte { return sampleGrid(9, "WIND") },
}

func TestSamplesAreCurrent(t *testing.T) {
	for name, make := range samples {
		got := make()
		kit.Golden(t, filepath.FromSlash(name), got, *rewrite)
		if len(got) > 10_000 {
			t.Errorf("%s has %d bytes, want at most 10,000", name, len(got))
		}
	}
}

// drawn returns a log-normally distributed length with the given median and limits.
func drawn(r *rand.Rand, median, least, most float64) float64 {
	return math.Round(min(max(median*math.Exp(r.NormFloat64()), least), most))
}

func sampleOfGAIA() []byte {
	const jobs, span = 60, 3 * 24 * 3600
	r := rand.New(rand.NewPCG(1, jobs))
	at := make([]float64, jobs)
	for i := range at {
		at[i] = math.Floor(span * r.Float64())
	}
	slices.Sort(at)
	var b bytes.Buffer
	b.WriteString("arrival_time,length,cpus\n")
	for i := range at {
		fmt.Fprintf(&b, "%.0f,%.0f,%d\n", at[i], drawn(r, 3600, 300, 8*3600), 1<<r.IntN(4))
	}
	return b.Bytes()
}

func sampleOfECSched() []byte {
	const jobs, span = 150, 600
	r := rand.New(rand.NewPCG(2, jobs))
	at := make([]float64, jobs)
	for i := range at {
		at[i] = math.Floor(span * r.Float64())
	}
	slices.Sort(at)
	var b bytes.Buffer
	for i := range at {
		fmt.Fprintf(&b, "%d %.0f %.0f %d %d\n", i+1, at[i], drawn(r, 400, 30, 3600), 5+r.IntN(30), 5+r.IntN(30))
	}
	return b.Bytes()
}

func sampleNights() []byte {
	var b bytes.Buffer
	b.WriteString("id,submit_time,duration,cpu\n")
	for night := range 7 {
		fmt.Fprintf(&b, "night-%d,%d,1800,1\n", night, night*24*3600)
	}
	return b.Bytes()
}

// sampleGrid returns hourly values of synthetic grids, one with a solar valley and one with varying wind.
func sampleGrid(days int, zones ...string) []byte {
	r := rand.New(rand.NewPCG(3, uint64(days)))
	var b bytes.Buffer
	b.WriteString("datetime_utc")
	for _, zone := range zones {
		b.WriteString("," + zone)
	}
	if len(zones) == 1 {
		b.Reset()
		b.WriteString("datetime_utc,ci_lifecycle_g_per_kwh")
	}
	b.WriteString(",estimated\n")
	wind := 0.5
	for hour := range 24 * days {
		day := 2 * math.Pi * (float64(hour%24) - 13) / 24
		wind = min(max(wind+0.15*r.NormFloat64(), 0), 1)
		values := map[string]float64{"SUN": 380 - 150*max(0, math.Cos(day)), "WIND": 450 - 300*wind - 20*math.Cos(day)}
		b.WriteString(midnight.Add(time.Duration(hour) * time.Hour).Format("2006-01-02T15:04Z"))
		for _, zone := range zones {
			fmt.Fprintf(&b, ",%.0f", values[zone])
		}
		b.WriteString(",1\n")
	}
	return b.Bytes()
}

const decisionsFile = "replay/decisions.json"

// sampleDecisions returns decisions for some jobs of the demo with their input, in the format of the API. For each
// job, there are four empty machines, one of each kind in the demo.
func sampleDecisions(t *testing.T) []ledger.Record {
	t.Helper()
	signal, _, err := grid.ReadCSV(filepath.Join("demo", "grid.csv"), grid.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "demo", Zone: "SYNTHETIC", PUE: 1.2, Carbon: signal}
	all, err := workload.Nodes("demo24", 0, site)
	if err != nil {
		t.Fatal(err)
	}
	var nodes []*sched.Node
	for i := range all {
		if !slices.ContainsFunc(nodes, func(n *sched.Node) bool { return n.Profile == all[i].Profile }) {
			nodes = append(nodes, &all[i])
		}
	}
	const name, jobs = "carbon+window", 8
	planner, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	var records []ledger.Record
	trace := workloadtest.Demo(1, start)
	for i := range jobs {
		job := trace[i*len(trace)/jobs]
		s := &sched.Snapshot{Now: job.Submitted, Sites: []*sched.Site{site}, Nodes: nodes, Queue: []sched.Job{job}}
		decision := planner.Plan(s)[0]
		r := ledger.Record{
			ID: fmt.Sprintf("sample-%d", i+1), At: s.Now, Action: "place", Namespace: "demo", OwnerKind: "Job",
			Owner: job.ID, UID: job.ID, Strategy: name, Node: decision.Node, Reason: decision.Reason.Kind.String(),
		}
		if decision.Held(s.Now) {
			r.Action, r.Node, r.Start, s.Nodes = "hold", "", decision.Window.Start.UTC(), nil
		}
		data, err := codec.Encode(s)
		if err != nil {
			t.Fatal(err)
		}
		r.Digest, r.Snapshot = codec.Digest(data), kit.Gzip(data)
		records = append(records, r)
	}
	return records
}

// TestSampleOfDecisions checks that the sample of decisions is current.
func TestSampleOfDecisions(t *testing.T) {
	records := sampleDecisions(t)
	if *rewrite {
		var b bytes.Buffer
		if err := report.WriteJSON(&b, map[string]any{"decisions": records}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(decisionsFile, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(decisionsFile)
	if err != nil {
		t.Fatal(err)
	}
	var stored struct{ Decisions []ledger.Record }
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	// The compressed bytes may change with the version of Go, unlike their content.
	for i := range stored.Decisions {
		stored.Decisions[i].Snapshot, records[i].Snapshot = nil, nil
	}
	got, _ := json.Marshal(stored.Decisions)
	if want, _ := json.Marshal(records); !bytes.Equal(got, want) {
		t.Errorf("%s is not current: run go test ./scenarios -rewrite", decisionsFile)
	}
}
