package meter

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// exporter is another agent that exports metrics set by the test.
type exporter struct {
	*httptest.Server
	mu     sync.Mutex
	page   string
	status int
	asked  int
}

func serve(t testing.TB, page string) *exporter {
	e := &exporter{page: page, status: http.StatusOK}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.asked++
		w.WriteHeader(e.status)
		_, _ = io.WriteString(w, e.page)
	}))
	t.Cleanup(e.Close)
	return e
}

func (e *exporter) say(status int, page string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status, e.page = status, page
}

// wait waits for two more scrapes, so that the current page has been read.
func (e *exporter) wait(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	want := e.asked + 2
	e.mu.Unlock()
	kit.Eventually(t, 20*time.Second, "the page is scraped twice", func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.asked >= want
	})
}

// scraped opens a meter with a short scrape interval and a real clock.
func scraped(t testing.TB, name, url string, change func(*Config)) *Scraped {
	t.Helper()
	o := DefaultConfig()
	o.Now = sinceBoot
	o.ScrapeInterval, o.KeplerURL, o.ScaphandreURL = 5*time.Millisecond, url, url
	if change != nil {
		change(&o)
	}
	open := NewKepler
	if name == NameScaphandre {
		open = NewScaphandre
	}
	m, err := open(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func realTick() Tick { return Tick{Now: sinceBoot} }

func keplerPage(path string, start string) string {
	return fmt.Sprintf(
		"kepler_node_cpu_joules_total{node_name=\"n\",path=\"/sys/class/powercap/intel-rapl:0\",zone=\"package\"} %s\n"+
			"process_start_time_seconds %s\n", path, start)
}

func TestScrapedReadsWithoutWaiting(t *testing.T) {
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = io.WriteString(w, keplerPage("5", "1"))
	}))
	defer slow.Close()
	m, machine := scraped(t, NameKepler, slow.URL, nil), kit.WatchMachine(t)
	begin := time.Now()
	readings, err := m.Read(realTick(), nil)
	if took := time.Since(begin); took > 500*time.Millisecond {
		machine.TooSlow("Read() took %v", took)
	}
	if !errors.Is(err, errNoAnswer) || len(readings) != 0 || m.Domains() != nil {
		t.Errorf("before a response: %v, %v, %v", readings, m.Domains(), err)
	}
	close(release)
	kit.Eventually(t, 10*time.Second, "there are readings", func() bool {
		readings, err = m.Read(realTick(), nil)
		return len(readings) > 0
	})
	if len(readings) != 1 || names(m.Domains()) != "kepler-package-0" || readings[0].Quality != energy.Derived {
		t.Errorf("%v, %v, %v", readings, m.Domains(), err)
	}
	m.Close()
	nothingLeft(t)
}

// TestScrapedCloseDoesNotWait verifies that Close does not wait for a pending response.
func TestScrapedCloseDoesNotWait(t *testing.T) {
	asked, never := make(chan struct{}), make(chan struct{})
	notify := sync.OnceFunc(func() { close(asked) })
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notify()
		select {
		case <-never:
		case <-r.Context().Done():
		}
	}))
	m, machine := scraped(t, NameScaphandre, slow.URL, nil), kit.WatchMachine(t)
	<-asked
	begin := time.Now()
	m.Close()
	if took := time.Since(begin); took > time.Second {
		machine.TooSlow("closing took %v", took)
	}
	nothingLeft(t)
	close(never)
	slow.Close()
}

