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

	"github.com/kubenergy/kubenergy/internal/energy"
)

// The kinds of meters, by the names that --meters and --calibrate know them by.
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
	classPowercap   = "/sys/class/powercap" // the same, where only this one is mounted
)

// Config says which meters a node has and where they are.
type Config struct {
	// Meters are the kinds to open: "auto" alone, or a list. A meter of a list that cannot be opened is an error;
	// auto takes what is there, and the model last.
	Meters []string

	PowercapRoot string // folder of RAPL's zones
	HwmonRoot    string // folder of hwmon's devices

	// WallSensors are hwmon sensors that cover the whole machine, as "ina3221/VDD_IN": device or chip, and sensor or
	// label; those of several power supplies are added. Without any, only devices count that are known to cover all
	// of it.
	WallSensors []string

	GuestDir string // what the host shares with a virtual machine

	ScaphandreURL string // of its /metrics; "": none
	// ScaphandreFactor is what counters that Scaphandre wrote are multiplied by, in its /metrics and in the tree of
	// its qemu exporter, which counts too slowly by its loop's period (5 s and what a loop takes). 0: nothing is
	// corrected.
	ScaphandreFactor float64
	KeplerURL        string        // of its /metrics; "": none
	ScrapeInterval   time.Duration // how often either is asked

	GPURoot string // folder below which NVIDIA's driver has its library
	DCGMURL string // of the DCGM exporter's /metrics; "": none

	Profile string // file with the power profile of this node, in JSON; "": typical of servers

	// Calibrate are factors for kinds of meters ("rapl") or single domains ("package-0"), which go before.
	Calibrate map[string]float64

	Interval time.Duration        // between two reads of the meters
	Now      func() time.Duration // the node's clock since boot
}

// DefaultConfig returns what holds where the command line says nothing.
func DefaultConfig() Config {
	return Config{
		Meters: []string{auto}, PowercapRoot: defaultPowercap, HwmonRoot: "/sys/class/hwmon",
		GuestDir:       "/var/scaphandre",
		GPURoot:        "/",
		ScrapeInterval: 5 * time.Second, Interval: time.Second,
	}
}

// AddFlags adds a flag for each option.
func (c *Config) AddFlags(fs *flag.FlagSet) {
	fs.Func("meters", "comma-separated `kinds` of meters: auto, or of "+strings.Join(kinds, ", ")+" (default auto)",
		func(s string) error {
			c.Meters = strings.Split(s, ",")
			return nil
		})
	fs.StringVar(&c.PowercapRoot, "powercap-root", c.PowercapRoot,
		"`folder` of RAPL's zones; instead of the default also "+classPowercap)
	fs.StringVar(&c.HwmonRoot, "hwmon-root", c.HwmonRoot, "`folder` of hwmon's devices")
	fs.Func("wall-sensor",
		"`device/sensor` of hwmon that covers the whole machine, as ina3221/VDD_IN; may be repeated, and is then added",
		AppendTo(&c.WallSensors))
	fs.StringVar(&c.GuestDir, "guest-dir", c.GuestDir, "`folder` that the host of this virtual machine shares")
	fs.StringVar(&c.ScaphandreURL, "scaphandre-url", c.ScaphandreURL, "`URL` of Scaphandre's /metrics (default: none)")
	fs.Float64Var(&c.ScaphandreFactor, "scaphandre-factor", c.ScaphandreFactor,
		"`factor` that corrects Scaphandre's counters, also in a virtual machine: 5 to 7 for its qemu exporter (0: "+
			"none)")
	fs.StringVar(&c.KeplerURL, "kepler-url", c.KeplerURL, "`URL` of Kepler's /metrics (default: none)")
	fs.DurationVar(&c.ScrapeInterval, "scrape-interval", c.ScrapeInterval,
		"how often Scaphandre, Kepler or the DCGM exporter are asked")
	fs.StringVar(&c.GPURoot, "gpu-root", c.GPURoot,
		"`folder` below which NVIDIA's driver has its libraries, as / or /run/nvidia/driver")
	fs.StringVar(&c.DCGMURL, "dcgm-url", c.DCGMURL,
		"`URL` of the /metrics of NVIDIA's DCGM exporter, for GPUs that nvml cannot read (default: none)")
	fs.StringVar(&c.Profile, "profile", c.Profile,
		"`file` with this node's power profile in JSON (default: typical of servers)")
	fs.Func("calibrate",
		"`name=factor` for a kind of meter or a domain, as rapl=1.05 or package-0=0.98; may be repeated",
		c.addCalibration)
}

