package meter

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Names of the kinds of meters, used by --meters and --calibrate.
const (
	NameRAPL       = "rapl"
	NameHwmon      = "hwmon"
	NameGuest      = "guest"
	NameScaphandre = "scaphandre"
	NameKepler     = "kepler"
	NameModel      = "model"
	NameNVML       = "nvml"
	NameDCGM       = "dcgm"
)

var kinds = []string{NameHwmon, NameRAPL, NameGuest, NameScaphandre, NameKepler, NameModel, NameNVML, NameDCGM}

const (
	auto = "auto"

	defaultPowercap = "/sys/devices/virtual/powercap"
	classPowercap   = "/sys/class/powercap" // used if the default does not exist
)

// Config configures the meters of a node.
type Config struct {
	// Meters contains the kinds of meters to open, or only "auto". It is an error if a listed meter cannot be
	// opened. With auto, all available meters are opened, and the model is the fallback.
	Meters []string

	PowercapRoot string // directory of RAPL zones
	HwmonRoot    string // directory of hwmon devices

	// WallSensors are hwmon sensors that cover the whole machine, e.g. "ina3221/VDD_IN": the device or chip, and
	// the sensor or its label. Several sensors, such as those of redundant power supplies, are added up. If empty,
	// only devices that are known to cover the whole machine are used.
	WallSensors []string

	GuestDir string // directory that the host shares with this virtual machine

	ScaphandreURL string // of its /metrics; if empty, Scaphandre is not used
	// ScaphandreFactor is multiplied with the counters of Scaphandre, both in its /metrics and in the files of its
	// qemu exporter, which increase too slowly because of the period of its loop (5 s plus the duration of an
	// iteration). 0 means no correction.
	ScaphandreFactor float64
	KeplerURL        string        // of its /metrics; if empty, Kepler is not used
	ScrapeInterval   time.Duration // interval of scrapes

	GPURoot string // root directory of the libraries of NVIDIA's driver
	DCGMURL string // of the /metrics of DCGM exporter; if empty, it is not used

	Profile string // JSON file with the power profile of this node; if empty, that of a typical server

	// Calibrate contains factors for kinds of meters ("rapl") or single domains ("package-0"). Domains take
	// precedence.
	Calibrate map[string]float64

	Interval time.Duration        // interval of readings
	Now      func() time.Duration // returns the time since boot
}

// DefaultConfig returns the default configuration.
func DefaultConfig() Config {
	return Config{
		Meters: []string{auto}, PowercapRoot: defaultPowercap, HwmonRoot: "/sys/class/hwmon",
		GuestDir:       "/var/scaphandre",
		GPURoot:        "/",
		ScrapeInterval: 5 * time.Second, Interval: time.Second, Now: host.Now,
	}
}

// AddFlags adds a flag for each option to fs.
func (c *Config) AddFlags(fs *flag.FlagSet) {
	fs.Func("meters", "comma-separated `kinds` of meters: auto, or any of "+strings.Join(kinds, ", ")+" (default auto)",
		func(s string) error {
			c.Meters = strings.Split(s, ",")
			return nil
		})
	fs.StringVar(&c.PowercapRoot, "powercap-root", c.PowercapRoot,
		"`folder` of RAPL zones; the default falls back to "+classPowercap)
	fs.StringVar(&c.HwmonRoot, "hwmon-root", c.HwmonRoot, "`folder` of hwmon devices")
	fs.Func("wall-sensor",
		"`device/sensor` of hwmon that covers the whole machine, e.g. ina3221/VDD_IN; may be repeated to add several",
		AppendTo(&c.WallSensors))
	fs.StringVar(&c.GuestDir, "guest-dir", c.GuestDir, "`folder` shared by the host of this virtual machine")
	fs.StringVar(&c.ScaphandreURL, "scaphandre-url", c.ScaphandreURL, "`URL` of Scaphandre's /metrics (default: none)")
	fs.Float64Var(&c.ScaphandreFactor, "scaphandre-factor", c.ScaphandreFactor,
		"`factor` that corrects Scaphandre's counters, also in a virtual machine; 5 to 7 for its qemu exporter (0: "+
			"none)")
	fs.StringVar(&c.KeplerURL, "kepler-url", c.KeplerURL, "`URL` of Kepler's /metrics (default: none)")
	fs.DurationVar(&c.ScrapeInterval, "scrape-interval", c.ScrapeInterval,
		"scrape interval of Scaphandre, Kepler and DCGM exporter")
	fs.StringVar(&c.GPURoot, "gpu-root", c.GPURoot,
		"root `folder` of the libraries of NVIDIA's driver, e.g. / or /run/nvidia/driver")
	fs.StringVar(&c.DCGMURL, "dcgm-url", c.DCGMURL,
		"`URL` of the /metrics of NVIDIA's DCGM exporter, for GPUs that nvml cannot read (default: none)")
	fs.StringVar(&c.Profile, "profile", c.Profile,
		"`file` with this node's power profile in JSON (default: a typical server)")
	fs.Func("calibrate",
		"`name=factor` to calibrate a kind of meter or a domain, e.g. rapl=1.05 or package-0=0.98; may be repeated",
		c.addCalibration)
}

