package meter

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// guestTree is the directory that a host shares with the machine.
type guestTree struct {
	t    *testing.T
	c    *clock
	dir  string
	file string
}

func shareTree(t *testing.T, tree string) *guestTree {
	dir := plant(t, "guest/"+tree+".tree")
	return &guestTree{t: t, c: newClock(), dir: dir, file: filepath.Join(dir, guestEnergy)}
}

// open opens a meter with a wall clock that is derived from the fake clock.
func (g *guestTree) open(change func(*Config)) *Guest {
	g.t.Helper()
	o := g.c.config()
	o.GuestDir = g.dir
	if change != nil {
		change(&o)
	}
	m, err := NewGuest(o, quiet())
	if err != nil {
		g.t.Fatal(err)
	}
	m.wall = g.wall
	return m
}

func (g *guestTree) wall() time.Time { return time.Unix(1_700_000_000, 0).Add(g.c.now) }

// write overwrites the file in place, as Scaphandre does, with a modification time of age ago.
func (g *guestTree) write(content string, age time.Duration) {
	g.t.Helper()
	put(g.t, g.file, content)
	g.stamp(age)
}

func (g *guestTree) stamp(age time.Duration) {
	g.t.Helper()
	if err := os.Chtimes(g.file, time.Time{}, g.wall().Add(-age)); err != nil {
		g.t.Fatal(err)
	}
}

// publish replaces the file by a rename, as the KubEnergy agent does.
func (g *guestTree) publish(content string, age time.Duration) {
	g.t.Helper()
	put(g.t, g.file+".new", content)
	if err := os.Rename(g.file+".new", g.file); err != nil {
		g.t.Fatal(err)
	}
	g.stamp(age)
}

// TestGuestReadsTheFileThatIsThere verifies that a replaced file is read, which would fail with a descriptor that
// is kept open.
func TestGuestReadsTheFileThatIsThere(t *testing.T) {
	g := shareTree(t, "kubenergy")
	g.stamp(0)
	m := g.open(nil)
	first := read(t, m, g.c.tick())[NameGuest]
	last := first
	for i := 1; i <= 100; i++ {
		g.c.after(time.Second)
		g.publish(strconv.Itoa(123456789+i*10_000_000)+"\n", 0)
		last = read(t, m, g.c.tick())[NameGuest]
		if got := used(t, first, last); got != energy.Microjoules(i*10_000_000) {
			t.Fatalf("after %d s it used %d µJ", i, got)
		}
		if last.At != g.c.now {
			t.Fatalf("At = %v, want %v", last.At, g.c.now)
		}
	}
	if last.Quality != energy.Derived {
		t.Errorf("quality = %v, want derived", last.Quality)
	}
	if got, want := m.parent, (batch.Parent{Host: "hv-7", VM: "web-1"}); got != want {
		t.Errorf("parent %v, want %v", got, want)
	}
	if got := ParentOf([]Meter{&Model{}, m}); got.VM != "web-1" {
		t.Errorf("parent %v", got)
	}
}

// TestGuestOfScaphandre simulates its qemu exporter, which adds the power in microwatts to the energy in
// microjoules once per iteration of 5 s. 50 W appear as 10 W, unless a factor is configured.
func TestGuestOfScaphandre(t *testing.T) {
	for factor, want := range map[float64]float64{0: 10, 5: 50, 7: 70} {
		g := shareTree(t, "scaphandre")
		g.stamp(0)
		m := g.open(func(c *Config) { c.ScaphandreFactor = factor })
		if m.parent != (batch.Parent{}) {
			t.Errorf("parent = %v, want none", m.parent)
		}
		first := read(t, m, g.c.tick())[NameGuest]
		raw, last := int64(123456789), first
		for i := 1; i <= 600; i++ {
			g.c.after(time.Second)
			if i%5 == 0 {
				raw += 50_000_000
				g.write("", 0) // Scaphandre first truncates the file
				if got := read(t, m, g.c.tick())[NameGuest]; got != last {
					t.Fatalf("reading of an empty file = %v, want %v", got, last)
				}
				g.write(strconv.FormatInt(raw, 10), 0)
			}
			now := read(t, m, g.c.tick())[NameGuest]
			if advanced := now.At > last.At; advanced != (i%5 == 0) {
				t.Fatalf("second %d: it advanced: %v", i, advanced)
			}
			last = now
		}
		if got := used(t, first, last).Joules() / 600; float64(got) != want {
			t.Errorf("factor %v: %v W, want %v", factor, got, want)
		}
	}
}

