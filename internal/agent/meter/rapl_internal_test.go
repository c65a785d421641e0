package meter

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func openTree(t testing.TB, c *clock, tree string, sys *calls) (*RAPL, string) {
	t.Helper()
	o := c.config()
	o.PowercapRoot = plant(t, tree)
	r, err := newRAPL(o, quiet(), sys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r, o.PowercapRoot
}

func TestRAPLNamesEachDomainOnce(t *testing.T) {
	for tree, want := range map[string]string{
		"two-sockets": "package-0 dram-0 package-1 dram-1",
		"laptop":      "package-0 core-0 uncore-0 psys",
		"epyc":        "package-0 core-0",
		"dies":        "package-0-die-0 dram-0-die-0 package-0-die-1 dram-0-die-1 psys",
	} {
		r, _ := openTree(t, newClock(), "rapl/"+tree+".tree", &realCalls)
		if got := names(r.Domains()); got != want {
			t.Errorf("%s: domains %s, want %s", tree, got, want)
		}
	}
}

// TestRAPLReadsAClassOfLinks verifies that the class directory, which consists of links on real machines, is
// supported.
func TestRAPLReadsAClassOfLinks(t *testing.T) {
	tree := plant(t, "rapl/laptop.tree")
	class := t.TempDir()
	for _, path := range []string{
		"intel-rapl", "intel-rapl/intel-rapl:0", "intel-rapl/intel-rapl:0/intel-rapl:0:0", "intel-rapl/intel-rapl:1",
		"intel-rapl-mmio", "intel-rapl-mmio/intel-rapl-mmio:0",
	} {
		if err := os.Symlink(filepath.Join(tree, path), filepath.Join(class, filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	c := newClock()
	o := c.config()
	o.PowercapRoot = class
	r, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, want := names(r.Domains()), "package-0 core-0 uncore-0 psys"; got != want {
		t.Errorf("domains %s, want %s", got, want)
	}
}

// TestRAPLKeepsTheEnergyOfAWrap verifies that the energy of an interval with a wraparound is counted, unlike in
// Scaphandre.
func TestRAPLKeepsTheEnergyOfAWrap(t *testing.T) {
	c := newClock()
	r, root := openTree(t, c, "rapl/laptop.tree", &realCalls)
	file := filepath.Join(root, "intel-rapl/intel-rapl:0/energy_uj")
	const limit = 262143328850
	raw := uint64(261000000000)
	first := read(t, r, c.tick())["package-0"]
	last := first
	for i := range 5000 { // more than ten wraparounds
		step := uint64(700_000_000 + i)
		raw = (raw + step) % (limit + 1)
		put(t, file, strconv.FormatUint(raw, 10)+"\n")
		readings, err := r.Read(c.after(time.Second), nil)
		if err != nil && i < 10 {
			t.Fatal(err)
		}
		now := byName(t, readings)["package-0"]
		if got := used(t, last, now); got != energy.Microjoules(step) {
			t.Fatalf("second %d: used %d, want %d", i, got, step)
		}
		last = now
	}
	if want := energy.Microjoules(5000*700_000_000 + 4999*5000/2); last.Total-first.Total != want {
		t.Errorf("used %d, want %d", last.Total-first.Total, want)
	}
}

func TestRAPLTakesMMIOOnlyWithoutMSR(t *testing.T) {
	c := newClock()
	r, _ := openTree(t, c, "rapl/laptop.tree", &realCalls)
	if got := read(t, r, c.tick())["package-0"].Raw; got != 261000000000 {
		t.Errorf("package-0 is %d, want the MSR value", got)
	}
	c = newClock()
	r,
		_ = openTree(t, c, "rapl/laptop.tree",
		failing(map[string]error{"intel-rapl/intel-rapl:0/energy_uj": syscall.EACCES}))
	readings := read(t, r, c.tick())
	if got := readings["package-0"].Raw; got != 99000000000 {
		t.Errorf("package-0 is %d, want the MMIO value", got)
	}
	if got, want := names(r.Domains()), "package-0 core-0 uncore-0 psys"; got != want {
		t.Errorf("domains %s, want %s", got, want)
	}
}

func TestRAPLSaysHowToGetTheRight(t *testing.T) {
	c := newClock()
	o := c.config()
	o.PowercapRoot = plant(t, "rapl/two-sockets.tree")
	_, err := newRAPL(o, quiet(), failing(map[string]error{"energy_uj": syscall.EACCES}))
	mustFail(t, err, "permission denied", "as root", "udev", "0440", "intel-rapl:1:0/energy_uj")
	if n := strings.Count(err.Error(), "as root"); n != 1 {
		t.Errorf("the advice is given %d times: %v", n, err)
	}

	// Without the DRAM counter the packages are still known, but without one of the packages their sum is not.
	for lost, want := range map[string]string{
		"intel-rapl:1:0/energy_uj": "package-0 package-1",
		"intel-rapl:1/energy_uj":   "dram-0 dram-1",
	} {
		r, err := newRAPL(o, quiet(), failing(map[string]error{lost: syscall.EACCES}))
		if err != nil {
			t.Fatal(err)
		}
		if got := names(r.Domains()); got != want {
			t.Errorf("without %s: domains %s, want %s", lost, got, want)
		}
		r.Close()
	}
}

// TestRAPLZeroIsNoMeter verifies that a counter that is always 0 is not used, so that another meter is selected.
func TestRAPLZeroIsNoMeter(t *testing.T) {
	c := newClock()
	o := c.config()
	o.PowercapRoot = plant(t, "rapl/laptop.tree")
	put(t, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:1/energy_uj"), "0\n")
	put(t, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:0/energy_uj"), "0\n")
	r, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, want := names(r.Domains()), "package-0 core-0 uncore-0"; got != want ||
		read(t, r, c.tick())["package-0"].Raw != 99000000000 {
		t.Errorf("domains %s, want %s, by MMIO", got, want)
	}
	o.PowercapRoot = plant(t, "rapl/epyc.tree")
	put(t, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:0/energy_uj"), "0")
	again, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if r := rootOf(c, again, openModel(t, c, nil)); r.Source() != "model (model)" {
		t.Errorf("Source() = %s", r.Source())
	}
}

func TestRAPLWithoutZones(t *testing.T) {
	o := newClock().config()
	for _, root := range []string{"/nowhere", t.TempDir()} {
		o.PowercapRoot = root
		_, err := NewRAPL(o, quiet())
		mustFail(t, err, root, "no zones")
	}
}

// TestRAPLFaultsOfOneZone verifies that an unreadable zone is unknown rather than zero, and that other zones are
// not affected.
func TestRAPLFaultsOfOneZone(t *testing.T) {
	c := newClock()
	r, root := openTree(t, c, "rapl/two-sockets.tree", &realCalls)
	file := filepath.Join(root, "intel-rapl:0/energy_uj")
	before := read(t, r, c.tick())
	for _, content := range []string{
		"", "\n", "12x", "-5", "1e9", " 5", "99999999999999999999999", "262143328851", strings.Repeat("1", 10_000),
		"1\n2\n",
	} {
		put(t, file, content)
		readings, err := r.Read(c.after(time.Second), nil)
		mustFail(t, err, file)
		if got := byName(t, readings); len(got) != 3 || got["package-0"].Domain.Name != "" {
			t.Errorf("%.20q: got %v, want all but package-0", content, got)
		}
	}
	put(t, file, "101000000\n")
	after := read(t, r, c.after(time.Second))
	if got := used(t, before["package-0"], after["package-0"]); got != 100_000_000 {
		t.Errorf("used %d µJ across the fault, want 100 J", got)
	}
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(c.after(time.Second), nil); !errors.Is(err, errEmpty) {
		t.Errorf("error for an empty file = %v", err)
	}
}

// TestRAPLDoesNotBelieveAStoppedCounter verifies that a constant counter is not used, which occurs if a hypervisor
// emulates RAPL without a counter.
func TestRAPLDoesNotBelieveAStoppedCounter(t *testing.T) {
	c := newClock()
	r, root := openTree(t, c, "rapl/laptop.tree", &realCalls)
	first := read(t, r, c.tick())
	for range 20 {
		_, _ = r.Read(c.after(time.Second), nil)
	}
	readings, err := r.Read(c.after(time.Second), nil)
	mustFail(t, err, "does not advance")
	if got := byName(t, readings); len(got) != 2 || got["core-0"].At == 0 || got["uncore-0"].At == 0 {
		t.Errorf("got %v, want core and uncore", got)
	}
	put(t, filepath.Join(root, "intel-rapl/intel-rapl:1/energy_uj"), "100100000000\n")
	readings, _ = r.Read(c.after(time.Second), nil)
	if got := used(t, first["psys"], byName(t, readings)["psys"]); got != 100_000_000 {
		t.Errorf("it used %d µJ, want 100 J", got)
	}
}

// TestRAPLUnpluggedZoneBeginsAnew verifies that the counter of a device that was removed and reappears starts a new
// run.
func TestRAPLUnpluggedZoneBeginsAnew(t *testing.T) {
	c := newClock()
	away := false
	sys := realCalls
	zone := -1
	sys.open = func(path string) (int, error) {
		fd, err := realCalls.open(path)
		if strings.HasSuffix(path, "intel-rapl:1/energy_uj") {
			zone = fd
		}
		return fd, err
	}
	sys.pread = func(fd int, p []byte) (int, error) {
		if away && fd == zone {
			return 0, syscall.ENODEV
		}
		return realCalls.pread(fd, p)
	}
	r, root := openTree(t, c, "rapl/two-sockets.tree", &sys)
	path := filepath.Join(root, "intel-rapl:1/energy_uj")
	before := read(t, r, c.tick())
	away = true
	readings, err := r.Read(c.after(time.Second), nil)
	mustFail(t, err, "no such device")
	if got := byName(t, readings); len(got) != 3 || got["package-1"].At != 0 {
		t.Errorf("got %v, want all but package-1", got)
	}
	away = false
	put(t, path, "5000000")
	after := read(t, r, c.after(2*time.Second))
	if after["package-1"].Run == before["package-1"].Run {
		t.Error("same run after a zone reappeared")
	}
	if after["package-0"].Run != before["package-0"].Run {
		t.Error("run of another zone changed")
	}
	put(t, path, "6000000")
	if again := read(t, r, c.after(time.Second)); used(t, after["package-1"], again["package-1"]) != 1_000_000 {
		t.Error("reappeared zone does not advance")
	}
}

func TestRAPLGoesOnAfterARestart(t *testing.T) {
	c := newClock()
	r, root := openTree(t, c, "rapl/epyc.tree", &realCalls)
	before, err := r.Read(c.tick(), nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "intel-rapl/intel-rapl:0/energy_uj"), "467389012\n") // 1 kJ with a wraparound
	o := c.config()
	o.PowercapRoot = root
	c.after(5 * time.Second)
	again, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.Resume(before)
	after := read(t, again, c.tick())
	if got, want := used(t, byName(t, before)["package-0"], after["package-0"]),
		energy.Microjoules(1_000_000_000); (got-want).Joules() > 0.001 || got < want {
		t.Errorf("used %d µJ across the restart, want %d", got, want)
	}
	// A gap that may contain an undetected wraparound starts a new run. AMD's counters wrap at 65 kJ.
	c.after(10 * time.Minute)
	late, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	late.Resume([]energy.Reading{after["package-0"]})
	if read(t, late, c.tick())["package-0"].Run == after["package-0"].Run {
		t.Error("same run after a gap of 10 minutes")
	}
}

func TestRAPLCalibration(t *testing.T) {
	c := newClock()
	o := c.config()
	o.PowercapRoot = plant(t, "rapl/two-sockets.tree")
	o.Calibrate = map[string]float64{"rapl": 1.05, "package-1": 0.98}
	r, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	before := read(t, r, c.tick())
	for i, path := range []string{"intel-rapl:0", "intel-rapl:1", "intel-rapl:0/intel-rapl:0:0"} {
		put(t, filepath.Join(o.PowercapRoot, path, "energy_uj"),
			strconv.Itoa([]int{101_000_000, 103_000_000, 100_200_000}[i]))
	}
	after := read(t, r, c.after(time.Second))
	for name, want := range map[string]energy.Microjoules{
		"package-0": 105_000_000, "package-1": 98_000_000, "dram-0": 105_000_000, "dram-1": 0,
	} {
		if got := used(t, before[name], after[name]); got != want {
			t.Errorf("%s used %d µJ, want %d", name, got, want)
		}
	}
}

// TestRAPLBombs verifies that the cost of reading an arbitrary directory tree is bounded.
func TestRAPLBombs(t *testing.T) {
	c := newClock()
	o := c.config()
	root := fast(t)
	o.PowercapRoot = root
	for i := range 10_000 {
		if err := os.Mkdir(filepath.Join(root, fmt.Sprintf("intel-rapl:%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	_, err := NewRAPL(o, quiet())
	mustFail(t, err, "entries")

	root = fast(t)
	o.PowercapRoot = root
	for i := range 1000 {
		put(t, filepath.Join(root, fmt.Sprintf("intel-rapl:%d/name", i)), "package-"+strconv.Itoa(i))
	}
	_, err = NewRAPL(o, quiet())
	mustFail(t, err, "zones")

	// Only the valid zone is used in a tree with names of 10 kB, link loops, and pipes and directories in place of
	// files.
	root = plant(t, "rapl/epyc.tree")
	o.PowercapRoot = root
	put(t, filepath.Join(root, "intel-rapl:5/name"), strings.Repeat("package-", 1250))
	put(t, filepath.Join(root, "intel-rapl:5/energy_uj"), "5")
	put(t, filepath.Join(root, "intel-rapl:6/name"), "package-6\x00\xff")
	folder(t, filepath.Join(root, "intel-rapl:7/name"))
	if err := os.Symlink(root, filepath.Join(root, "intel-rapl:8")); err != nil {
		t.Fatal(err)
	}
	folder(t, filepath.Join(root, "intel-rapl:9"))
	if err := syscall.Mkfifo(filepath.Join(root, "intel-rapl:9/name"), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "intel-rapl:10/name"), "dram")
	if err := syscall.Mkfifo(filepath.Join(root, "intel-rapl:10/energy_uj"), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(root, "intel-rapl:11/name"), "uncore")
	folder(t, filepath.Join(root, "intel-rapl:11/energy_uj"))
	begin := time.Now()
	r, err := NewRAPL(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("opening took %v", took)
	}
	if got, want := names(r.Domains()), "package-0 core-0"; got != want {
		t.Errorf("domains %s, want %s", got, want)
	}
}

// TestRAPLInjectedFaults injects 10,000 faults of all kinds into one of four zones. The zone is unknown during a
// fault and correct otherwise, and other zones are not affected.
func TestRAPLInjectedFaults(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	c := newClock()
	const limit = 262143328850
	truth, raw := energy.Microjoules(0), uint64(3000000) // energy and counter of package-1
	others := uint64(0)
	victims := map[int]bool{}
	open := map[int]bool{}
	fault := ""
	sys := realCalls
	sys.open = func(path string) (int, error) {
		if victim := strings.HasSuffix(path, "intel-rapl:1/energy_uj"); victim && fault == "open" {
			return -1, []error{
				syscall.EACCES, syscall.ENOENT, syscall.EMFILE, syscall.EIO, errNotRegular,
			}[random.IntN(5)]
		}
		fd, err := realCalls.open(path)
		if err == nil {
			victims[fd] = strings.HasSuffix(path, "intel-rapl:1/energy_uj")
			open[fd] = true
		}
		return fd, err
	}
	sys.close = func(fd int) error {
		if !open[fd] {
			t.Errorf("descriptor %d is closed twice", fd)
		}
		delete(open, fd)
		delete(victims, fd)
		return realCalls.close(fd)
	}
	sys.pread = func(fd int, p []byte) (int, error) {
		n, err := realCalls.pread(fd, p)
		text := string(p[:max(n, 0)])
		if err != nil || !strings.Contains("1000000 200000 3000000 400000", strings.TrimSpace(text)) {
			return n, err // a name or range file
		}
		if !victims[fd] {
			v, _ := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
			return copy(p, strconv.FormatUint(v+others, 10)+"\n"), nil
		}
		full := copy(p, strconv.FormatUint(raw, 10)+"\n")
		switch fault {
		case "error":
			return 0, []error{
				syscall.EIO, syscall.ENODEV, syscall.EAGAIN, syscall.EINTR, syscall.ENODATA, syscall.ENXIO,
				syscall.EBADF,
			}[random.IntN(7)]
		case "empty":
			return 0, nil
		case "garbage":
			p[random.IntN(full-1)] = byte(random.IntN('0'))
		case "huge":
			return copy(p, strings.Repeat("9", 40)), nil
		}
		return full, nil
	}
	start := descriptors(t)
	r, _ := openTree(t, c, "rapl/two-sockets.tree", &sys)
	var last energy.Reading
	var lastTruth energy.Microjoules
	faults, counted, first := 0, energy.Microjoules(0), energy.Reading{}
	var into []energy.Reading
	for faults < 10_000 {
		fault = []string{"", "", "", "error", "empty", "garbage", "huge", "open"}[random.IntN(8)]
		for _, victim := range victims {
			if victim && fault == "open" {
				fault = "error" // the file is already open
			}
		}
		if fault != "" {
			faults++
		}
		step := uint64(random.IntN(300_000_000))
		raw = (raw + step) % (limit + 1)
		truth += energy.Microjoules(step)
		others++
		var err error
		into, err = r.Read(c.after(time.Second), into[:0])
		got := byName(t, into)
		if len(got) < 3 || got["package-0"].At != c.now || got["dram-0"].At != c.now || got["dram-1"].At != c.now {
			t.Fatalf("%q: got %v, want all others", fault, got)
		}
		if first.At == 0 {
			first = got["package-0"]
		}
		if u := used(t, first, got["package-0"]); u != energy.Microjoules(others-first.Raw+1000000) {
			t.Fatalf("package-0 used %d, want %d", u, others)
		}
		victim, ok := got["package-1"]
		if ok == (err != nil) {
			t.Fatalf("%q: reading present: %v, error %v", fault, ok, err)
		}
		if fault != "" && ok {
			t.Fatalf("%q: reading present: %v", fault, victim)
		}
		if ok && last.At != 0 && victim.Run == last.Run {
			if got, want := victim.Total-last.Total, truth-lastTruth; got != want {
				t.Fatalf("used %d µJ within a run, want %d", got, want)
			}
			counted += victim.Total - last.Total
		}
		if ok {
			last, lastTruth = victim, truth
		}
	}
	if share := counted.Joules() / truth.Joules(); share < 0.02 {
		t.Errorf("only a fraction of %.3f was counted", share)
	}
	t.Logf("%d faults; %.3f of the victim's energy is known, the rest is unknown", faults,
		counted.Joules()/truth.Joules())
	r.Close()
	if len(open) != 0 {
		t.Errorf("open descriptors: %v", open)
	}
	if now := descriptors(t); now > start {
		t.Errorf("%d descriptors, at the start %d", now, start)
	}
}

func TestRAPLReadAllocatesNothing(t *testing.T) {
	c := newClock()
	r, _ := openTree(t, c, "rapl/two-sockets.tree", &realCalls)
	into := make([]energy.Reading, 0, 8)
	tick := c.tick()
	if n := testing.AllocsPerRun(100, func() { into, _ = r.Read(tick, into[:0]) }); n != 0 {
		t.Errorf("%v allocations per Read, want none", n)
	}
}

func TestParseUint(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "7\n": 7, "18446744073709551615": math.MaxUint64, "0012": 12} {
		if v, err := parseUint([]byte(text)); err != nil || v != want {
			t.Errorf("%q: %d, %v", text, v, err)
		}
	}
	for _, text := range []string{
		"", "\n", "1\n\n", "18446744073709551616", "99999999999999999999", "+1", "-1", "0x1", "1 ", " 1", "1.5", "१",
	} {
		if v, err := parseUint([]byte(text)); err == nil {
			t.Errorf("%q: %d, want an error", text, v)
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{
		"0", "262143328850\n", "18446744073709551615", "18446744073709551616", "-128000\n", "", "1 2",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		v, err := parseUint(text)
		want, wantErr := strconv.ParseUint(strings.TrimSuffix(string(text), "\n"), 10, 64)
		if (err == nil) != (wantErr == nil) || v != want && err == nil {
			t.Errorf("%q: %d, %v, want %d, %v", text, v, err, want, wantErr)
		}
		i, err := parseInt(text)
		signed, wantErr := strconv.ParseInt(strings.TrimSuffix(string(text), "\n"), 10, 64)
		if err == nil && (wantErr != nil || i != signed) {
			t.Errorf("%q: %d, want %d, %v", text, i, signed, wantErr)
		}
	})
}

func FuzzZoneNames(f *testing.F) {
	f.Add("intel-rapl:0:1", "dram", "package-0")
	f.Add("intel-rapl-mmio:0", "package-0-die-1", "")
	f.Add("intel-rapl:3", "psys-1", "psys")
	f.Fuzz(func(t *testing.T, folder, name, parent string) {
		defer memtest.Limit(t, 100*(len(folder)+len(name)+len(parent)))()
		z, ok := parseZone(folder)
		if ok && (z.top < 0 || z.top > 9999 || z.sub < -1 || z.sub > 9999) {
			t.Errorf("%q is %+v", folder, z)
		}
		d, ok := raplDomain(name, parent, z.top)
		if ok && !domainName.MatchString(d.Name) {
			t.Errorf("%q in %q is %+v", name, parent, d)
		}
		if ok && !strings.HasPrefix(d.Name, d.Kind.String()) {
			t.Errorf("%q is of kind %v", d.Name, d.Kind)
		}
	})
}

func BenchmarkRAPLRead(b *testing.B) {
	o := DefaultConfig()
	o.Now = sinceBoot
	o.PowercapRoot = plant(b, "rapl/laptop.tree")
	put(b, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:2/name"), "package-1")
	put(b, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:2/energy_uj"), "99999999999\n")
	put(b, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:2/intel-rapl:2:0/name"), "core")
	put(b, filepath.Join(o.PowercapRoot, "intel-rapl/intel-rapl:2/intel-rapl:2:0/energy_uj"), "99999999999\n")
	r, err := NewRAPL(o, quiet())
	if err != nil {
		b.Fatal(err)
	}
	defer r.Close()
	if len(r.Domains()) != 6 {
		b.Fatalf("got %v, want 6 zones", r.Domains())
	}
	r.stale = math.MaxInt64
	into := make([]energy.Reading, 0, 8)
	t := Tick{Now: sinceBoot}
	b.ReportAllocs()
	for b.Loop() {
		if into, err = r.Read(t, into[:0]); err != nil || len(into) != 6 {
			b.Fatal(len(into), err)
		}
	}
}