func TestScrapedCounts(t *testing.T) {
	e := serve(t, keplerPage("100.5", "1"))
	m := scraped(t, NameKepler, e.URL, func(c *Config) { c.Calibrate = map[string]float64{"kepler": 2} })
	e.wait(t)
	first := read(t, m, realTick())["kepler-package-0"]
	e.say(200, keplerPage("1.0175e+02", "1"))
	e.wait(t)
	second := read(t, m, realTick())["kepler-package-0"]
	if got := used(t, first, second); got != 2_500_000 {
		t.Errorf("it used %d µJ, want 2.5 J", got)
	}
	again := read(t, m, realTick())["kepler-package-0"]
	if again.Total != second.Total {
		t.Errorf("%v after %v", again, second)
	}

	// After a restart, Kepler's counter is that of the hardware, which may exceed its previous value.
	e.say(200, keplerPage("120", "2"))
	e.wait(t)
	third := read(t, m, realTick())["kepler-package-0"]
	if third.Run == second.Run {
		t.Error("same run after a restart of the other process")
	}
	e.say(200, keplerPage("7", "2"))
	e.wait(t)
	fourth := read(t, m, realTick())["kepler-package-0"]
	if fourth.Run == third.Run || fourth.Total < third.Total {
		t.Errorf("reset counter: %v after %v", fourth, third)
	}
	// An implausible increase is not counted as energy.
	e.say(200, keplerPage("1007", "2"))
	e.wait(t)
	e.say(200, keplerPage("2001007", "2"))
	e.wait(t)
	if fifth := read(t, m, realTick())["kepler-package-0"]; fifth.Total-fourth.Total > 2_000_000_000 {
		t.Errorf("implausible increase: %v after %v", fifth, fourth)
	}
}

func TestScrapedFaults(t *testing.T) {
	good := keplerPage("100", "1")
	e := serve(t, good)
	m := scraped(t, NameKepler, e.URL, nil)
	e.wait(t)
	first := read(t, m, realTick())["kepler-package-0"]
	failures := m.Failures()
	if failures != 0 {
		t.Errorf("%d failures before the first", failures)
	}
	for what, answer := range map[string]struct {
		status int
		page   string
		want   string
	}{
		"status":    {500, good, "500"},
		"empty":     {200, "", "no counter"},
		"others":    {200, "go_goroutines 5\n", "no counter"},
		"value":     {200, strings.Replace(good, "100", "NaN", 1), "value"},
		"negative":  {200, strings.Replace(good, "100", "-1", 1), "value"},
		"huge":      {200, strings.Replace(good, "100", "1e300", 1), "value"},
		"labels":    {200, strings.Replace(good, `zone="package"`, `zone="package`, 1), "labels"},
		"two nodes": {200, good + strings.ReplaceAll(good, `"n"`, `"m"`), "more than one node"},
		"twice":     {200, good + good, "twice"},
		"long":      {200, good + strings.Repeat("x", maxMetrics), "exceeds"},
	} {
		e.say(answer.status, answer.page)
		e.wait(t)
		if readings, err := m.Read(realTick(), nil); err != nil || len(readings) != 1 || readings[0] != first {
			t.Errorf("%s: got %v, %v, want the last readings", what, readings, err)
		}
		if failed := m.Failures(); failed <= failures {
			t.Errorf("%s: %d failures, before %d", what, failed, failures)
		} else {
			failures = failed
		}
		// After a long time, the energy becomes unknown.
		late := Tick{Now: func() time.Duration { return sinceBoot() + time.Minute }}
		readings, err := m.Read(late, nil)
		mustFail(t, err, answer.want, e.URL, "old")
		if len(readings) != 0 {
			t.Errorf("%s: after a minute: %v", what, readings)
		}
	}
	e.say(200, strings.ReplaceAll(good, `"package"`, `"dram"`))
	e.wait(t)
	readings, err := m.Read(realTick(), nil)
	mustFail(t, err, "kepler-package-0")
	if len(readings) != 0 || names(m.Domains()) != "kepler-package-0" {
		t.Errorf("missing domain: %v, %v", readings, m.Domains())
	}
}

func TestScrapedLeavesOutUncountedZones(t *testing.T) {
	good := keplerPage("100", "1")
	e := serve(t, good+strings.ReplaceAll(strings.ReplaceAll(good, "package", "dram"), " 100", " 0"))
	m := scraped(t, NameKepler, e.URL, nil)
	e.wait(t)
	if got := names(m.Domains()); got != "kepler-package-0" {
		t.Errorf("domains %s", got)
	}
	e = serve(t, strings.ReplaceAll(strings.ReplaceAll(good, "package", "dram"), " 100", " 0"))
	m = scraped(t, NameKepler, e.URL, nil)
	e.wait(t)
	readings, err := m.Read(realTick(), nil)
	mustFail(t, err, "no counter")
	if len(readings)+len(m.Domains()) != 0 {
		t.Errorf("got %v of %v", readings, m.Domains())
	}
}

