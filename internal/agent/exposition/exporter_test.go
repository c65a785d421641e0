package exposition

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// drawShares draws the shares of an interval, sorted by ID, with consumers of all kinds that start and end.
func drawShares(t *rapid.T) []energy.Share {
	ids := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
		n := rapid.IntRange(0, 12).Draw(t, "n")
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return energy.VMID(fmt.Sprint("vm", n))
		case 1:
			return energy.CgroupID(fmt.Sprint("group/", n))
		case 2:
			return energy.System
		case 3:
			return energy.ContainerID(fmt.Sprint("uid", n), "")
		case 4:
			return fmt.Sprint("riddle", n) // of unknown kind
		}
		return energy.ContainerID(fmt.Sprint("uid", n/3), fmt.Sprint("c", n))
	}), 0, 12, rapid.ID).Draw(t, "ids")
	slices.Sort(ids)
	amount := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 5_000_000))
	shares := make([]energy.Share, len(ids))
	for i, id := range ids {
		shares[i] = energy.Share{
			ID: id, Dynamic: energy.Microjoules(amount.Draw(t, "dynamic")),
			Idle:  energy.Microjoules(amount.Draw(t, "idle")),
			CPU:   time.Duration(amount.Draw(t, "cpu")) * time.Microsecond,
			Ended: rapid.IntRange(0, 4).Draw(t, "ended") == 0 && id != energy.System,
		}
	}
	return shares
}

// TestSumsAreExact verifies promise P3 for scrapes: at any time, the parts add up to the node's energy, which is
// the measured energy; the number of series is bounded; and only the series of ended consumers may disappear.
func TestSumsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 10).Draw(t, "most")
		e := New(Options{Node: "n", MaxConsumers: most})
		measured, cpu, now := int64(0), time.Duration(0), time.Duration(0)
		last := map[string]float64{}
		for range rapid.IntRange(1, 40).Draw(t, "ticks") {
			now += time.Duration(rapid.IntRange(1, 3).Draw(t, "fifths")) * retain / 5
			a := energy.Attribution{
				End: now, Quality: energy.Quality(rapid.IntRange(0, 2).Draw(t, "quality")),
				Idle:     energy.Microjoules(rapid.IntRange(0, 9).Draw(t, "idle")),
				Platform: 3, Unknown: 2, Shares: drawShares(t),
			}
			a.Measured = a.Idle + a.Platform + a.Unknown
			for i := range a.Shares {
				a.Measured += a.Shares[i].Dynamic + a.Shares[i].Idle
				cpu += a.Shares[i].CPU
			}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
			measured += int64(a.Measured)
			e.Add(&a, fmt.Sprint("meter", rapid.IntRange(0, 1).Draw(t, "source")))
			if rapid.Bool().Draw(t, "names come") {
				uid := fmt.Sprint("uid", rapid.IntRange(0, 4).Draw(t, "uid"))
				e.SetNames(map[string]batch.Names{uid: {
					Namespace: "ns", Pod: "pod" + uid,
					Containers: map[string]string{"c1": "one"},
				}})
			}
			if rapid.Bool().Draw(t, "nobody scrapes") {
				continue
			}
			s := parse(t, body(e, false))
			wantConserved(t, s)
			if got := s.sum("kubenergy_node_energy_joules_total"); got != measured {
				t.Fatalf("energy of the node = %d µJ, want %d", got, measured)
			}
			seconds := []string{
				"kubenergy_container_cpu_seconds_total", "kubenergy_vm_cpu_seconds_total",
				"kubenergy_cgroup_cpu_seconds_total",
				"kubenergy_system_cpu_seconds_total", "kubenergy_other_cpu_seconds_total",
				"kubenergy_ended_cpu_seconds_total",
			}
			if got := s.sum(seconds...); got != cpu.Microseconds() {
				t.Fatalf("CPU time is %d µs, want %d", got, cpu.Microseconds())
			}
			consumers := 0
			for _, name := range seconds[:4] {
				consumers += len(s[name].GetMetric())
			}
			if consumers > most+1 || len(s["kubenergy_node_energy_joules_total"].GetMetric()) > 2*qualities {
				t.Fatalf("%d consumers have series, want at most %d", consumers, most)
			}
			for _, name := range append(slices.Clone(parts[4:]), "kubenergy_node_energy_joules_total") {
				s.each(name, func(labels map[string]string, v float64) {
					id := name + fmt.Sprint(labels)
					if v < last[id] {
						t.Fatalf("%s decreased from %v to %v", id, last[id], v)
					}
					last[id] = v
				})
			}
		}
	})
}