// AppendTo returns what appends the values of a flag that may be repeated.
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
		return fmt.Errorf("%q: the factor %q is no number", s, value)
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

// domainName are the names that domains can have, so that a misspelt calibration does not go unnoticed.
var domainName = regexp.MustCompile(`^(gpu-[a-z0-9-]{1,80}|` +
	`((kepler|scaphandre)-)?(wall|psys|package|core|uncore|dram|guest|model|host)(-[a-z0-9-]+)?)$`)

// Validate reports everything that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, name := range c.Meters {
		if !slices.Contains(kinds, name) && name != auto {
			bad("--meters: there is no %q: have %s, %s", name, auto, strings.Join(kinds, ", "))
		}
	}
	if slices.Contains(c.Meters, auto) && len(c.Meters) > 1 || len(c.Meters) == 0 {
		bad("--meters is %q: want %s alone, or a list", strings.Join(c.Meters, ","), auto)
	}
	for _, source := range []struct{ name, url string }{
		{NameScaphandre, c.ScaphandreURL}, {NameKepler, c.KeplerURL}, {NameDCGM, c.DCGMURL},
	} {
		switch {
		case source.url == "" && c.asked(source.name):
			bad("--meters names %s: want its --%s-url", source.name, source.name)
		case source.url != "" && !IsURL(source.url):
			bad("--%s-url is %q: want http://… or https://…", source.name, source.url)
		}
	}
	if c.ScrapeInterval < minScrapeInterval || c.ScrapeInterval > maxScrapeInterval {
		bad("--scrape-interval is %v: want %v to %v", c.ScrapeInterval, minScrapeInterval, maxScrapeInterval)
	}
	c.checkCalibration(bad)
	return errors.Join(errs...)
}

// IsURL reports whether a text is the URL of an HTTP server.
func IsURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (c *Config) checkCalibration(bad func(format string, args ...any)) {
	if f := c.ScaphandreFactor; f != 0 && !(f >= minCalibration && f <= maxScaphandreFactor) {
		bad("--scaphandre-factor is %v: want %v to %v, or 0 (none)", f, minCalibration, maxScaphandreFactor)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Calibrate)) {
		if f := c.Calibrate[name]; !(f >= minCalibration && f <= maxCalibration) {
			bad("--calibrate %s=%v: want a factor of %v to %v", name, f, minCalibration, maxCalibration)
		}
		if !slices.Contains(kinds, name) && !domainName.MatchString(name) {
			bad("--calibrate %s: want a kind of meter or a domain", name)
		}
	}
}

// asked reports whether a meter was asked for by its name.
func (c *Config) asked(name string) bool { return slices.Contains(c.Meters, name) }

// scale is the calibration of a domain in parts per million.
func (c *Config) scale(meter, domain string) int64 {
	return ppm(cmp.Or(c.Calibrate[domain], c.Calibrate[meter], 1))
}

// ppm makes a factor that was validated one of a [energy.Scale].
func ppm(factor float64) int64 {
	scale, err := energy.Millionths(factor)
	if err != nil {
		panic(err)
	}
	return scale
}

// scaphandreScale adds to a calibration, in parts per million, the factor that was declared for Scaphandre's counters.
func (c *Config) scaphandreScale(scale int64) int64 {
	if c.ScaphandreFactor == 0 {
		return scale
	}
	return ppm(c.ScaphandreFactor * float64(scale) / 1e6)
}

// stale is how long a counter may stand still, or stay away, before it counts as unknown.
func (c *Config) stale() time.Duration { return max(staleAfter, 3*c.Interval) }