func TestScrapedDoesNotFollow(t *testing.T) {
	other := serve(t, keplerPage("5", "1"))
	here := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer here.Close()
	m := scraped(t, NameKepler, here.URL, nil)
	var err error
	kit.Eventually(t, 10*time.Second, "there is a response", func() bool {
		_, err = m.Read(realTick(), nil)
		return !errors.Is(err, errNoAnswer)
	})
	mustFail(t, err, "302")
	other.mu.Lock()
	defer other.mu.Unlock()
	if other.asked > 0 {
		t.Errorf("another host got %d requests", other.asked)
	}
}

func TestScrapedDoesNotBelieveAStoppedCounter(t *testing.T) {
	at := 1000 * time.Second
	m := &Scraped{name: "x", stale: staleAfter, scale: func(energy.Domain) int64 { return 1_000_000 }}
	packages, dram := numbered(energy.Package, "x-", 0), numbered(energy.DRAM, "x-", 0)
	for i := range 30 {
		at += time.Second
		m.answer = page{at: at, series: []series{{packages, 5}, {dram, 7}}}
		readings, err := m.Read(Tick{Now: func() time.Duration { return at }}, nil)
		if want := 2 - i/16; len(readings) != max(want, 1) || (err == nil) != (want == 2) {
			t.Fatalf("second %d: %v, %v", i, readings, err)
		}
		if readings[0].Domain == packages && readings[0].At != 1001*time.Second {
			t.Fatalf("second %d: reading has time %v", i, readings[0].At)
		}
	}
}

// nothingLeft verifies that no goroutine of a closed meter or of its connections is running.
func nothingLeft(t testing.TB) {
	t.Helper()
	kit.Await(t, 10*time.Second, "no goroutines are left after Close", func(context.Context) (bool, error) {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		left := strings.Contains(stacks, "(*Scraped).poll") || strings.Contains(stacks, "(*persistConn)")
		return !left, errors.New(stacks)
	})
}

