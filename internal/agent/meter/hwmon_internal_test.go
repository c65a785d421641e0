package meter

import (
	"errors"
	"fmt"
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

func openHwmon(t testing.TB, c *clock, tree string, walls ...string) (*Hwmon, string) {
	t.Helper()
	o := c.config()
	o.HwmonRoot, o.WallSensors = plant(t, tree), walls
	h, err := NewHwmon(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, o.HwmonRoot
}

func TestHwmonTakesOnlyWhatIsTheWholeMachine(t *testing.T) {
	for _, test := range []struct{ tree, wall, domains, sensor string }{
		{"server", "", "wall", "power_meter/power1"},
		{"power9", "", "wall", "ibmpowernv/power1"},
		{"jetson", "", "", ""},
		{"energy", "", "", ""},
		{"jetson", "ina3221/VDD_IN", "wall", "ina3221/power1"},
		{"jetson", "ina3221/power1", "wall", "ina3221/power1"},
		{"energy", "aem0", "wall", "aem0/energy1"}, // the counter rather than the power of the same device
		{"energy", "aem0/power1", "wall", "aem0/power1"},
		{"parent", "", "wall", "power_meter/power1"},
		{"parent", "power_meter-acpi-0/power1", "wall", "power_meter/power1"}, // as printed by sensors
		{"jetson", "ina3221-i2c-1-40/VDD_IN", "wall", "ina3221/power1"},
	} {
		var walls []string
		if test.wall != "" {
			walls = []string{test.wall}
		}
		h, _ := openHwmon(t, newClock(), "hwmon/"+test.tree+".tree", walls...)
		if got := names(h.Domains()); got != test.domains {
			t.Errorf("%s, %q: domains %q, want %q", test.tree, test.wall, got, test.domains)
		}
		for _, s := range h.sensors {
			if s.Wall != (s.String() == test.sensor) {
				t.Errorf("%s, %q: %v is used: %v", test.tree, test.wall, s, s.Wall)
			}
		}
	}
}

func TestHwmonWallSensorMustMeanOne(t *testing.T) {
	o := newClock().config()
	o.HwmonRoot = plant(t, "hwmon/jetson.tree")
	for spec, want := range map[string]string{
		"ina3221": "3 sensors", "ina3221/VDD": "no sensor", "ina/power1": "no sensor",
	} {
		o.WallSensors = []string{spec}
		_, err := NewHwmon(o, quiet())
		mustFail(t, err, want, spec, "ina3221/power2", "ina3221/VDD_IN")
	}
}

// TestHwmonDeviceNames verifies that sensors can be selected by device name, because the hwmon number may change at
// each boot, and two chips of a kind have the same name.
func TestHwmonDeviceNames(t *testing.T) {
	c := newClock()
	root := plant(t, "hwmon/server.tree")
	for i, device := range []string{"0-0040", "0-0041"} {
		dir := filepath.Join(root, fmt.Sprintf("hwmon%d", 7+i))
		put(t, filepath.Join(dir, "name"), "ina226\n")
		put(t, filepath.Join(dir, "power1_input"), "100000000\n")
		if err := os.Symlink("../../../"+device, filepath.Join(dir, "device")); err != nil {
			t.Fatal(err)
		}
	}
	o := c.config()
	o.HwmonRoot, o.WallSensors = root, []string{"0-0041/power1", "0-0040/power1", "0-0041"}
	h, err := NewHwmon(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if got, want := names(h.Domains()), "wall wall-1"; got != want {
		t.Errorf("domains %s, want %s", got, want)
	}
	if h.walls[0].file.path != filepath.Join(root, "hwmon8/power1_input") {
		t.Errorf("the first is %s", h.walls[0].file.path)
	}
	put(t, filepath.Join(root, "hwmon9/name"), "power_meter")
	put(t, filepath.Join(root, "hwmon9/power1_average"), "5000000")
	o.WallSensors = nil
	if h, err = NewHwmon(o, quiet()); err != nil || len(h.Domains()) != 0 {
		t.Errorf("selected %v of two ambiguous sensors, error %v", h.Domains(), err)
	}
}

func TestHwmonIntegratesPower(t *testing.T) {
	c := newClock()
	h, root := openHwmon(t, c, "hwmon/server.tree")
	file := filepath.Join(root, "hwmon0/power1_average")
	first := read(t, h, c.tick())["wall"]
	if first.Quality != energy.Derived {
		t.Errorf("quality %v", first.Quality)
	}
	put(t, file, "225000000\n")
	second := read(t, h, c.after(2*time.Second))["wall"]
	if got := used(t, first, second); got != 440_000_000 {
		t.Errorf("215 W to 225 W in 2 s are %d µJ, want 440 J", got)
	}
	for _, content := range []string{"", "x", "-1000000", "0", "99999999999999", "9223372036854775808"} {
		put(t, file, content)
		readings, err := h.Read(c.after(time.Second), nil)
		mustFail(t, err, file)
		if len(readings) != 0 {
			t.Errorf("%q: got %v, want nothing", content, readings)
		}
	}
	put(t, file, "225000000\n")
	third := read(t, h, c.after(time.Second))["wall"]
	if got := used(t, second, third); got != 7*225_000_000 {
		t.Errorf("over a gap of 7 s %d µJ", got)
	}
	if late := read(t, h, c.after(time.Minute))["wall"]; late.Run == third.Run {
		t.Error("same run after a minute without a sample")
	}
}

func TestHwmonCounter(t *testing.T) {
	c := newClock()
	o := c.config()
	o.HwmonRoot, o.WallSensors = plant(t, "hwmon/energy.tree"), []string{"aem0"}
	o.Calibrate = map[string]float64{"wall": 1.1}
	h, err := NewHwmon(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	file := filepath.Join(o.HwmonRoot, "hwmon5/energy1_input")
	last := energy.Reading{
		Domain: h.Domains()[0], At: c.now - 10*time.Second, Total: 77, Run: 3, Raw: 4_000_000_000,
		Quality: energy.Measured,
	}
	h.Resume([]energy.Reading{last})
	now := read(t, h, c.tick())["wall"]
	if got := used(t, last, now); got != 1_100_000_000 || now.Quality != energy.Measured {
		t.Errorf("since the previous process %d µJ, want 1.1 kJ; quality %v", got, now.Quality)
	}
	put(t, file, "100\n")
	if again := read(t, h, c.after(time.Second))["wall"]; again.Run == now.Run {
		t.Error("same run after a reset of the counter")
	}
	for range 20 {
		_, err = h.Read(c.after(time.Second), nil)
	}
	mustFail(t, err, "does not advance")
}

// TestHwmonDeviceIsReplaced covers a device that is removed and reappears between two ticks. It may be a different
// device with the same number.
func TestHwmonDeviceIsReplaced(t *testing.T) {
	sys := realCalls
	sys.pread = func(fd int, p []byte) (int, error) {
		var stat syscall.Stat_t
		if err := syscall.Fstat(fd, &stat); err != nil || stat.Nlink == 0 {
			return 0, syscall.ENODEV // returned by sysfs for files of removed devices
		}
		return realCalls.pread(fd, p)
	}
	c := newClock()
	o := c.config()
	o.HwmonRoot, o.WallSensors = plant(t, "hwmon/energy.tree"), []string{"aem0"}
	h, err := newHwmon(o, quiet(), &sys)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	file := filepath.Join(o.HwmonRoot, "hwmon5/energy1_input")
	before := read(t, h, c.tick())["wall"]
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	put(t, file, strconv.FormatUint(before.Raw+100_000_000, 10)+"\n")
	var after energy.Reading
	for range 2 {
		readings, _ := h.Read(c.after(time.Second), nil)
		after = byName(t, readings)["wall"]
	}
	if after.At == 0 || after.Run == before.Run {
		t.Errorf("counter of a replaced device continued: %+v after %+v", after, before)
	}
}

func TestHwmonTemperatures(t *testing.T) {
	h, root := openHwmon(t, newClock(), "hwmon/server.tree")
	want := []Temperature{{"coretemp", "Package id 0", 55}, {"coretemp", "Core 0", 54}, {"nct6779", "temp1", 36.5}}
	if got := h.Temperatures(nil); !slices.Equal(got, want) { // without the sensor at -128 °C, which has no probe
		t.Errorf("got %v, want %v", got, want)
	}
	if most := Hottest(h.Temperatures(nil)); most == nil || *most != 55 {
		t.Errorf("Hottest() = %v", most)
	}
	if most := Hottest([]Temperature{{"nvme", "Composite", 70}, {"acpitz", "temp1", 90}}); most != nil {
		t.Errorf("Hottest() = %v, want none for disks and air", *most)
	}
	for _, chip := range []string{"k10temp", "cpu_thermal", "cpu0_thermal", "amdgpu", "nvml"} {
		if most := Hottest([]Temperature{{"coretemp", "Core 0", -4}, {chip, "a", -3}, {chip, "b", -5}}); *most != -3 {
			t.Errorf("with %s Hottest() = %v", chip, *most)
		}
	}
	put(t, filepath.Join(root, "hwmon1/temp1_input"), "hot")
	if got := h.Temperatures(nil); !slices.Equal(got, want[1:]) {
		t.Errorf("got %v, want %v", got, want[1:])
	}
}

// TestHwmonParentDevices covers drivers that create their files, or some of them, in the directory of the parent
// device.
func TestHwmonParentDevices(t *testing.T) {
	c := newClock()
	h, root := openHwmon(t, c, "hwmon/parent.tree")
	want := []Temperature{
		{"coretemp", "Physical id 0", 55}, {"k10temp", "temp1", 41}, {"coretemp", "Physical id 1", 50},
	}
	if got := h.Temperatures(nil); !slices.Equal(got, want) {
		t.Errorf("temperatures are %v, want %v", got, want)
	}
	first := read(t, h, c.tick())["wall"]
	if got := used(t, first, read(t, h, c.after(time.Second))["wall"]); got != 215_000_000 {
		t.Errorf("energy of a second = %d µJ, want 215 J", got)
	}
	// A monitor without any name has that of the parent device.
	device := filepath.Join(root, "hwmon0/device")
	if err := errors.Join(os.Remove(filepath.Join(device, "name")),
		os.Rename(device, filepath.Join(root, "ACPI000D:00")), os.Symlink("../ACPI000D:00", device)); err != nil {
		t.Fatal(err)
	}
	o := c.config()
	o.HwmonRoot = root
	h, err := NewHwmon(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if h.choice() != "ACPI000D:00/power1 (of ACPI000D:00)" || names(h.Domains()) != "wall" {
		t.Errorf("sensors %s, domains %v, want power1 of ACPI000D:00 as wall", h.choice(), h.Domains())
	}
}

// TestHwmonInputOrAverage verifies that a power sensor with an unreadable input uses its average.
func TestHwmonInputOrAverage(t *testing.T) {
	for input, want := range map[string]string{
		"180000000": "power1_input", "N/A": "power1_average", "": "power1_average",
	} {
		o := newClock().config()
		o.HwmonRoot = plant(t, "hwmon/server.tree")
		put(t, filepath.Join(o.HwmonRoot, "hwmon0/power1_input"), input)
		h, err := NewHwmon(o, quiet())
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if len(h.walls) != 1 || filepath.Base(h.walls[0].file.path) != want {
			t.Errorf("input %q: sensors %v, want only %s", input, h.sensors, want)
		}
	}
}

func TestHwmonBombs(t *testing.T) {
	c := newClock()
	o := c.config()
	o.HwmonRoot = plant(t, "hwmon/server.tree")
	for i := range 700 {
		put(t, filepath.Join(o.HwmonRoot, "hwmon2", fmt.Sprintf("power%d_input", i+1)), "1")
		put(t, filepath.Join(o.HwmonRoot, "hwmon2", fmt.Sprintf("temp%d_input", i+1)), "1")
	}
	put(t, filepath.Join(o.HwmonRoot, "hwmon1/temp1_label"), strings.Repeat("x", 10_000))
	folder(t, filepath.Join(o.HwmonRoot, "hwmon8/name"))
	folder(t, filepath.Join(o.HwmonRoot, "hwmon9"))
	if err := syscall.Mkfifo(filepath.Join(o.HwmonRoot, "hwmon9/name"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := NewHwmon(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if len(h.sensors) > maxSensors || len(h.Temperatures(nil)) > maxTemps || names(h.Domains()) != "wall" {
		t.Errorf("%d sensors, domains %v", len(h.sensors), h.Domains())
	}
	for i := range maxEntries {
		folder(t, filepath.Join(o.HwmonRoot, fmt.Sprintf("other%d", i)))
	}
	_, err = NewHwmon(o, quiet())
	mustFail(t, err, "entries")
}

func FuzzSensorName(f *testing.F) {
	for _, s := range []string{
		"power1_average", "energy65_input", "temp0_input", "power01_input", "temp1_label", "power1_cap_max",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		defer memtest.Limit(t, 100*len(name))()
		key, kind, attribute, ok := parseSensor(name)
		number, err := strconv.Atoi(strings.TrimPrefix(key, kind))
		if ok && (err != nil || fmt.Sprintf("%s%d_%s", kind, number, attribute) != name) {
			t.Errorf("%q is %q, %q %q", name, key, kind, attribute)
		}
	})
}

func FuzzWallSensor(f *testing.F) {
	f.Add([]byte("215000000\n"), []byte("5\n"), true)
	f.Add([]byte("-1"), []byte(""), false)
	f.Fuzz(func(t *testing.T, one, two []byte, counts bool) {
		defer memtest.Limit(t, 100*(len(one)+len(two)))()
		w, d := wallSensor{scale: 1}, energy.Domain{Kind: energy.Wall, Name: "wall"}
		if counts {
			w.counter = energy.NewCounter(energy.CounterOptions{Domain: d, Max: envelope[energy.Wall]})
		} else {
			w.integrator = energy.NewIntegrator(d, energy.Derived, staleAfter)
		}
		a, err := w.next(one, time.Second, staleAfter)
		if err != nil {
			return
		}
		b, err := w.next(two, 2*time.Second, staleAfter)
		if err == nil && a.Run == b.Run && (b.Total < a.Total || b.Total-a.Total > 25_000*1_000_000) {
			t.Errorf("%q, %q: in a second %d µJ", one, two, b.Total-a.Total)
		}
	})
}
