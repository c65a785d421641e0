package batch_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const (
	web    = "pod/6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11/0c7e"
	webPod = "pod/6b0d7f8e-4c1f-4a57-9c55-1f0b6d2a7e11"
)

func valid() *batch.Batch {
	end := time.Date(2026, 11, 3, 10, 15, 30, 0, time.UTC)
	return &batch.Batch{
		Version: batch.Version,
		Stream:  batch.Stream{Node: "node1", Boot: "b7f1c6f0", Epoch: "Q6F3"},
		First:   7, Last: 7,
		Start: end.Add(-15 * time.Second), End: end,
		StartSinceBoot: 100 * time.Second, EndSinceBoot: 115 * time.Second,
		Source: "package (rapl)", Quality: energy.Measured, IdlePolicy: "requests",
		Measured: 1000, Idle: 100, Platform: 50, Unknown: 1, GPUIdle: 40,
		GPUUnknown: 1,
		Shares: []energy.Share{
			{ID: webPod, Dynamic: 9},
			{ID: web, Dynamic: 500, Idle: 300, GPU: 700, CPU: 12 * time.Second},
			{ID: energy.System, Dynamic: 40, CPU: time.Second},
		},
	}
}

func TestValidate(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	breach := map[string]func(b *batch.Batch){
		"version":             func(b *batch.Batch) { b.Version = 2 },
		"no node":             func(b *batch.Batch) { b.Stream.Node = "" },
		"long node":           func(b *batch.Batch) { b.Stream.Node = strings.Repeat("n", 254) },
		"no boot":             func(b *batch.Batch) { b.Stream.Boot = "" },
		"no epoch":            func(b *batch.Batch) { b.Stream.Epoch = "" },
		"newline in epoch":    func(b *batch.Batch) { b.Stream.Epoch = "a\nb" },
		"no UTF-8":            func(b *batch.Batch) { b.Source = "\xff" },
		"C1 control":          func(b *batch.Batch) { b.Source = "a\u0085b" },
		"no source":           func(b *batch.Batch) { b.Source = "" },
		"number 0":            func(b *batch.Batch) { b.First = 0 },
		"numbers fall":        func(b *batch.Batch) { b.Last = 6 },
		"last number":         func(b *batch.Batch) { b.Last = math.MaxUint64 },
		"time falls":          func(b *batch.Batch) { b.EndSinceBoot = 99 * time.Second },
		"before boot":         func(b *batch.Batch) { b.StartSinceBoot = -1 },
		"clocks disagree":     func(b *batch.Batch) { b.Start = b.Start.Add(time.Nanosecond) },
		"year 1":              func(b *batch.Batch) { b.Start, b.End = time.Time{}, time.Time{}.Add(15*time.Second) },
		"more unmeasured":     func(b *batch.Batch) { b.Unmeasured = 16 * time.Second },
		"negative unmeasured": func(b *batch.Batch) { b.Unmeasured = -1 },
		"energy in no time": func(b *batch.Batch) {
			b.EndSinceBoot, b.End = b.StartSinceBoot, b.Start
		},
		"policy":            func(b *batch.Batch) { b.IdlePolicy = "fair" },
		"quality":           func(b *batch.Batch) { b.Quality = 3 },
		"energy lost":       func(b *batch.Batch) { b.Measured++ },
		"negative energy":   func(b *batch.Batch) { b.Idle, b.Platform = -1, 151 },
		"more of GPUs":      func(b *batch.Batch) { b.Shares[1].GPU = 801 },
		"less of GPUs":      func(b *batch.Batch) { b.Shares[1].GPU = -1 },
		"more idle GPUs":    func(b *batch.Batch) { b.GPUIdle = 101 },
		"less unknown GPUs": func(b *batch.Batch) { b.GPUUnknown = -1 },
		"overflow":          func(b *batch.Batch) { b.Idle, b.Platform = math.MaxInt64, math.MaxInt64 },
		"negative CPU time": func(b *batch.Batch) { b.Shares[0].CPU = -1 },
		"not sorted":        func(b *batch.Batch) { slices.Reverse(b.Shares) },
		"twice":             func(b *batch.Batch) { b.Shares[1].ID = b.Shares[0].ID },
		"consumer":          func(b *batch.Batch) { b.Shares[2].ID = "systemd" },
		"empty pod":         func(b *batch.Batch) { b.Shares[0].ID = "pod/" },
		"empty container":   func(b *batch.Batch) { b.Shares[0].ID = webPod + "/" },
		"nested container":  func(b *batch.Batch) { b.Shares[1].ID += "/1" },
		"empty VM":          func(b *batch.Batch) { b.Shares[2].ID = "vm/" },
		"empty cgroup":      func(b *batch.Batch) { b.Shares[0].ID = "cgroup/" },
		"long consumer":     func(b *batch.Batch) { b.Shares[2].ID = "vm/" + strings.Repeat("v", 1022) },
		"parent's host":     func(b *batch.Batch) { b.Parent = &batch.Parent{VM: "v"} },
		"parent's VM":       func(b *batch.Batch) { b.Parent = &batch.Parent{Host: "h"} },
		"own parent":        func(b *batch.Batch) { b.Parent = &batch.Parent{Host: "node1", VM: "v"} },
		"too many shares": func(b *batch.Batch) {
			b.Shares, b.Measured = nil, 151
			for i := range batch.MaxShares + 1 {
				b.Shares = append(b.Shares, energy.Share{ID: fmt.Sprintf("vm/%06d", i)})
			}
		},
	}
	for name, breach := range breach {
		b := valid()
		breach(b)
		if b.Validate() == nil {
			t.Errorf("%s: Validate() = nil, want an error", name)
		}
	}
	for _, id := range []string{
		energy.System, batch.Others, "vm/web 1", "cgroup//slurm/job_7/step_0", "pod/a", "pod/a/b", "cgroup/ü",
	} {
		if err := batch.CheckConsumer(id); err != nil {
			t.Error(err)
		}
	}
}