// TestGuestFactorIsNotForOurs verifies that the factor is applied only to Scaphandre's counters, even if the
// KubEnergy agent starts later.
func TestGuestFactorIsNotForOurs(t *testing.T) {
	g := shareTree(t, "kubenergy")
	info := filepath.Join(g.dir, guestInfo)
	text, err := os.ReadFile(info)
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []bool{false, true} {
		if late {
			if err := os.Remove(info); err != nil {
				t.Fatal(err)
			}
		}
		m := g.open(func(c *Config) { c.ScaphandreFactor = 5 })
		if late {
			put(t, info, string(text))
			_ = read(t, m, g.c.tick())
			g.c.after(time.Minute)
			g.write("200000000", 0)
			_ = read(t, m, g.c.tick())
		}
		a := read(t, m, g.c.tick())[NameGuest]
		g.c.after(time.Second)
		g.write(strconv.Itoa(int(a.Raw)+1_000_000), 0)
		if got := used(t, a, read(t, m, g.c.tick())[NameGuest]); got != 1_000_000 {
			t.Errorf("late: %v: it used %d µJ, want 1 J", late, got)
		}
	}
}

func TestGuestStaleIsUnknownAndNotZero(t *testing.T) {
	g := shareTree(t, "kubenergy")
	g.stamp(0)
	m := g.open(nil)
	first := read(t, m, g.c.tick())[NameGuest]
	for range 15 {
		if now := read(t, m, g.c.after(time.Second))[NameGuest]; now != first {
			t.Fatalf("reading = %v, want the last one: %v", now, first)
		}
	}
	readings, err := m.Read(g.c.after(time.Second), nil)
	mustFail(t, err, "not written by the host for 16s")
	if len(readings) != 0 {
		t.Errorf("got %v, want no readings", readings)
	}
	g.c.after(44 * time.Second)
	g.publish("723456789", 0)
	if got := used(t, first, read(t, m, g.c.tick())[NameGuest]); got != 600_000_000 {
		t.Errorf("used %d µJ while the host was away, want 600 J", got)
	}
	// A host that repeatedly writes the same value reports that no energy was used.
	last := read(t, m, g.c.tick())[NameGuest]
	for range 20 {
		g.c.after(time.Second)
		g.publish("723456789", 0)
		last = read(t, m, g.c.tick())[NameGuest]
	}
	if last.At < g.c.now-5*time.Second || last.Total != 600_000_000+first.Total {
		t.Errorf("reading after 20 s without energy = %v", last)
	}
	// Without the file, the energy eventually becomes unknown, and the error contains the reason.
	if err := os.Remove(g.file); err != nil {
		t.Fatal(err)
	}
	g.c.after(20 * time.Second)
	readings, err = m.Read(g.c.tick(), nil)
	mustFail(t, err, "no such file")
	if len(readings) != 0 {
		t.Errorf("got %v, want no readings", readings)
	}
}

func TestGuestBeforeTheHost(t *testing.T) {
	g := shareTree(t, "kubenergy")
	text, err := os.ReadFile(filepath.Join(g.dir, guestInfo))
	if err != nil {
		t.Fatal(err)
	}
	g.dir = t.TempDir()
	g.file = filepath.Join(g.dir, guestEnergy)
	m := g.open(nil)
	readings, err := m.Read(g.c.tick(), nil)
	mustFail(t, err, "waiting for the host")
	if len(readings) != 0 || m.parent != (batch.Parent{}) || GuestTree(g.dir) {
		t.Errorf("got %v, parent %v", readings, m.parent)
	}
	put(t, filepath.Join(g.dir, guestInfo), string(text))
	g.write("5", 0)
	if !GuestTree(g.dir) {
		t.Error("GuestTree() = false, want true")
	}
	if got := read(t, m, g.c.after(20*time.Second))[NameGuest]; got.Raw != 5 || m.parent == (batch.Parent{}) {
		t.Errorf("got %v, parent %v", got, m.parent)
	}
}