// shared returns a recorded page.
func shared(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(filepath.FromSlash("../../../../shared/data/api"), name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("shared data not found: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func pageOf(t testing.TB, read func(io.Reader) (page, error), text string) map[string]uint64 {
	t.Helper()
	p, err := read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]uint64{}
	for _, s := range p.series {
		got[s.domain.Name] = s.raw
	}
	return got
}

func want(t testing.TB, got, want map[string]uint64) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func fixture(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKeplerPage(t *testing.T) {
	got := pageOf(t, readKepler, fixture(t, "kepler/new.prom"))
	want(t, got, map[string]uint64{
		"kepler-package-0": 12345678901, "kepler-core-0": 4000500000, "kepler-psys": 240422366267,
	})

	two := strings.ReplaceAll(`K{path="/a/intel-rapl:0",zone="package"} 1
K{path="/a/intel-rapl:1",zone="package"} 2
K{path="/a/intel-rapl:0:0",zone="dram"} 3
K{path="/a/intel-rapl:1:0",zone="dram-1"} 4
K{path="",zone="nonsense"} 5
`, "K{", keplerNew+"{")
	want(t, pageOf(t, readKepler, two), map[string]uint64{
		"kepler-package-0": 1e6, "kepler-package-1": 2e6, "kepler-dram-0": 3e6, "kepler-dram-1": 4e6,
	})
	for bad, why := range map[string]string{
		keplerNew + `{path="/a/intel-rapl:0",zone="package"} 1` + "\n" + keplerNew +
			`{path="/b/intel-rapl:0",zone="package"} 1` + "\n": "twice",
		`kepler_node_package_joules_total{package="0",mode="dynamic"} 1` +
			"\n": "modes",
		`kepler_node_package_joules_total{package="x",mode="dynamic"} 1` + "\n" +
			`kepler_node_package_joules_total{package="x",mode="idle"} 1` + "\n": "number",
	} {
		p, err := readKepler(strings.NewReader(bad + `kepler_node_dram_joules_total{package="0"} 3` + "\n"))
		if err != nil {
			t.Fatal(err)
		}
		mustFail(t, p.invalid, why)
	}
}

// TestScrapedSkipsInvalidSamples verifies that an invalid sample only delays its own counter.
func TestScrapedSkipsInvalidSamples(t *testing.T) {
	line := func(zone, path, value string) string {
		return fmt.Sprintf("%s{node_name=\"n\",path=\"/p/intel-rapl:%s\",zone=\"%s\"} %s\n", keplerNew, path, zone,
			value)
	}
	page := func(first, second, dram string) string {
		return line("package", "0", first) + line("package", "1", second) + line("dram", "0:0", dram) +
			line("nonsense", "5", "NaN")
	}
	e := serve(t, page("100", "200", "NaN"))
	m := scraped(t, NameKepler, e.URL, nil)
	e.wait(t)
	first := read(t, m, realTick())
	if got := names(m.Domains()); got != "kepler-package-0 kepler-package-1" || m.Failures() == 0 {
		t.Fatalf("domains %s, %d failures, want the packages and failures", got, m.Failures())
	}
	for _, second := range []string{"NaN", "", "-3", "201x"} {
		e.say(200, page("101", second, "5"))
		e.wait(t)
		got := read(t, m, realTick())
		if used(t, first["kepler-package-0"], got["kepler-package-0"]) != 1e6 ||
			got["kepler-package-1"] != first["kepler-package-1"] {
			t.Errorf("second package %q: %v, want the last reading of it and 1 J of the first", second, got)
		}
	}
	e.say(200, page("102", "203", "5"))
	e.wait(t)
	if got := read(t, m, realTick()); used(t, first["kepler-package-1"], got["kepler-package-1"]) != 3e6 {
		t.Errorf("after invalid samples: %v, want 3 J", got)
	}
	// The packages are not used if one of them is invalid in the first response.
	e = serve(t, page("100", "NaN", "5"))
	m = scraped(t, NameKepler, e.URL, nil)
	e.wait(t)
	if got := names(m.Domains()); got != "kepler-dram-0" {
		t.Errorf("domains %s, want no package", got)
	}
	// An invalid counter is unknown when its last reading is too old.
	at := 1000 * time.Second
	m = &Scraped{name: "x", stale: staleAfter, scale: func(energy.Domain) int64 { return 1_000_000 }}
	for i := range 20 {
		p := responseOf(at, i > 0)
		m.answer, at = p, at+time.Second
		readings, _ := m.Read(Tick{Now: func() time.Duration { return p.at }}, nil)
		if want := i <= 15; (len(readings) == 1) != want {
			t.Fatalf("second %d: %v", i, readings)
		}
	}
}

// responseOf returns a response with a counter, or with only an invalid sample of it.
func responseOf(at time.Duration, invalid bool) page {
	p := page{at: at, series: []series{{numbered(energy.Package, "x-", 0), 5}}}
	if invalid {
		p.series = nil
		p.reject(errValue, energy.Package, true)
	}
	return p
}

// TestKeplerPageOfBefore parses a page of Kepler 0.6 on a machine with ACPI, two packages and no core counters,
// created from recorded samples.
func TestKeplerPageOfBefore(t *testing.T) {
	r, err := gzip.NewReader(strings.NewReader(string(shared(t, "kepler_prometheus_range_responses_idle.json.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	var ranges map[string][]struct {
		Metric map[string]string `json:"metric"`
		Values [][2]any          `json:"values"`
	}
	if err := json.NewDecoder(r).Decode(&ranges); err != nil {
		t.Fatal(err)
	}
	at := func(i int) string {
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(ranges)) {
			for _, s := range ranges[name] {
				text.WriteString(name + "{")
				for _, l := range slices.Sorted(maps.Keys(s.Metric)) {
					if l != "__name__" {
						fmt.Fprintf(&text, "%s=%q,", l, s.Metric[l])
					}
				}
				if i < len(s.Values) {
					fmt.Fprintf(&text, "} %s\n", s.Values[i][1])
				}
			}
		}
		return text.String()
	}
	first, second := pageOf(t, readKepler, at(0)), pageOf(t, readKepler, at(1))
	want(t, first, map[string]uint64{
		"kepler-wall": 34626_000_000, "kepler-package-0": 7150_525_000 + 14762_883_000,
		"kepler-package-1": 7326_768_000 + 14810_746_000,
		"kepler-dram-0":    2980_770_000 + 6183_124_000, "kepler-dram-1": 3097_013_000 + 6357_637_000,
	})
	watts := float64(second["kepler-wall"]-first["kepler-wall"]) / 1e6 / 15
	if watts < 50 || watts > 500 {
		t.Errorf("the machine drew %v W", watts)
	}
	for name := range first {
		if second[name] < first[name] {
			t.Errorf("%s decreased", name)
		}
	}
}

func TestScaphandrePage(t *testing.T) {
	text := fixture(t, "scaphandre/two-sockets.prom")
	got := pageOf(t, readScaphandre, text)
	want(t, got, map[string]uint64{
		"scaphandre-package-0": 43038699818, "scaphandre-package-1": 246521945562,
		"scaphandre-dram-0": 7243356492, "scaphandre-dram-1": 49920589217,
	})
	sum := uint64(0)
	for _, v := range got {
		sum += v
	}
	if host := uint64(346724036257); math.Abs(float64(sum)-float64(host)) > 1e6 {
		t.Errorf("sum of sockets and DRAM = %d, want the host's %d", sum, host)
	}
	got = pageOf(t, readScaphandre, text+"scaph_host_rapl_psys_microjoules 5\n")
	if got["scaphandre-psys"] != 5 || len(got) != 5 {
		t.Errorf("with psys: %v", got)
	}
	want(t, pageOf(t, readScaphandre, "scaph_host_energy_microjoules_total "+
		"7\nscaph_domain_energy_microjoules{domain_name=\"dram\",socket_id=\"0\"} 1\n"),
		map[string]uint64{"scaphandre-host": 7}) // includes the DRAM
	want(t, pageOf(t, readScaphandre, string(shared(t, "scaphandre_metrics_constructed.prom"))),
		map[string]uint64{"scaphandre-host": 240422366267})
}

func TestScaphandreFactor(t *testing.T) {
	for factor, want := range map[float64]energy.Microjoules{0: 1_000_000, 5: 5_000_000} {
		e := serve(t, "scaph_host_energy_microjoules 1000000\n")
		m := scraped(t, NameScaphandre, e.URL, func(c *Config) { c.ScaphandreFactor = factor })
		e.wait(t)
		first := read(t, m, realTick())[scaphandreHost]
		e.say(200, "scaph_host_energy_microjoules 2000000\n")
		e.wait(t)
		if got := used(t, first, read(t, m, realTick())[scaphandreHost]); got != want {
			t.Errorf("factor %v: %d µJ, want %d", factor, got, want)
		}
	}
}

func TestEachSample(t *testing.T) {
	text := "# HELP a b\na 1\n" + strings.Repeat("long", maxLine) +
		"\na{x=\"1\",y=\"q\\\"\\\\\\n}\"} 2 1700000000\na {} 3\nb 9\n\n \na" + "\r 4\nabc 5\na{,} +Inf\n" +
		"a{x=\"b\"} 7\na{x=\"b} 7\na{x=\"b\"}\na 6"
	var got []string
	err := eachSample(strings.NewReader(text), func(name string) bool { return name == "a" },
		func(s *sample) error {
			got = append(got, fmt.Sprintf("%s %q %q %s", s.name, s.labels["x"], s.labels["y"], s.value))
			if s.value == "7" {
				return errValue
			}
			return nil
		}, func(s *sample, err error) { got = append(got, fmt.Sprint("invalid ", s.labels["x"], ": ", err)) })
	want := []string{`a "" "" 1`, `a "1" "q\"\\\n}" 2`, `a "" "" 3`, `a "" "" +Inf`, `a "b" "" 7`,
		`invalid b: parsing "a": invalid value`, `invalid : parsing "a": invalid labels`,
		`invalid b: parsing "a": invalid value`} // the last line may be truncated
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("have %q, %v, want %q", got, err, want)
	}
}

func TestMicrojoules(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "1": 1e6, "12345.678901": 12345678901, "2.40422366267e+05": 240422366267, "1e-7": 0,
		"900000000.000001": 900000000000001,
	} {
		s := sample{value: text}
		if v, err := s.microjoules(1e6); err != nil || v != want {
			t.Errorf("%s J are %d µJ, %v, want %d", text, v, err, want)
		}
	}
	for _, text := range []string{"", "NaN", "-1", "+Inf", "1e13", "x"} {
		s := sample{value: text}
		if v, err := s.microjoules(1e6); err == nil {
			t.Errorf("%s J are %d µJ, want an error", text, v)
		}
	}
	s := sample{value: "9007199254740993"} // exceeds the precision of float64
	if v, err := s.microjoules(1); err != nil || v != 9007199254740993 {
		t.Errorf("%d, %v", v, err)
	}
}

func FuzzMetrics(f *testing.F) {
	for _, name := range []string{"kepler/new.prom", "scaphandre/two-sockets.prom", "dcgm/mig.prom"} {
		f.Add([]byte(fixture(f, name)))
	}
	f.Add([]byte("kepler_node_package_joules_total{package=\"0\",mode=\"dynamic\"} " +
		"1\nkepler_node_package_joules_total{mode=\"idle\",package=\"0\"} 1e3\n"))
	f.Add([]byte("scaph_host_energy_microjoules{a=\"\\\\\\\"\"} 1 2\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		for _, read := range []func(io.Reader) (page, error){readKepler, readScaphandre, readDCGM} {
			p, err := read(strings.NewReader(string(text)))
			if err != nil {
				continue
			}
			seen := map[energy.Domain]bool{}
			for _, s := range p.series {
				if seen[s.domain] || s.raw > math.MaxInt64 || !domainName.MatchString(s.domain.Name) {
					t.Errorf("%+v of %q", s, text)
				}
				seen[s.domain] = true
			}
		}
	})
}

func BenchmarkKeplerPage(b *testing.B) {
	var text strings.Builder
	text.WriteString(fixture(b, "kepler/new.prom"))
	for i := range 2000 { // a node with 500 containers
		fmt.Fprintf(&text,
			"kepler_container_cpu_joules_total{container_id=\"%064d\",container_name=\"c\",node_name=\"n1\",pod_id=\"%036d\",zone=\"package\"} 12.5\n", i, i)
	}
	page := text.String()
	b.SetBytes(int64(len(page)))
	b.ReportAllocs()
	for b.Loop() {
		if p, err := readKepler(strings.NewReader(page)); err != nil || len(p.series) != 3 {
			b.Fatal(p, err)
		}
	}
}

// TestAPageThatPanics verifies that a panic while parsing a page counts as a failure, and that a meter may panic
// too.
func TestAPageThatPanics(t *testing.T) {
	planted := newScraped(Config{Now: func() time.Duration { return time.Minute }, ScrapeInterval: time.Millisecond}, "planted",
		serve(t, "").URL, func(io.Reader) (page, error) { panic("planted") }, nil, slog.New(slog.DiscardHandler))
	kit.Eventually(t, 20*time.Second, "reading has failed twice", func() bool { return planted.Failures() >= 2 })
	if _, err := planted.Read(realTick(), nil); err == nil || !strings.Contains(err.Error(), "panic: ") {
		t.Errorf("%d failures, error %v", planted.Failures(), err)
	}
	planted.Close()
	before := []energy.Reading{{Total: 1}}
	if all, err := ReadSafely(nil, realTick(), before); err == nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