func TestFoldRefuses(t *testing.T) {
	next := func() *batch.Batch {
		b := valid()
		b.First, b.Last = 8, 9
		b.StartSinceBoot, b.EndSinceBoot = 115*time.Second, 145*time.Second
		return b
	}
	for name, change := range map[string]func(b *batch.Batch){
		"hole":     func(b *batch.Batch) { b.First = 9 },
		"again":    func(b *batch.Batch) { b.First = 7 },
		"epoch":    func(b *batch.Batch) { b.Stream.Epoch = "other" },
		"parent":   func(b *batch.Batch) { b.Parent = &batch.Parent{Host: "h", VM: "v"} },
		"overlap":  func(b *batch.Batch) { b.StartSinceBoot-- },
		"version":  func(b *batch.Batch) { b.Version = 2 },
		"overflow": func(b *batch.Batch) { b.Measured = math.MaxInt64 - 999 },
	} {
		b := next()
		change(b)
		if _, err := batch.Fold(valid(), b); err == nil {
			t.Errorf("%s: Fold() succeeded, want an error", name)
		}
	}
	if _, err := batch.Fold(valid(), next()); err != nil {
		t.Error(err)
	}
}

// The wall clock was set back by an hour between the two batches, and no agent ran for 5 s.
func TestFold(t *testing.T) {
	a, b := valid(), valid()
	b.First, b.Last = 8, 9
	b.StartSinceBoot, b.EndSinceBoot = 120*time.Second, 150*time.Second
	b.Start, b.End = b.Start.Add(-time.Hour), b.Start.Add(-time.Hour+30*time.Second)
	b.Unmeasured = time.Second
	b.Source, b.Quality, b.IdlePolicy = "dram (rapl)", energy.Derived, "equal"
	b.Shares = []energy.Share{{ID: web, Dynamic: 449, GPU: 10, Ended: true, CPU: time.Second}, {ID: "vm/a", Dynamic: 400}}
	f, err := batch.Fold(a, b)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Validate(); err != nil {
		t.Error(err)
	}
	want := valid()
	want.First, want.Last = 7, 9
	want.Start, want.End = b.End.Add(-50*time.Second), b.End
	want.EndSinceBoot, want.Unmeasured = 150*time.Second, 6*time.Second
	want.Source, want.Quality, want.IdlePolicy = "package (rapl) + dram (rapl)", energy.Derived, batch.Mixed
	want.Measured, want.Idle, want.Platform, want.Unknown = 2000, 200, 100, 2
	want.GPUIdle, want.GPUUnknown = 80, 2
	want.Shares = []energy.Share{
		{ID: webPod, Dynamic: 9},
		{ID: web, Dynamic: 949, Idle: 300, GPU: 710, CPU: 13 * time.Second, Ended: true},
		{ID: energy.System, Dynamic: 40, CPU: time.Second},
		{ID: "vm/a", Dynamic: 400},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(valid(), a); diff != "" {
		t.Errorf("Fold() modified its argument: %s", diff)
	}
	b.Quality, b.Measured = energy.Estimated, 0
	if q := batch.JoinQuality(a.Quality, a.Measured, b.Quality, b.Measured); q != energy.Measured {
		t.Errorf("quality of measured energy after an interval without energy = %v, want measured", q)
	}
}

func drawShares(t *rapid.T, label string) []energy.Share {
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{
		"pod/a", "pod/a/1", "pod/a/2", "pod/a/3", "pod/b/1", "pod/b/2", "pod/c", "vm/x", "vm/y", "cgroup/s", "system",
		"others",
	}), 0, 12, rapid.ID).Draw(t, label)
	slices.Sort(ids)
	var shares []energy.Share
	for _, id := range ids {
		shares = append(shares, energy.Share{
			ID: id, Dynamic: energy.Microjoules(rapid.IntRange(0, 9).Draw(t, "dynamic")),
			Idle: energy.Microjoules(rapid.IntRange(0, 9).Draw(t, "idle")),
			CPU:  time.Duration(rapid.IntRange(0, 9).Draw(t, "cpu")), Ended: rapid.Bool().Draw(t, "ended"),
		})
	}
	return shares
}

