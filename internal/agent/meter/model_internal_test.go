package meter

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func openModel(t testing.TB, c *clock, change func(*Config)) *Model {
	t.Helper()
	o := c.config()
	if change != nil {
		change(&o)
	}
	m, err := NewModel(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// busy returns a tick of a node with 4 CPUs.
func (c *clock) busy(cpu time.Duration) Tick { return Tick{Now: c.Now, Busy: cpu, CPUs: 4} }

func TestModelFollowsTheProfile(t *testing.T) {
	c := newClock()
	m := openModel(t, c, func(o *Config) { o.Profile = "testdata/model/r7525.json" })
	cpu := time.Hour
	first := read(t, m, c.busy(cpu))[NameModel]
	if first.Quality != energy.Estimated {
		t.Errorf("quality = %v, want estimated", first.Quality)
	}
	last := first
	for _, test := range []struct {
		utilisation float64
		want        energy.Watts
	}{{0, 140}, {0.25, 200}, {0.5, 260}, {0.75, 325}, {1, 390}, {1.2, 390}} {
		cpu += time.Duration(test.utilisation * 4 * float64(10*time.Second))
		c.after(10 * time.Second)
		now := read(t, m, c.busy(cpu))[NameModel]
		if got := used(t, last, now); math.Abs(got.Joules().KWh()-test.want.For(10*time.Second).KWh()) > 1e-12 {
			t.Errorf("at %v: %d µJ in 10 s, want %v W", test.utilisation, got, test.want)
		}
		last = now
	}
	// In small steps, no energy is lost, because fractions of a microjoule are carried over.
	for range 20_000 {
		cpu += 4 * 259_259
		c.after(777_777)
		last = read(t, m, c.busy(cpu))[NameModel]
	}
	begin := energy.Joules((140 + 200 + 260 + 325 + 390 + 390) * 10)
	if got, want := used(t, first, last).Joules(),
		begin+energy.Watts(220).For(20_000*777_777); math.Abs(float64(got-want)) > 0.001 {
		t.Errorf("total = %v, want %v", got, want)
	}
}

func TestModelIsOfWhenTheCPUTimesWereRead(t *testing.T) {
	c := newClock()
	m := openModel(t, c, nil)
	tick := c.busy(time.Hour)
	tick.At = c.now - 3*time.Millisecond
	if got := read(t, m, tick)[NameModel].At; got != tick.At {
		t.Errorf("At = %v, want %v", got, tick.At)
	}
}

func TestModelDoesNotGuess(t *testing.T) {
	c := newClock()
	m := openModel(t, c, nil)
	for _, tick := range []Tick{
		{Now: c.Now},
		{Now: c.Now, CPUs: 4},
		{Now: c.Now, Busy: time.Hour},
		{Now: c.Now, Busy: time.Hour, CPUs: math.NaN()},
	} {
		readings, err := m.Read(tick, nil)
		mustFail(t, err, "CPU time")
		if len(readings) != 0 {
			t.Errorf("got %v, want nothing", readings)
		}
	}
	first := read(t, m, c.busy(time.Hour))[NameModel]
	c.after(time.Second)
	fallen := read(t, m, c.busy(time.Minute))[NameModel]
	if fallen.Run == first.Run {
		t.Error("same run after CPU time decreased")
	}
	c.after(time.Hour)
	if late := read(t, m, c.busy(2*time.Minute))[NameModel]; late.Run == fallen.Run || late.Total != fallen.Total {
		t.Errorf("after an hour's sleep: %v", late)
	}
}

func TestModelGoesOnAfterARestart(t *testing.T) {
	c := newClock()
	m := openModel(t, c, nil)
	first := read(t, m, c.busy(time.Hour))[NameModel]
	again := openModel(t, c, nil)
	again.Resume([]energy.Reading{first})
	c.after(20 * time.Second)
	now := read(t, again, c.busy(time.Hour+40*time.Second))[NameModel] // 50 % of 4 CPUs
	want := 4 * (typicalIdle + typicalFull) / 2
	if got := used(t, first, now).Joules(); math.Abs(float64(got-want.For(20*time.Second))) > 1e-5 {
		t.Errorf("used %v across the restart, want %v", got, want.For(20*time.Second))
	}
}

// TestTypicalProfileIsThatOfTheCoefficients verifies that the typical profile is the median of the published
// coefficients. For each architecture, the first cloud is used.
func TestTypicalProfileIsThatOfTheCoefficients(t *testing.T) {
	seen, columns := map[string]bool{}, [2][]float64{}
	for _, cloud := range []string{"aws", "gcp", "azure"} {
		f, err := os.Open("../../../../shared/data/power/ccf/coefficients-" + cloud + "-use.csv")
		if err != nil {
			t.Skip("shared data directory not found: ", err)
		}
		defer f.Close()
		rows, err := csv.NewReader(f).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows[1:] {
			if name := row[1]; !seen[name] && !strings.Contains(name, "Graviton") && name != "EPYC 5th Gen" {
				seen[name] = true
				for i := range columns {
					v, err := strconv.ParseFloat(row[2+i], 64)
					if err != nil {
						t.Fatal(err)
					}
					columns[i] = append(columns[i], v)
				}
			}
		}
	}
	for i, want := range []energy.Watts{typicalIdle, typicalFull} {
		if len(columns[i]) != 15 {
			t.Fatalf("got %d architectures, want 15: %v", len(columns[i]), seen)
		}
		slices.Sort(columns[i])
		if got := energy.Watts(columns[i][7]); math.Abs(float64(got-want)) > 1e-4 {
			t.Errorf("median %v, got %v", got, want)
		}
	}
}

func TestTypicalProfile(t *testing.T) {
	p := TypicalProfile(64)
	if err := p.Validate(); err != nil || p.Power(0) != 64*typicalIdle || p.Source == "" ||
		p.Quality != energy.Estimated {
		t.Errorf("%+v: %v", p, err)
	}
}

func TestReadProfile(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"empty": "", "trailing": `{"name":"a","idleWatts":5,"maxWatts":9} x`, "unknown": `{"idle":5}`,
		"zero":     `{"name":"z"}`,
		"negative": `{"idleWatts":-5,"maxWatts":9}`, "upside down": `{"idleWatts":9,"maxWatts":5}`,
	} {
		path := filepath.Join(dir, name)
		put(t, path, content)
		if p, err := ReadProfile(path); err == nil {
			t.Errorf("%s: %+v, want an error", name, p)
		}
	}
	_, err := ReadProfile(filepath.Join(dir, "missing"))
	mustFail(t, err, "missing")
	if _, err := ReadProfile(dir); err == nil {
		t.Error("read a directory as a profile")
	}
	pipe, huge := filepath.Join(dir, "pipe"), filepath.Join(dir, "huge")
	put(t, huge, "")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, huge} {
		began := time.Now()
		if _, err := ReadProfile(path); err == nil || time.Since(began) > time.Minute {
			t.Errorf("%s: %v after %v", path, err, time.Since(began))
		}
	}
}

func FuzzProfile(f *testing.F) {
	f.Add([]byte(`{"name":"a","idleWatts":50,"maxWatts":200,"exponent":1.4}`), 0.5)
	f.Add([]byte(`{"name":"a","curve":[{"utilisation":0,"watts":140},{"utilisation":1,"watts":390}]}`), 1.5)
	f.Fuzz(func(t *testing.T, text []byte, u float64) {
		defer memtest.Limit(t, 100*len(text))()
		p := &energy.Profile{}
		if json.Unmarshal(text, p) != nil {
			return
		}
		if w := p.Power(u); !(w >= 0 && w <= 1e6) {
			t.Errorf("%q: %v W at %v", text, w, u)
		}
	})
}

func BenchmarkModelRead(b *testing.B) {
	m, err := NewModel(DefaultConfig(), quiet())
	if err != nil {
		b.Fatal(err)
	}
	t := Tick{Now: sinceBoot, Busy: time.Hour, CPUs: 8}
	var into []energy.Reading
	b.ReportAllocs()
	for b.Loop() {
		t.Busy += time.Microsecond
		into, _ = m.Read(t, into[:0])
	}
}
