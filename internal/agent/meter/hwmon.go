package meter

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Hwmon reads the kernel's hardware monitors. Energy and power sensors are used only if they cover the whole
// machine: ACPI power meters, the "System" sensor of OpenPOWER, and configured sensors. Sensors of a processor, a
// supply rail or a graphics card cover an unknown part of the machine. They are listed but not used.
//
// Power sensors are integrated over time and have quality derived. Energy counters have quality measured.
type Hwmon struct {
	sys     *calls
	root    string
	sensors []Sensor
	walls   []wallSensor
	domains []energy.Domain
	temps   []tempSensor
	stale   time.Duration
}

// Sensor is a power or energy sensor of hwmon.
type Sensor struct {
	Chip   string // name of the driver, e.g. "power_meter"
	Device string // name of the device, e.g. "ACPI000D:00"; may be empty
	Key    string // e.g. "power1"
	Label  string // label set by the driver
	Wall   bool   // the sensor covers the whole machine and is used

	path string // path of the file with the value
}

// String returns the name of the sensor in the format of --wall-sensor.
func (s Sensor) String() string { return s.Chip + "/" + s.Key }

// busAddress matches the suffix that lm-sensors adds to the name of a driver, as in "power_meter-acpi-0".
var busAddress = regexp.MustCompile(`-(?:acpi|hid|i2c|isa|mdio|pci|scsi|spi|virtual)(?:-[0-9a-f]+){1,2}$`)

// matches reports whether a value of --wall-sensor selects s.
func (s Sensor) matches(spec string) bool {
	device, sensor, ok := strings.Cut(spec, "/")
	if device != s.Chip && device != s.Device && busAddress.ReplaceAllString(device, "") != s.Chip {
		return false
	}
	return !ok || sensor == s.Key || s.Label != "" && sensor == s.Label
}

// known reports whether the sensor is known to cover the whole machine.
func (s Sensor) known() bool {
	return s.Chip == "power_meter" || strings.HasPrefix(s.Device, "ACPI000D") ||
		s.Chip == "ibmpowernv" && s.Label == "System"
}

func (s Sensor) counts() bool { return strings.HasPrefix(s.Key, "energy") }

type wallSensor struct {
	file       counterFile
	counter    *energy.Counter    // for an energy sensor
	integrator *energy.Integrator // for a power sensor
	scale      float64            // calibration factor of a power sensor
	changes    changeDetector
	gone       bool // the device was removed since the last reading
}

// Temperature is a reading of a temperature sensor.
type Temperature struct {
	Chip    string // name of the driver, e.g. "coretemp"
	Sensor  string // label, e.g. "Package id 0", or key, e.g. "temp1"; UUID of a GPU
	Celsius energy.Celsius
}

// processors matches drivers of sensors in CPUs and GPUs. Other sensors measure the air, the mainboard or disks.
var processors = regexp.MustCompile(`^(coretemp|k10temp|zenpower|nouveau|radeon|nvml|dcgm)$|cpu|gpu|soc_thermal`)

// Hottest returns the highest temperature of CPUs and GPUs, or nil if there is none.
func Hottest(all []Temperature) (most *energy.Celsius) {
	for i := range all {
		if t := &all[i]; processors.MatchString(t.Chip) && (most == nil || t.Celsius > *most) {
			most = &t.Celsius
		}
	}
	return most
}

type tempSensor struct {
	chip, sensor, path string
}

const (
	maxChips   = 256
	maxSensors = 512
	maxTemps   = 128
)

// NewHwmon finds the sensors. If no sensor covers the whole machine, the meter has no domains but provides
// temperatures.
func NewHwmon(c Config, log *slog.Logger) (*Hwmon, error) { return newHwmon(c, log, &realCalls) }

func newHwmon(c Config, log *slog.Logger, sys *calls) (*Hwmon, error) {
	h := &Hwmon{sys: sys, stale: c.stale(), root: c.HwmonRoot}
	chips, err := list(c.HwmonRoot)
	if err != nil {
		return nil, fmt.Errorf("opening hwmon: %w", err)
	}
	for i, chip := range chips {
		if i == maxChips {
			log.Warn("Ignored hardware monitors beyond the limit", "root", c.HwmonRoot, "limit", maxChips)
			break
		}
		if strings.HasPrefix(chip, "hwmon") {
			h.addDevice(filepath.Join(c.HwmonRoot, chip))
		}
	}
	walls, err := h.choose(c.WallSensors)
	if err != nil {
		return nil, fmt.Errorf("opening hwmon: %w", err)
	}
	if len(walls) > 1 && len(c.WallSensors) == 0 {
		log.Warn("Ignored several sensors that may cover the whole machine: select some with --wall-sensor", "sensors",
			len(walls))
		walls = nil
	}
	for n, i := range walls {
		h.sensors[i].Wall = true
		h.open(c, h.sensors[i], n)
	}
	log.Debug("Found hardware monitors", "power", h.sensors, "temperatures", len(h.temps))
	return h, nil
}