// TestEndedStay verifies that the final values of a consumer are exported for the retention time, and are then
// added to those of ended consumers.
func TestEndedStay(t *testing.T) {
	e := New(Options{Node: "n", MaxConsumers: 100})
	id := energy.ContainerID(uidA, cidA)
	tick := func(at time.Duration, shares ...energy.Share) {
		a := energy.Attribution{End: at, Quality: energy.Measured, Shares: shares}
		for _, s := range shares {
			a.Measured += s.Dynamic
		}
		e.Add(&a, meterName)
		wantConserved(t, parse(t, body(e, false)))
	}
	tick(10*time.Second, energy.Share{ID: id, Dynamic: 3})
	tick(11*time.Second, energy.Share{ID: id, Dynamic: 4, Ended: true})
	tick(11*time.Second+2*time.Minute-1, energy.Share{ID: energy.System, Dynamic: 1})
	s := parse(t, body(e, false))
	if got := s.sum("kubenergy_container_energy_joules_total"); got != 7 {
		t.Errorf("energy before two minutes = %d µJ", got)
	}
	tick(11*time.Second + 2*time.Minute)
	s = parse(t, body(e, false))
	if s["kubenergy_container_energy_joules_total"] != nil || s.sum("kubenergy_ended_energy_joules_total") != 7 {
		t.Errorf("after two minutes: %v, ended %d µJ", s["kubenergy_container_energy_joules_total"],
			s.sum("kubenergy_ended_energy_joules_total"))
	}
	// A group that is recreated with the same name in time continues its series, which are retained from its second
	// end.
	id = energy.CgroupID("step")
	tick(200*time.Second, energy.Share{ID: id, Dynamic: 5, Ended: true})
	tick(210*time.Second, energy.Share{ID: id, Dynamic: 6})
	tick(300*time.Second, energy.Share{ID: id, Ended: true})
	tick(330*time.Second, energy.Share{ID: energy.System})
	if s = parse(t, body(e, false)); s["kubenergy_cgroup_energy_joules_total"] == nil {
		t.Error("the recreated group was removed relative to its first end")
	}
	tick(400*time.Second, energy.Share{ID: id, Dynamic: 1})
	if got := parse(t, body(e, false)).sum("kubenergy_cgroup_energy_joules_total"); got != 12 {
		t.Errorf("energy of the recreated group = %d µJ", got)
	}
	// A consumer without updates is considered ended.
	for i := range 1280 {
		e.Add(&energy.Attribution{End: time.Duration(400+i) * time.Second}, meterName)
	}
	if s = parse(t, body(e, false)); s["kubenergy_cgroup_energy_joules_total"] != nil ||
		s.sum("kubenergy_ended_energy_joules_total") != 19 {
		t.Errorf("lost group: energy of ended consumers = %d µJ", s.sum("kubenergy_ended_energy_joules_total"))
	}
}

// TestRoom verifies which consumers get series if the limit is reached: always the system, and running consumers
// before ended ones.
func TestRoom(t *testing.T) {
	e := New(Options{Node: "n", MaxConsumers: 2})
	share := func(name string, ended bool) energy.Share {
		return energy.Share{ID: energy.VMID(name), Dynamic: 1, CPU: time.Second, Ended: ended}
	}
	names := func() string {
		var names []string
		s := parse(t, body(e, false))
		s.each("kubenergy_vm_cpu_seconds_total", func(l map[string]string, _ float64) {
			names = append(names, l["vm"])
		})
		wantConserved(t, s)
		return fmt.Sprintf("%s %d %d", strings.Join(names, " "), s.sum("kubenergy_agent_folded_consumers")/1e6,
			s.sum("kubenergy_other_energy_joules_total"))
	}
	for i, step := range []struct {
		shares []energy.Share
		want   string // names, number of folded consumers, energy of others
	}{
		{[]energy.Share{share("a", false), share("b", true), share("c", false)}, "a c 0 0"},
		{
			[]energy.Share{{ID: energy.System, Dynamic: 1}, share("a", false), share("b", false), share("c", false)},
			"a c 1 1",
		},
		{[]energy.Share{share("a", true), share("d", true)}, "a c 1 2"}, // ended consumers replace no others
		{[]energy.Share{share("b", false), share("c", false)}, "b c 0 2"},
	} {
		a := energy.Attribution{
			End: time.Duration(i) * time.Second, Shares: step.shares, Measured: energy.Microjoules(len(step.shares)),
		}
		e.Add(&a, meterName)
		if got := names(); got != step.want {
			t.Errorf("after step %d: %q, want %q", i, got, step.want)
		}
	}
	s := parse(t, body(e, false))
	s.each("kubenergy_agent_consumers", func(l map[string]string, v float64) {
		if want := map[string]float64{"living": 3, "ended": 0}[l["state"]]; v != want {
			t.Errorf("%s: %v, want %v", l["state"], v, want)
		}
	})
}

