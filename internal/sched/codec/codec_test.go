package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func sortNodes(s *sched.Snapshot) {
	slices.SortFunc(s.Nodes, func(a, b *sched.Node) int { return strings.Compare(a.Name, b.Name) })
}

func TestWrittenSnapshotsPlanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawRecorded(t)
		data := schedtest.Encode(t, s)
		back, err := codec.Decode(data)
		if err != nil {
			t.Fatalf("%v\n%s", err, data)
		}
		if again := schedtest.Encode(t, back); !bytes.Equal(data, again) {
			t.Fatalf("encoded again it is\n%s\nand was\n%s", again, data)
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(s.Nodes),
			func(i, k int) { s.Nodes[i], s.Nodes[k] = s.Nodes[k], s.Nodes[i] })
		if codec.Digest(schedtest.Encode(t, s)) != codec.Digest(data) {
			t.Fatal("digest depends on the order of nodes")
		}
		sortNodes(s)
		for _, name := range slices.Concat(schedtest.Each, strategy.Clusters()) {
			want, err := replay(s, name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := replay(back, name)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s makes different decisions (-snapshot +decoded):\n%s\n%s", name, diff, data)
			}
		}
	})
}

// TestEncodeRefuses checks that snapshots that Decode would reject are not encoded.
func TestEncodeRefuses(t *testing.T) {
	for want, spoil := range map[string]func(s *sched.Snapshot){
		`node "n00000" has no site`: func(s *sched.Snapshot) { s.Nodes[1].Site = nil },
		"duration is -1ns":          func(s *sched.Snapshot) { s.Queue[0].Duration = -1 },
		"restartCost is -1ns":       func(s *sched.Snapshot) { s.Queue[0].RestartCost = -1 },
		"done is -1ns":              func(s *sched.Snapshot) { s.Queue[0].Done = -1 },
	} {
		s := large(t, 2)
		sortNodes(s)
		slices.Reverse(s.Nodes)
		spoil(s)
		if data, err := codec.Encode(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want an error that contains %q (%d bytes)", err, want, len(data))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawRecorded(t)
		lost := rapid.Bool().Draw(t, "lost")
		if lost {
			rapid.SampledFrom(s.Nodes).Draw(t, "which").Site = nil
		}
		data, err := codec.Encode(s)
		if lost != (err != nil) {
			t.Fatalf("node without a site: %v, but error = %v", lost, err)
		}
		if err == nil {
			if _, err := codec.Decode(data); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestCandidatesDecideAsAllNodesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawRecorded(t)
		s.Queue = s.Queue[:1]
		if rapid.Bool().Draw(t, "blind") {
			rapid.SampledFrom(s.Nodes).Draw(t, "unknown").Profile = nil
		}
		sortNodes(s)
		keep := rapid.SampledFrom(s.Nodes).Draw(t, "keep").Name
		own, err := strategy.New(rapid.SampledFrom(schedtest.Strategies).Draw(t, "own"))
		if err != nil {
			t.Fatal(err)
		}
		cut := *s
		cut.Nodes = strategy.Candidates(s, keep, own, rapid.IntRange(1, 8).Draw(t, "most"))
		if !slices.ContainsFunc(cut.Nodes, func(n *sched.Node) bool { return n.Name == keep }) {
			t.Fatalf("node %s is not among the candidates", keep)
		}
		for _, name := range schedtest.Each {
			want, _ := replay(s, name)
			got, _ := replay(&cut, name)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("%s decides differently on %d of %d nodes:\n%s", name, len(cut.Nodes), len(s.Nodes), diff)
			}
		}
	})
}