func TestGuestTimes(t *testing.T) {
	g := shareTree(t, "kubenergy")
	g.stamp(0)
	m := g.open(nil)
	_ = read(t, m, g.c.tick())
	for i, test := range []struct{ age, want time.Duration }{
		{300 * time.Millisecond, 300 * time.Millisecond}, // in the past
		{-time.Hour, 0},          // the host's clock is ahead
		{time.Hour, time.Second}, // behind, but not before the last reading
	} {
		g.c.after(time.Second)
		g.publish(strconv.Itoa(200_000_000+i*1_000_000), test.age)
		if got := g.c.now - read(t, m, g.c.tick())[NameGuest].At; got != test.want {
			t.Errorf("written %v ago: age = %v, want %v", test.age, got, test.want)
		}
	}
}

func TestGuestReset(t *testing.T) {
	g := shareTree(t, "scaphandre")
	m := g.open(nil)
	first := read(t, m, g.c.tick())[NameGuest]
	// A partially written number is not a reset.
	g.c.after(time.Second)
	g.write("1234", 0)
	if now := read(t, m, g.c.tick())[NameGuest]; now != first {
		t.Errorf("reading after a partial write = %v, want %v", now, first)
	}
	g.write("124456789", 0)
	now := read(t, m, g.c.after(time.Second))[NameGuest]
	if got := used(t, first, now); got != 1_000_000 {
		t.Errorf("it used %d µJ, want 1 J", got)
	}
	// Three of them are a reset, if each was written.
	g.write("1000", 0)
	for range 5 {
		_ = read(t, m, g.c.after(time.Second))
	}
	g.write("1000000", 0)
	_ = read(t, m, g.c.after(time.Second))
	g.write("2000000", 0)
	again := read(t, m, g.c.after(time.Second))[NameGuest]
	if again.Run == now.Run || again.Total < now.Total {
		t.Errorf("reset counter: %v after %v", again, now)
	}
	g.write("3000000", 0)
	if got := used(t, again, read(t, m, g.c.after(time.Second))[NameGuest]); got != 1_000_000 {
		t.Errorf("afterwards it used %d µJ, want 1 J", got)
	}
	g.write("125000000", 0) // exceeds the previous maximum, so the three values may have been partially written
	if now := read(t, m, g.c.after(time.Second))[NameGuest]; now.Run == again.Run {
		t.Errorf("counted the jump to the previous maximum: %v", now)
	}
	for _, content := range []string{"x", "-1", "1.5", "12 ", strings.Repeat("7", 100), "99999999999999999999"} {
		g.write(content, 0)
		readings, err := m.Read(g.c.after(time.Second), nil)
		mustFail(t, err, g.file)
		if len(readings) != 1 { // the last reading remains valid
			t.Errorf("%.20q: got %v", content, readings)
		}
	}
}

func TestGuestResume(t *testing.T) {
	g := shareTree(t, "kubenergy")
	m := g.open(nil)
	first := read(t, m, g.c.tick())
	g.c.after(30 * time.Second)
	g.publish("223456789", 0)
	again := g.open(nil)
	again.Resume([]energy.Reading{{Domain: energy.Domain{Kind: energy.Psys, Name: "psys"}}, first[NameGuest]})
	if got := used(t, first[NameGuest], read(t, again, g.c.tick())[NameGuest]); got != 100_000_000 {
		t.Errorf("used %d µJ across the restart, want 100 J", got)
	}
	// The host may have restarted in the meantime as well.
	g.c.after(time.Second)
	g.publish("5", 0)
	late := g.open(nil)
	late.Resume([]energy.Reading{first[NameGuest]})
	if _, err := late.Read(g.c.tick(), nil); err != nil {
		t.Error(err)
	}
	g.publish("6", 0)
	_ = read(t, late, g.c.after(time.Second))
	g.publish("7", 0)
	if got := read(t, late, g.c.after(time.Second))[NameGuest]; got.Run == first[NameGuest].Run {
		t.Errorf("same run after a reset: %v", got)
	}
}