// TestUnsorted verifies that unsorted shares are handled correctly.
func TestUnsorted(t *testing.T) {
	e := New(Options{Node: "n", MaxConsumers: 100})
	for i := range 4 {
		e.Add(&energy.Attribution{End: time.Duration(i), Measured: 10, Shares: []energy.Share{
			{ID: "vm/b", Dynamic: 1}, {ID: "vm/a", Dynamic: 2}, {ID: "vm/c", Dynamic: 3}, {ID: "vm/a", Dynamic: 4},
		}}, meterName)
	}
	s := parse(t, body(e, false))
	wantConserved(t, s)
	if got := s.sum("kubenergy_vm_energy_joules_total"); got != 40 || len(e.consumers) != 3 {
		t.Errorf("%d µJ of %d consumers", got, len(e.consumers))
	}
}

func TestNames(t *testing.T) {
	e := New(Options{Node: "n", MaxConsumers: 100})
	add := func(at int, ended bool) {
		e.Add(&energy.Attribution{End: time.Duration(at) * time.Second, Measured: 2, Shares: []energy.Share{
			{ID: energy.ContainerID(uidA, ""), Dynamic: 1, Ended: ended},
			{ID: energy.ContainerID(uidA, cidA), Dynamic: 1, Ended: ended},
		}}, meterName)
	}
	series := func() map[string]string {
		names := map[string]string{}
		parse(t, body(e, false)).each("kubenergy_container_energy_joules_total", func(l map[string]string, v float64) {
			names[l["container_id"]] = fmt.Sprintf("%s/%s/%s %.6f", l["namespace"], l["pod"], l["container"], v)
		})
		return names
	}
	add(1, false)
	if got := series(); got[""] != "// 0.000001" || got[cidA] != "// 0.000001" {
		t.Errorf("without names: %q", got)
	}
	names := map[string]batch.Names{uidA: {Namespace: "ns", Pod: "p"}, uidB: {Namespace: "ns", Pod: "unheard of"}}
	e.SetNames(names)
	add(2, false)
	if got := series(); got[cidA] != "ns/p/ 0.000002" || len(got) != 2 {
		t.Errorf("with the pod's name: %q", got)
	}
	e.SetNames(map[string]batch.Names{uidA: {Namespace: "ns", Pod: "p", Containers: map[string]string{cidA: "main"}}})
	if got := series(); got[cidA] != "ns/p/main 0.000002" || got[""] != "ns/p/ 0.000002" {
		t.Errorf("with the container's name: %q", got)
	}
}

// TestNodeNamesAreLabels verifies that the node name is escaped like other labels.
func TestNodeNamesAreLabels(t *testing.T) {
	e := New(Options{Node: `a"b\c`})
	e.Add(&energy.Attribution{End: 1, Measured: 1, Unknown: 1}, meterName)
	parse(t, body(e, false)).each("kubenergy_node_unknown_joules_total", func(l map[string]string, _ float64) {
		if l["node"] != `a"b\c` {
			t.Errorf("node is %q", l["node"])
		}
	})
}