// fill sets every exported field below v to a non-zero value.
func fill(t *testing.T, v reflect.Value, n *int) {
	t.Helper()
	*n++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(t, v.Field(i), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprint("s", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(1 / float64(*n+1))
	default:
		t.Fatalf("unexpected kind of field: %v", v.Type())
	}
}

// TestEveryFieldIsWritten checks that all fields of a snapshot are encoded. Otherwise decisions could not be
// replayed.
func TestEveryFieldIsWritten(t *testing.T) {
	n := 0
	site := &sched.Site{Name: "x", Zone: "DE", PUE: 1.5, Weight: 3, Carbon: schedtest.Hourly(t, 1, 2, 3), Price: schedtest.Hourly(t, 4, 5, 6)}
	site.Carbon.AsOf, site.Carbon.MaxAge, site.Carbon.Quality = schedtest.Day, time.Hour, energy.Measured
	profile := &energy.Profile{
		Name: "p", Idle: 10, Max: 20, Exponent: 1.4, Sleep: 1, WakeUp: 5, GPUIdle: 1, GPUMax: 2,
		GPUClasses: map[string]float64{"a": 0.5},
	}
	node := sched.Node{
		Site: site, Profile: profile, Labels: map[string]string{"key": "value", "other": "omitted"},
		Benchmarks: map[string]energy.Benchmark{"class": {Rate: 1, Power: 2, Idle: 1}},
	}
	job := sched.Job{
		Submitted: schedtest.Day, FinishBy: schedtest.Day.Add(time.Hour), Selector: map[string]string{"key": "value"}, Class: "class",
	}
	runtimes, err := sched.NewRuntimes(time.Minute, []float64{1, 0.7, 0.1, 0})
	if err != nil {
		t.Fatal(err)
	}
	job.Runtimes, job.Scaling = runtimes, &sched.Scaling{Least: 2, Throughput: []float64{1, 1.4}}
	policy := sched.Policy{Closed: schedtest.Day.Add(2 * time.Hour)}
	for _, one := range []reflect.Value{
		reflect.ValueOf(&node).Elem(), reflect.ValueOf(&job).Elem(), reflect.ValueOf(&policy).Elem(),
	} {
		for _, f := range one.Fields() {
			if f.IsZero() {
				fill(t, f, &n)
			}
		}
	}
	s := &sched.Snapshot{
		Now: schedtest.Day, Queue: []sched.Job{job}, Nodes: []*sched.Node{&node}, Sites: []*sched.Site{site}, Policy: policy,
		Last: "last",
	}
	back, err := codec.Decode(schedtest.Encode(t, s))
	if err != nil {
		t.Fatal(err)
	}
	delete(node.Labels, "other")
	if diff := cmp.Diff(s, back, cmp.Comparer(func(a, b *grid.Series) bool { return reflect.DeepEqual(a, b) }),
		cmp.AllowUnexported(sched.Runtimes{})); diff != "" {
		t.Errorf("lost or changed fields (-snapshot +decoded):\n%s", diff)
	}
}

// large returns a snapshot of a cluster with two sites and signals that cover a year.
func large(t testing.TB, nodes int) *sched.Snapshot {
	t.Helper()
	s := &sched.Snapshot{Now: schedtest.Day.Add(100 * 24 * time.Hour)}
	for i := range 2 {
		values := make([]float64, 365*24)
		for k := range values {
			values[k] = 300 + 200*math.Sin(float64(k+i)/4)
		}
		series, err := grid.NewSeries(schedtest.Day, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		s.Sites = append(s.Sites, &sched.Site{Name: fmt.Sprint("site", i), Carbon: grid.Signal{Series: series}})
	}
	profile := &energy.Profile{Name: "p", Idle: 100, Max: 300, Sleep: 100}
	for i := range nodes {
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprintf("n%05d", i*7919%nodes), Site: s.Sites[i%2], Profile: profile, Jobs: 1,
			Capacity: sched.Resources{MilliCPU: 32000, Memory: 128 << 30},
			Free:     sched.Resources{MilliCPU: int64(1000 + i%30000), Memory: 64 << 30},
		})
	}
	s.Queue = []sched.Job{{
		ID: "a/b", Submitted: s.Now, Duration: 2 * time.Hour, AllowedDelay: 6 * time.Hour,
		Request: sched.Resources{MilliCPU: 500, Memory: 1 << 30},
	}}
	return s
}