// TestGuestMoves migrates a machine to another host with a counter that is lower, or higher by a plausible amount.
func TestGuestMoves(t *testing.T) {
	for i, far := range []int64{100_000_000_000, -100_000_000, 5_000_000} {
		g := shareTree(t, "kubenergy")
		m := g.open(nil)
		g.publish("200000000", 0)
		_ = read(t, m, g.c.tick())
		g.c.after(time.Second)
		g.publish("210000000", 0)
		before := read(t, m, g.c.tick())[NameGuest]

		name := []string{
			`{"host":"hv-8","vm":"web-1","version":1}`, `{"host":"hv-7","vm":"web-2","version":1}`,
			`{"host":"hv-9","vm":"x","version":1}`,
		}[i]
		put(t, filepath.Join(g.dir, guestInfo), name)
		raw := 210_000_000 + far
		g.c.after(time.Second)
		g.publish(strconv.FormatInt(raw, 10), 0)
		after := read(t, m, g.c.tick())[NameGuest]
		if after.Run == before.Run || after.Total != before.Total || after.Raw != uint64(raw) {
			t.Errorf("%s: %v after %v", name, after, before)
		}
		g.c.after(time.Second)
		g.publish(strconv.FormatInt(raw+7_000_000, 10), 0)
		if got := used(t, after, read(t, m, g.c.tick())[NameGuest]); got != 7_000_000 {
			t.Errorf("%s: then it used %d µJ", name, got)
		}
		if p := m.parent; !strings.Contains(name, p.Host) || !strings.Contains(name, p.VM) {
			t.Errorf("parent %v, want that of %s", p, name)
		}
	}
}

// TestGuestMovesWhileItIsRead migrates the machine between reading the counter and the name of the host.
func TestGuestMovesWhileItIsRead(t *testing.T) {
	g := shareTree(t, "kubenergy")
	m := g.open(nil)
	g.publish("200000000", 0)
	before := read(t, m, g.c.tick())[NameGuest]
	g.c.after(time.Second)
	g.publish("210000000", 0)
	sys := realCalls
	sys.open = func(path string) (int, error) {
		if strings.HasSuffix(path, guestInfo) && m.parent.Host == "hv-7" {
			put(t, path, `{"host":"hv-8","vm":"web-1","version":1}`)
			g.publish("900000000", 0)
		}
		return realCalls.open(path)
	}
	m.sys = &sys
	after := read(t, m, g.c.tick())[NameGuest]
	if after.Run == before.Run || after.Total != before.Total || after.Raw != 900_000_000 {
		t.Errorf("%v after %v", after, before)
	}
}

func TestGuestWarnsOnce(t *testing.T) {
	g := shareTree(t, "kubenergy")
	var out strings.Builder
	o := g.c.config()
	o.GuestDir = g.dir
	m, err := NewGuest(o, logTo(&out))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"{", "[]"} {
		put(t, filepath.Join(g.dir, guestInfo), text)
		for range 50 {
			_, _ = m.Read(g.c.after(time.Second), nil)
		}
		if n := strings.Count(out.String(), "Failed to read"); n != i+1 {
			t.Errorf("got %d warnings for %d mistakes: %s", n, i+1, out.String())
		}
	}
}