// addDevice adds the sensors of a device. Like libsensors, it looks in the directory of the monitor, then in that of
// its parent device, which contains the files of drivers that use the kernel's older interface.
func (h *Hwmon) addDevice(dir string) {
	parent, device := filepath.Join(dir, "device"), ""
	if target, err := os.Readlink(parent); err == nil {
		device = filepath.Base(target)
	}
	own, _ := readText(h.sys, filepath.Join(dir, "name"))
	inherited, _ := readText(h.sys, filepath.Join(parent, "name"))
	if chip := cmp.Or(own, inherited, device); chip != "" && !h.addSensors(dir, chip, device) {
		h.addSensors(parent, chip, device)
	}
}

// addSensors adds the sensors in a directory, and reports whether there are any.
func (h *Hwmon) addSensors(dir, chip, device string) (found bool) {
	names, err := list(dir)
	if err != nil {
		return false
	}
	for _, name := range names {
		key, kind, attribute, ok := parseSensor(name)
		if !ok {
			continue
		}
		found = true
		path := filepath.Join(dir, name)
		label, _ := readText(h.sys, filepath.Join(dir, key+"_label")) // most sensors have no label
		switch {
		case kind == "temp":
			if len(h.temps) < maxTemps {
				h.temps = append(h.temps, tempSensor{
					chip: chip, sensor: h.unique(chip, cmp.Or(label, key)), path: path,
				})
			}
		case slices.Contains(names, key+"_input") && slices.Contains(names, key+"_average") &&
			h.readable(filepath.Join(dir, key+"_input")) != (attribute == "input"):
			// Use the input, which is more recent, unless only the average can be read.
		case len(h.sensors) < maxSensors:
			h.sensors = append(h.sensors, Sensor{Chip: chip, Device: device, Key: key, Label: label, path: path})
		}
	}
	return found
}

// readable reports whether a file contains a number.
func (h *Hwmon) readable(path string) bool {
	text, _ := readSmall(h.sys, path, maxNumber-1)
	_, err := parseInt(text)
	return err == nil
}

var sensorFile = regexp.MustCompile(`^((power|energy|temp)(?:0|[1-9]\d{0,3}))_(input|average)$`)

// parseSensor parses the name of a value file, e.g. "power1_average". It returns ok = false for unused files.
func parseSensor(name string) (key, kind, attribute string, ok bool) {
	m := sensorFile.FindStringSubmatch(name)
	if m == nil || m[3] == "average" && m[2] != "power" {
		return "", "", "", false
	}
	return m[1], m[2], m[3], true
}

// choose returns the indices of the sensors that cover the whole machine.
func (h *Hwmon) choose(specs []string) ([]int, error) {
	if len(specs) == 0 {
		return h.indices(Sensor.known, true), nil
	}
	var chosen []int
	for _, spec := range specs {
		matching := h.indices(func(s Sensor) bool { return s.matches(spec) }, !strings.Contains(spec, "/"))
		switch {
		case len(matching) == 0:
			return nil, fmt.Errorf("no sensor of energy or power matches --wall-sensor %s: have %s", spec, h.choice())
		case len(matching) > 1:
			return nil, fmt.Errorf("%d sensors match --wall-sensor %s: have %s", len(matching), spec, h.choice())
		case !slices.Contains(chosen, matching[0]):
			chosen = append(chosen, matching[0])
		}
	}
	return chosen, nil
}

// indices returns the indices of the wanted sensors. If prefer is true, power sensors of devices with a wanted
// energy counter are omitted.
func (h *Hwmon) indices(wanted func(Sensor) bool, prefer bool) []int {
	var found []int
	for i, s := range h.sensors {
		superfluous := prefer && !s.counts() && slices.ContainsFunc(h.sensors, func(other Sensor) bool {
			return wanted(other) && other.counts() && filepath.Dir(other.path) == filepath.Dir(s.path)
		})
		if wanted(s) && !superfluous {
			found = append(found, i)
		}
	}
	return found
}