// AppendTo returns a function for flag.Func that appends the values of a repeatable flag to list.
func AppendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}

func (c *Config) addCalibration(s string) error {
	name, value, ok := strings.Cut(s, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q: want name=factor", s)
	}
	factor, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("%q: factor %q is not a number", s, value)
	}
	if c.Calibrate == nil {
		c.Calibrate = map[string]float64{}
	}
	c.Calibrate[name] = factor
	return nil
}

const (
	minCalibration, maxCalibration = 0.1, 10
	maxScaphandreFactor            = 100
	minScrapeInterval              = 500 * time.Millisecond
	maxScrapeInterval              = 5 * time.Minute
)

// domainName matches valid domain names. It is used to detect misspelled calibrations.
var domainName = regexp.MustCompile(`^(gpu-[a-z0-9-]{1,80}|` +
	`((kepler|scaphandre)-)?(wall|psys|package|core|uncore|dram|guest|model|host)(-[a-z0-9-]+)?)$`)

// Validate returns an error that lists all invalid options.
func (c *Config) Validate() error {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, name := range c.Meters {
		bad(!slices.Contains(kinds, name) && name != auto, "--meters: unknown meter %q: want %s, %s", name, auto,
			strings.Join(kinds, ", "))
	}
	bad(slices.Contains(c.Meters, auto) && len(c.Meters) > 1 || len(c.Meters) == 0,
		"--meters is %q: want only %s, or a list", strings.Join(c.Meters, ","), auto)
	for _, source := range []struct{ name, url string }{
		{NameScaphandre, c.ScaphandreURL}, {NameKepler, c.KeplerURL}, {NameDCGM, c.DCGMURL},
	} {
		bad(source.url == "" && c.asked(source.name), "--meters contains %s: --%s-url is required", source.name,
			source.name)
		bad(source.url != "" && !IsURL(source.url), "--%s-url is %q: want http://… or https://…", source.name,
			source.url)
	}
	bad(c.ScrapeInterval < minScrapeInterval || c.ScrapeInterval > maxScrapeInterval,
		"--scrape-interval is %v: want %v to %v", c.ScrapeInterval, minScrapeInterval, maxScrapeInterval)
	c.checkCalibration(bad)
	return errors.Join(errs...)
}

// IsURL reports whether text is an HTTP or HTTPS URL.
func IsURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (c *Config) checkCalibration(bad func(wrong bool, format string, args ...any)) {
	f := c.ScaphandreFactor
	bad(f != 0 && !(f >= minCalibration && f <= maxScaphandreFactor),
		"--scaphandre-factor is %v: want %v to %v, or 0 (none)", f, minCalibration, maxScaphandreFactor)
	for _, name := range slices.Sorted(maps.Keys(c.Calibrate)) {
		f = c.Calibrate[name]
		bad(!(f >= minCalibration && f <= maxCalibration), "--calibrate %s=%v: want a factor of %v to %v", name, f,
			minCalibration, maxCalibration)
		bad(!slices.Contains(kinds, name) && !domainName.MatchString(name),
			"--calibrate %s: want a kind of meter or a domain", name)
	}
}

// asked reports whether a meter was requested by name.
func (c *Config) asked(name string) bool { return slices.Contains(c.Meters, name) }

// scale returns the calibration factor of a domain in parts per million.
func (c *Config) scale(meter, domain string) int64 {
	return ppm(cmp.Or(c.Calibrate[domain], c.Calibrate[meter], 1))
}

// ppm converts a validated factor to parts per million.
func ppm(factor float64) int64 {
	scale, err := energy.Millionths(factor)
	if err != nil {
		panic(err)
	}
	return scale
}

// scaphandreScale multiplies a calibration factor, in parts per million, with the factor of Scaphandre's counters.
func (c *Config) scaphandreScale(scale int64) int64 {
	if c.ScaphandreFactor == 0 {
		return scale
	}
	return ppm(c.ScaphandreFactor * float64(scale) / 1e6)
}

// stale returns the time after which an unchanged or missing counter is considered unknown.
func (c *Config) stale() time.Duration { return max(staleAfter, 3*c.Interval) }