func sums(shares ...energy.Share) (dynamic, idle energy.Microjoules, cpu time.Duration) {
	for _, s := range shares {
		dynamic += s.Dynamic
		idle += s.Idle
		cpu += s.CPU
	}
	return dynamic, idle, cpu
}

func TestMergeIsASum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawShares(t, "a"), drawShares(t, "b")
		want := map[string]energy.Share{}
		for _, s := range append(slices.Clone(a), b...) {
			w := want[s.ID]
			want[s.ID] = energy.Share{
				ID: s.ID, Dynamic: w.Dynamic + s.Dynamic, Idle: w.Idle + s.Idle, CPU: w.CPU + s.CPU, Ended: s.Ended,
			}
		}
		before := slices.Clone(b)
		got := batch.Merge(slices.Grow(slices.Clone(a), rapid.IntRange(0, 5).Draw(t, "room")), b)
		if !slices.IsSortedFunc(got, func(a, b energy.Share) int { return strings.Compare(a.ID, b.ID) }) ||
			len(got) != len(want) {
			t.Fatalf("Merge(%v, %v) = %v", a, b, got)
		}
		for _, s := range got {
			if s != want[s.ID] {
				t.Fatalf("got share %v, want %v", s, want[s.ID])
			}
		}
		if !slices.Equal(b, before) {
			t.Fatal("Merge() modified its second argument")
		}
	})
}

func TestCondenseLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		shares := drawShares(t, "shares")
		limit := rapid.IntRange(1, 13).Draw(t, "limit")
		before := slices.Clone(shares)
		got := batch.Condense(shares, limit)
		if len(got) > limit || !slices.Equal(shares, before) {
			t.Fatalf("Condense() of %d shares returned %d, want at most %d without modifying the argument", len(shares), len(got), limit)
		}
		for i := range got {
			if i > 0 && got[i-1].ID >= got[i].ID {
				t.Fatalf("Condense() returned unsorted shares: %v", got)
			}
		}
		d1, i1, c1 := sums(shares...)
		d2, i2, c2 := sums(got...)
		if d1 != d2 || i1 != i2 || c1 != c2 {
			t.Fatalf("Condense(%v) = %v, want the same totals", shares, got)
		}
	})
}