// open adds the n-th sensor of the whole machine.
func (h *Hwmon) open(c Config, s Sensor, n int) {
	d := energy.Domain{Kind: energy.Wall, Name: energy.Wall.String()}
	if n > 0 {
		d.Name += "-" + strconv.Itoa(n)
	}
	w := wallSensor{file: counterFile{sys: h.sys, path: s.path}}
	scale := c.scale(NameHwmon, d.Name)
	if s.counts() {
		w.counter = energy.NewCounter(energy.CounterOptions{
			Domain: d, Quality: energy.Measured, MicrojoulesPerUnit: 1, Max: envelope[d.Kind], Scale: scale,
		})
	} else {
		w.scale = float64(scale) / 1e6
		w.integrator = energy.NewIntegrator(d, energy.Derived, c.stale())
	}
	h.walls = append(h.walls, w)
	h.domains = append(h.domains, d)
}

// Name implements Meter.
func (h *Hwmon) Name() string { return NameHwmon }

// Domains implements Meter.
func (h *Hwmon) Domains() []energy.Domain { return h.domains }

// choice lists the values that --wall-sensor accepts.
func (h *Hwmon) choice() string {
	if len(h.sensors) == 0 {
		return "none in " + h.root
	}
	names := make([]string, 0, len(h.sensors))
	for _, s := range h.sensors {
		name := s.String()
		if s.Label != "" {
			name += " or " + s.Chip + "/" + s.Label
		}
		if s.Device != "" {
			name += " (of " + s.Device + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// Resume implements Meter.
func (h *Hwmon) Resume(last []energy.Reading) {
	for i := range h.walls {
		if w := &h.walls[i]; w.counter != nil {
			w.counter.Resume(last...)
		} else {
			w.integrator.Resume(last...)
		}
	}
}

// Read implements Meter. Each value has its own time, because some drivers query a slow controller.
func (h *Hwmon) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	var errs []error
	for i := range h.walls {
		w := &h.walls[i]
		before := t.Now()
		text, err := w.file.read()
		at := before + (t.Now()-before)/2
		w.gone = w.counter != nil && (w.gone || isGone(err))
		if err != nil {
			errs = append(errs, err)
		} else if r, err := w.next(text, at, h.stale); err != nil {
			errs = append(errs, fmt.Errorf("reading %s: %w", w.file.path, err))
		} else {
			into = append(into, r)
		}
	}
	return into, errors.Join(errs...)
}

func (w *wallSensor) next(text []byte, at, stale time.Duration) (energy.Reading, error) {
	v, err := parseInt(text)
	if err != nil {
		return energy.Reading{}, err
	}
	if w.counter == nil {
		power := energy.Watts(float64(v) / 1e6)
		if power <= 0 || power > envelope[energy.Wall] {
			return energy.Reading{}, fmt.Errorf("%v W is out of range", float64(power))
		}
		return w.integrator.Next(power*energy.Watts(w.scale), at), nil
	}
	if v < 0 {
		return energy.Reading{}, fmt.Errorf("negative energy %d", v)
	}
	if age := w.changes.beat(uint64(v), at); age > stale {
		return energy.Reading{}, fmt.Errorf("counter does not advance: %d for %v", v, age.Round(time.Second))
	}
	if w.gone { // the counter of a reconnected device may have been reset
		w.counter.Break()
	}
	w.gone = false
	return w.counter.Next(uint64(v), at), nil
}

// unique returns a unique name for sensors with the same name, such as "Core 0" of two sockets. The second one is
// "Core 0 #2".
func (h *Hwmon) unique(chip, sensor string) string {
	name := sensor
	for n := 2; slices.ContainsFunc(h.temps, func(s tempSensor) bool {
		return s.chip == chip && s.sensor == name
	}); n++ {
		name = fmt.Sprintf("%s #%d", sensor, n)
	}
	return name
}

// Temperatures appends the temperatures of all readable sensors. A reading takes a few microseconds, or a command
// to a device such as a disk, so it should not be called often. It may be called concurrently with Read.
func (h *Hwmon) Temperatures(into []Temperature) []Temperature {
	for _, s := range h.temps {
		text, err := readSmall(h.sys, s.path, maxNumber-1)
		if err != nil {
			continue
		}
		// Skip sensors without a probe, which report values such as -128 or 255 °C.
		if v, err := parseInt(text); err == nil && v > -60_000 && v < maxCelsius*1000 {
			into = append(into, Temperature{Chip: s.chip, Sensor: s.sensor, Celsius: energy.Celsius(v) / 1000})
		}
	}
	return into
}

// Close implements Meter.
func (h *Hwmon) Close() error {
	for i := range h.walls {
		h.walls[i].file.close()
	}
	return nil
}