// TestSourceIsTheIntervals verifies that energy is recorded with the source passed to Add, regardless of the
// status.
func TestSourceIsTheIntervals(t *testing.T) {
	e := New(Options{Node: "n", MaxConsumers: 100})
	e.Add(&energy.Attribution{End: 1, Measured: 1, Unknown: 1}, "psys (rapl)") // before the first status
	e.SetStatus(&Status{Source: "wall (hwmon)"})
	e.Add(&energy.Attribution{End: 2, Measured: 2, Unknown: 2}, "psys (rapl)")
	e.Add(&energy.Attribution{End: 3, Unmeasured: 1}, "")
	got := map[string]float64{}
	s := parse(t, body(e, false))
	s.each("kubenergy_node_energy_joules_total", func(l map[string]string, v float64) { got[l["source"]] += v })
	s.each("kubenergy_node_info", func(l map[string]string, v float64) { got["now "+l["source"]] += v })
	if want := map[string]float64{"psys (rapl)": 3e-6, "none": 0, "now wall (hwmon)": 1}; !maps.Equal(got, want) {
		t.Errorf("energy by source is %v, want %v", got, want)
	}
}

// TestLabelsStayApart verifies that arbitrary names neither break the format nor collide.
func TestLabelsStayApart(t *testing.T) {
	long := strings.Repeat("x", 5000)
	ids := []string{
		"a\x00b", "a\x01b", "a\xffb", "a\xfeb", "a\ufffdb", long + "1", long + "2", "line\nbreak", "\u2028", `"`, `\`,
		`\"`, "é" + long, "{}", "a=b,c",
	}
	// A name that equals the exported form of another one.
	digest := sha256.Sum256([]byte(ids[0]))
	ids = append(ids, "a\ufffdb~"+hex.EncodeToString(digest[:8]))
	e := New(Options{Node: "n", MaxConsumers: 100})
	for i, id := range ids {
		e.Add(&energy.Attribution{
			End: time.Duration(i), Measured: 1, Shares: []energy.Share{{ID: energy.CgroupID(id), Dynamic: 1}},
		}, meterName)
	}
	page := body(e, false)
	s := parse(t, page)
	wantConserved(t, s)
	seen := map[string]bool{}
	s.each("kubenergy_cgroup_energy_joules_total", func(l map[string]string, _ float64) {
		seen[l["cgroup"]] = true
		if len(l["cgroup"]) > maxLabel {
			t.Errorf("a label of %d bytes", len(l["cgroup"]))
		}
	})
	if len(seen) != len(ids) {
		t.Errorf("%d labels for %d names: %v", len(seen), len(ids), seen)
	}
	for _, id := range []string{`"`, `\`, `\"`, "{}", "a=b,c", "a\ufffdb"} {
		if !seen[id] {
			t.Errorf("%q is not shown as it is", id)
		}
	}
	if !utf8.ValidString(page) || strings.ContainsFunc(page, func(r rune) bool { return isControl(r) && r != '\n' }) {
		t.Error("control characters are on the page")
	}
}

func FuzzLabels(f *testing.F) {
	f.Add("cgroup/a\x00\xff\n", "ns", "pod", "main")
	f.Add("pod/"+uidA+"/"+cidA, `n"s`, `p\`, "\n")
	f.Add("vm/"+strings.Repeat("é", 200), "", "", "")
	f.Add("pod//", "a\x7f", "\xed\xa0\x80", "{}")
	f.Fuzz(func(t *testing.T, id, namespace, pod, container string) {
		defer memtest.Limit(t, 100*(len(id)+len(namespace)+len(pod)+len(container)))()
		e := New(Options{Node: container, Version: pod, MaxConsumers: 100})
		e.SetStatus(&Status{
			Source: namespace, Idle: pod, Parent: batch.Parent{Host: namespace, VM: container},
			Meters: []MeterStatus{{Name: "of " + pod}, {Name: id}}, // with different names
		})
		ids := []string{id, energy.CgroupID(id), energy.VMID(id), energy.ContainerID(uidA, id)}
		slices.Sort(ids)
		a := energy.Attribution{End: 1}
		for _, id := range slices.Compact(ids) {
			a.Shares = append(a.Shares, energy.Share{ID: id, Dynamic: 1})
			a.Measured++
		}
		e.Add(&a, namespace)
		uid, cid, _ := energy.PodOf(id)
		e.SetNames(map[string]batch.Names{
			uid:  {Namespace: namespace, Pod: pod, Containers: map[string]string{cid: container}},
			uidA: {Namespace: pod, Pod: container},
		})
		wantConserved(t, parse(t, body(e, false)))
		if open := body(e, true); !strings.HasSuffix(open, "\n# EOF\n") ||
			strings.Count(open, "\n") != strings.Count(body(e, false), "\n")+1 {
			t.Errorf("not OpenMetrics: %q", open)
		}
	})
}