func TestCondenseGoesNoFurtherThanNeeded(t *testing.T) {
	shares := []energy.Share{
		{ID: "cgroup/s", Dynamic: 1},
		{ID: "pod/a", Dynamic: 10},
		{ID: "pod/a/1", Dynamic: 20, Ended: true},
		{ID: "pod/a/2", Dynamic: 30},
		{ID: "pod/b/1", Dynamic: 40, Ended: true},
		{ID: "pod/b/2", Dynamic: 50, Ended: true},
		{ID: "vm/x", Dynamic: 60},
	}
	for limit, want := range map[int][]energy.Share{
		7: shares,
		6: {
			{ID: "cgroup/s", Dynamic: 1},
			{ID: "pod/a", Dynamic: 30},
			{ID: "pod/a/2", Dynamic: 30},
			{ID: "pod/b", Dynamic: 90, Ended: true},
			{ID: "vm/x", Dynamic: 60},
		},
		4: {
			{ID: "cgroup/s", Dynamic: 1},
			{ID: "pod/a", Dynamic: 60},
			{ID: "pod/b", Dynamic: 90, Ended: true},
			{ID: "vm/x", Dynamic: 60},
		},
		3: {{ID: batch.Others, Dynamic: 91}, {ID: "pod/a", Dynamic: 60}, {ID: "vm/x", Dynamic: 60}},
		1: {{ID: batch.Others, Dynamic: 211}},
	} {
		if diff := cmp.Diff(want, batch.Condense(shares, limit)); diff != "" {
			t.Errorf("limit %d: %s", limit, diff)
		}
	}
}

// Folding two batches results in dates that can be encoded.
func TestFoldOfWrongClocks(t *testing.T) {
	a, b := valid(), valid()
	b.First, b.Last = 8, 8
	b.StartSinceBoot, b.EndSinceBoot = 115*time.Second, 130*time.Second
	b.Start = time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC)
	b.End = b.Start.Add(15 * time.Second)
	f, err := batch.Fold(a, b)
	if err != nil || b.Validate() != nil || f.Validate() != nil {
		t.Errorf("%v, %v, %v", err, b.Validate(), f.Validate())
	}
}