func TestGuestTricks(t *testing.T) {
	g := shareTree(t, "kubenergy")
	m := g.open(nil)
	before := descriptors(t)
	secret := filepath.Join(t.TempDir(), "secret")
	put(t, secret, "42")
	for name, trick := range map[string]func() error{
		"pipe":   func() error { return syscall.Mkfifo(g.file, 0o644) },
		"link":   func() error { return os.Symlink(secret, g.file) },
		"device": func() error { return os.Symlink("/dev/zero", g.file) },
		"folder": func() error { return os.Mkdir(g.file, 0o755) },
	} {
		if err := os.RemoveAll(g.file); err != nil {
			t.Fatal(err)
		}
		if err := trick(); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			readings, err := m.Read(g.c.after(time.Second), nil)
			if err == nil || len(readings) != 0 {
				t.Fatalf("%s: got %v, error %v", name, readings, err)
			}
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

// TestGuestNeverCountsWhatWasNotUsed randomly truncates, empties and removes the file, and verifies that the
// counted energy never exceeds the used energy.
func TestGuestNeverCountsWhatWasNotUsed(t *testing.T) {
	g := shareTree(t, "kubenergy")
	random := rand.New(rand.NewPCG(3, 4))
	m := g.open(nil)
	raw := uint64(123456789)
	var last energy.Reading
	runs, counted, begin := 0, energy.Microjoules(0), raw
	for range 5000 {
		g.c.after(time.Duration(500+random.IntN(1000)) * time.Millisecond)
		raw += uint64(random.IntN(50_000_000))
		text := strconv.FormatUint(raw, 10)
		switch random.IntN(6) {
		case 0:
			text = text[:random.IntN(len(text))]
		case 1:
			text = ""
		}
		g.write(text, time.Duration(random.IntN(3000))*time.Millisecond)
		readings, _ := m.Read(g.c.tick(), nil)
		for _, now := range readings {
			switch {
			case now.At < last.At || now.At > g.c.now:
				t.Fatalf("At = %v after %v, at %v", now.At, last.At, g.c.now)
			case now.Raw > raw:
				t.Fatalf("Raw = %d, want at most %d", now.Raw, raw)
			case now.Run != last.Run:
				runs++
			case now.Total-last.Total != energy.Microjoules(now.Raw-last.Raw):
				t.Fatalf("%v after %v", now, last)
			default:
				counted += now.Total - last.Total
			}
			last = now
		}
	}
	if all := energy.Microjoules(raw - begin); counted > all || counted < all/2 {
		t.Errorf("counted %v, used %v", counted, all)
	}
	t.Logf("%d runs in 5000 reads, a third of them truncated or empty; known fraction %.3f", runs,
		counted.Joules()/energy.Microjoules(raw-begin).Joules())
}

func TestParseGuestInfo(t *testing.T) {
	for _, text := range []string{
		"", "{", "[]", `{"host":"h"}`, `{"host":"","vm":"v","version":1}`, `{"host":"h","vm":"v"}`,
		`{"host":"h","vm":"v","version":0}`,
		`{"host":"h\n","vm":"v","version":1}`, `{"host":"h","vm":"v","version":1,"quality":"perfect"}`,
		`{"host":"` + strings.Repeat("h", 300) + `","vm":"v","version":1}`,
	} {
		if p, _, err := parseGuestInfo([]byte(text)); err == nil {
			t.Errorf("%.40q: %v, want an error", text, p)
		}
	}
	for quality, want := range map[string]energy.Quality{
		"measured": energy.Derived, "derived": energy.Derived, "estimated": energy.Estimated, "": energy.Estimated,
	} {
		_, got, err := parseGuestInfo(fmt.Appendf(nil, `{"host":"h","vm":"v","version":2,"quality":%q,"more":{}}`,
			quality))
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", quality, got, err, want)
		}
	}
}

func FuzzGuestInfo(f *testing.F) {
	f.Add([]byte(`{"host":"hv-7","vm":"web-1","version":1,"quality":"measured"}`))
	f.Add([]byte(`{"host":"","vm":null,"version":1e9}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		p, q, err := parseGuestInfo(text)
		if err == nil && (p.Host == "" || p.VM == "" || len(p.Host) > maxNameInInfo || q > energy.Derived) {
			t.Errorf("%q: %v, %v", text, p, q)
		}
	})
}

func BenchmarkGuestRead(b *testing.B) {
	o := DefaultConfig()
	o.Now = sinceBoot
	o.GuestDir = plant(b, "guest/kubenergy.tree")
	m, err := NewGuest(o, quiet())
	if err != nil {
		b.Fatal(err)
	}
	var into []energy.Reading
	t := Tick{Now: sinceBoot}
	b.ReportAllocs()
	for b.Loop() {
		into, _ = m.Read(t, into[:0])
	}
}