func TestSignalsAreCutToWhatMatters(t *testing.T) {
	s := large(t, 4)
	data := schedtest.Encode(t, s)
	if len(data) > 4000 { // one day for two sites; a year has 17,520 values
		t.Errorf("encoded snapshot has %d bytes, want at most 4000", len(data))
	}
	if strings.Count(string(data), `"name":"p"`) != 1 {
		t.Error("nodes do not share their profile")
	}
	back, err := codec.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	series := back.Sites[0].Carbon.Series
	if !series.Covers(s.Now, s.Now.Add(24*time.Hour)) || series.Len() > 26 {
		t.Errorf("signal has %d values from %v", series.Len(), series.Start())
	}
	until, whole := s.Now.Add(20*time.Hour), s.Sites[0].Carbon.Series
	if previous, current := whole.Integral(s.Now, until), series.Integral(s.Now, until); current != previous {
		t.Errorf("integral = %v, want %v as in the whole series", current, previous)
	}
	if back.Nodes[0].Site != back.Sites[0] && back.Nodes[0].Site != back.Sites[1] {
		t.Error("node does not share its site with the snapshot")
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := string(schedtest.Encode(t, large(t, 2)))
	for _, c := range []struct{ old, new, want string }{
		{`"version":1`, `"version":2`, "version 2"},
		{`"last"`, `"lost"`, "unknown field"},
		{`"free":{"MilliCPU":1`, `"free":{"MilliCPU":1e400`, "cannot unmarshal"},
		{`"capacity":{"MilliCPU":32000`, `"capacity":{"MilliCPU":-1`, "capacity of a node"},
		{`"site":0`, `"site":7`, "there is no site 7"},
		{`"site":0`, `"site":-1`, "has no site"},
		{`"name":"n00001"`, `"name":"n00000"`, "twice"},
		{`"step":3600000000000`, `"step":0`, "0s each"},
		{`"duration":7200000000000`, `"duration":-1`, "duration is -1ns"},
		{`"idleWatts":100`, `"idleWatts":-100`, "not negative"},
		{`"queue"`, `"minSaving":1,"queue"`, "unknown field"},
	} {
		text := strings.Replace(strings.Replace(good, `"policy"`, `"last":"x","policy"`, 1), c.old, c.new, 1)
		if _, err := codec.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error = %v, want an error that contains %q", c.new, err, c.want)
		}
	}
	if _, err := codec.Decode([]byte(good + "{}")); err == nil {
		t.Error("Decode() accepted trailing data")
	}
	if _, err := codec.Decode(make([]byte, 17<<20)); err == nil || !strings.Contains(err.Error(), "bytes") {
		t.Errorf("error = %v, want an error about the size", err)
	}
	bad := large(t, 1)
	bad.Nodes[0].Profile = &energy.Profile{Idle: energy.Watts(math.NaN())}
	if _, err := codec.Encode(bad); err == nil {
		t.Error("Encode() accepted an invalid profile")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(schedtest.Encode(f, large(f, 3)))
	f.Add([]byte(`{"version":1,"now":"2026-01-01T00:00:00Z","policy":{},"queue":[]}`))
	f.Add(
		[]byte(
			`{"version":1,"now":"2026-01-01T00:00:00Z","policy":{"seed":3},"sites":[{"name":"a","carbon":{"start":"1970-01-01T00:00:00Z","step":1,"values":[1,2,3]}}],"offered":[0],"queue":[{"id":"x","submitted":"2026-01-01T00:00:00Z","duration":1,"request":{},"allowedDelay":900000000000000000,"limits":{"Percentile":0.5}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		s, err := codec.Decode(data)
		if err != nil {
			return
		}
		again, err := codec.Encode(s)
		if err != nil {
			t.Fatalf("cannot encode the decoded snapshot: %v", err)
		}
		if _, err := codec.Decode(again); err != nil {
			t.Fatalf("cannot decode the encoded snapshot: %v\n%s", err, again)
		}
		if len(s.Queue)*len(s.Nodes) > 1000 {
			return
		}
		for _, name := range schedtest.Each { // no strategy may panic or loop forever
			if _, err := replay(s, name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode64(b *testing.B) {
	s := large(b, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := codec.Encode(s); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCandidates1000(b *testing.B) {
	s := large(b, 1000)
	own, err := strategy.New("carbon")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := len(strategy.Candidates(s, "n00500", own, 64)); n < 64 {
			b.Fatal(n)
		}
	}
}

// TestWrittenForm pins the encoded form, because snapshots must remain readable for years.
func TestWrittenForm(t *testing.T) {
	var got any
	if err := json.Unmarshal(schedtest.Encode(t, large(t, 1)), &got); err != nil {
		t.Fatal(err)
	}
	top := got.(map[string]any)
	delete(top, "sites")
	text, err := json.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nodes":[{"capacity":{"GPU":0,"Memory":137438953472,"MilliCPU":32000},"free":{"GPU":0,"Memory":68719476736,"MilliCPU":1000},` +
		`"jobs":1,"name":"n00000","profile":0,"site":0}],"now":"NOW","offered":[0,1],"policy":{},` +
		`"profiles":[{"idleWatts":100,"maxWatts":300,"name":"p","quality":"estimated","sleepWatts":100}],` +
		`"queue":[{"allowedDelay":21600000000000,"duration":7200000000000,"id":"a/b","request":{"GPU":0,"Memory":1073741824,"MilliCPU":500},"submitted":"NOW"}],"version":1}`
	now := schedtest.Day.Add(100 * 24 * time.Hour).Format(time.RFC3339)
	if diff := cmp.Diff(strings.ReplaceAll(want, "NOW", now), string(text)); diff != "" {
		t.Error(diff)
	}
}

// replay plans a snapshot with the strategy of the given name.
func replay(s *sched.Snapshot, name string) (sched.Plan, error) {
	g, err := strategy.ByName(name)
	if err != nil {
		return nil, err
	}
	return g.Plan(s), nil
}