func TestDecode(t *testing.T) {
	data, err := batch.Encode(valid())
	if err != nil {
		t.Fatal(err)
	}
	got, err := batch.Decode(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(valid(), got); diff != "" {
		t.Error(diff)
	}
	empty := valid()
	empty.Shares, empty.Measured = nil, 151
	if data, _ := batch.Encode(empty); !bytes.Contains(data, []byte(`"shares":[]`)) {
		t.Errorf("batch without shares is encoded as %s", data)
	}
	for name, bad := range map[string]string{
		"empty":              "",
		"unknown field":      strings.Replace(string(data), `"version"`, `"colour":1,"version"`, 1),
		"unknown in a share": strings.Replace(string(data), `"dynamic"`, `"static":1,"dynamic"`, 1),
		"something after":    string(data) + "{}",
		"a fraction":         strings.Replace(string(data), `"dynamic":500`, `"dynamic":500.5`, 1),
		"too much":           strings.Replace(string(data), `"dynamic":500`, `"dynamic":9223372036854775808`, 1),
		"a wrong sum":        strings.Replace(string(data), `"dynamic":500`, `"dynamic":501`, 1),
		"shares of a kind":   strings.Replace(string(data), `"shares":[`, `"shares":7,"x":[`, 1),
		"many shares": strings.Replace(string(data), `"shares":[`, `"shares":[`+strings.Repeat("{},", 20_000),
			1),
		"twice":             strings.Replace(string(data), `"version":1`, `"version":1,"version":1`, 1),
		"twice in a stream": strings.Replace(string(data), `"node":`, `"node":"other","node":`, 1),
		"twice in a share":  strings.Replace(string(data), `"dynamic":500`, `"dynamic":1, "dynamic" :500`, 1),
		"two lists":         strings.Replace(string(data), `"shares":[`, `"shares":[],"shares":[`, 1),
		"capitals":          strings.Replace(string(data), `"measured":`, `"Measured":`, 1),
		"capitals, a share": strings.Replace(string(data), `"dynamic"`, `"DYNAMIC"`, 1),
		"an escape":         strings.Replace(string(data), `"measured":`, `"m\u0065asured":`, 1),
		"a folded letter":   strings.Replace(string(data), `"measured":`, `"mea\u017fured":`, 1),
		"huge":              string(data) + strings.Repeat(" ", batch.MaxBytes),
	} {
		if _, err := batch.Decode([]byte(bad)); err == nil {
			t.Errorf("%s: Decode() succeeded, want an error", name)
		}
	}
}

// Rejecting data that is cheap to send must be cheap as well.
func TestDecodeIsCheap(t *testing.T) {
	bomb := []byte(`{"shares":[` + strings.Repeat("{},", 100_000) + `{}]}`)
	if n := testing.AllocsPerRun(1, func() { batch.Decode(bomb) }); n > 60_000 {
		t.Errorf("got %v allocations for a list of empty objects", n)
	}
}

func TestDecodeAck(t *testing.T) {
	want := &batch.Ack{Epoch: "Q6F3", Acked: 7, Names: map[string]batch.Names{"u": {
		Namespace: "shop", Pod: "web-0",
		Containers: map[string]string{"0c7e": "web"},
	}}}
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(data), `"acked"`, `"mood":"good","acked"`, 1)
	got, err := batch.DecodeAck([]byte(newer))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{
		"", "null", "[]", `{"acked":7}`, `{"epoch":"a","acked":-1}`, `{"epoch":"a\nb"}`,
		strings.Repeat(" ", batch.MaxAckBytes+1),
	} {
		if a, err := batch.DecodeAck([]byte(bad)); err == nil {
			t.Errorf("DecodeAck(%.20q) = %v, want an error", bad, a)
		}
	}
	got,
		err = batch.DecodeAck(
		[]byte(
			`{"epoch":"a","acked":1,"names":{"u":{"namespace":"n","pod":""},"v":{"namespace":"n","pod":"p","containers":{"c":"\u0000"}},"w":{"namespace":"n","pod":"p"}}}`))
	if err != nil || len(got.Names) != 1 || got.Names["w"].Pod != "p" {
		t.Errorf("DecodeAck() = %v, %v, want only the valid name", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	seed, _ := batch.Encode(valid())
	f.Add(seed)
	f.Add([]byte(`{"version":1,"shares":[{}]}`))
	f.Add(
		[]byte(
			`{"version":1,"stream":{"node":"n","boot":"b","epoch":"e"},"first":1,"last":1,"parent":{"host":"h","vm":"v"},"start":"2026-01-01T00:00:00Z","end":"2026-01-01T01:00:00+01:00","startSinceBoot":1,"endSinceBoot":1,"source":"s","quality":"measured","idlePolicy":"apart","shares":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		b, err := batch.Decode(data)
		if err != nil {
			return
		}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		if key := ambiguous(t, json.NewDecoder(bytes.NewReader(data))); key != "" {
			t.Fatalf("accepted ambiguous key %q in %s", key, data)
		}
		again, err := batch.Encode(b)
		if err != nil {
			t.Fatal(err)
		}
		got, err := batch.Decode(again)
		if err != nil {
			t.Fatalf("%v: %s", err, again)
		}
		if len(b.Shares) == 0 {
			b.Shares, got.Shares = nil, nil
		}
		if diff := cmp.Diff(b, got); diff != "" {
			t.Fatal(diff)
		}
		next := *b
		next.First, next.Last = b.Last+1, b.Last+1
		next.StartSinceBoot, next.EndSinceBoot = b.EndSinceBoot, b.EndSinceBoot+(b.EndSinceBoot-b.StartSinceBoot)
		if folded, err := batch.Fold(b, &next); err == nil && next.Validate() == nil {
			if err := folded.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// ambiguous returns a key of the next value that occurs twice, ignoring capitalization.
func ambiguous(t *testing.T, dec *json.Decoder) (found string) {
	open, err := dec.Token()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	if open != json.Delim('{') && open != json.Delim('[') {
		return ""
	}
	for dec.More() {
		if open == json.Delim('{') {
			token, err := dec.Token()
			if err != nil {
				t.Fatal(err)
			}
			if key := strings.ToLower(fmt.Sprint(token)); seen[key] {
				found = key
			} else {
				seen[key] = true
			}
		}
		if below := ambiguous(t, dec); below != "" {
			found = below
		}
	}
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	return found
}

func FuzzDecodeAck(f *testing.F) {
	f.Add([]byte(`{"epoch":"a","acked":1,"names":{"u":{"namespace":"n","pod":"p","containers":{"c":"d"}}}}`))
	f.Add([]byte(`{"epoch":"a","acked":18446744073709551615}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		a, err := batch.DecodeAck(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := batch.DecodeAck(again); err != nil && len(again) <= batch.MaxAckBytes {
			t.Fatal(err)
		}
	})
}
