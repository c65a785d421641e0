package meter

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Open opens the configured meters. With auto, it opens all available ones:
//
//   - hwmon, if there are hardware monitors, which also provide temperatures;
//   - rapl, if its zones can be read;
//   - guest, if the file of the host exists (if configured by name, it may be created later);
//   - scaphandre and kepler, if their URLs are configured;
//   - the model, which is used if no other meter can be read;
//   - nvml, if the library of NVIDIA's driver exists, and dcgm, if its URL is configured. They read GPUs, which are
//     metered in addition to the node. nvml takes precedence.
//
// It is an error if a meter configured by name cannot be opened.
func Open(c Config, log *slog.Logger) ([]Meter, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	var meters []Meter
	var errs []error
	for _, kind := range openers {
		name := kind.name
		if !c.asked(name) && (!c.asked(auto) || kind.there != nil && !kind.there(&c)) {
			continue
		}
		m, err := kind.open(c, log)
		switch {
		case err == nil:
			meters = append(meters, m)
			// explicitly configured
		case c.asked(name), name == NameModel, name == NameHwmon && len(c.WallSensors) > 0:
			errs = append(errs, err)
		default:
			log.Warn("Skipped an unavailable meter", "meter", name, "err", err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		Close(meters)
		return nil, err
	}
	c.warn(meters, log)
	return meters, nil
}

// warn logs warnings about probable configuration errors.
func (c *Config) warn(meters []Meter, log *slog.Logger) {
	if r := NewRoot(c, meters); c.asked(auto) && r.current.meter != nil && r.current.meter.Name() == NameModel {
		log.Warn("No meter of this node can be read, so its energy is estimated by a model", "hwmon", c.HwmonRoot,
			"rapl", c.PowercapRoot, "guest", c.GuestDir)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Calibrate)) {
		if !slices.ContainsFunc(meters, func(m Meter) bool { return calibrates(name, m) }) {
			log.Warn("Calibration applies to no meter or domain in use", "calibrate", name)
		}
	}
}

// calibrates reports whether a calibration applies to a meter, or may apply after the first response of another
// agent.
func calibrates(name string, m Meter) bool {
	if _, scraped := m.(*Scraped); scraped && strings.HasPrefix(name, m.Name()+"-") {
		return true
	}
	if _, ok := m.(*Boards); ok && strings.HasPrefix(name, "gpu-") {
		return true
	}
	return name == m.Name() || slices.ContainsFunc(m.Domains(), func(d energy.Domain) bool { return d.Name == name })
}

// openers are the kinds of meters in the order in which they are opened.
var openers = []struct {
	name  string
	there func(*Config) bool // whether auto opens it; nil for always
	open  func(Config, *slog.Logger) (Meter, error)
}{
	// It is an error if configured sensors do not exist.
	{NameHwmon, func(c *Config) bool { return exists(c.HwmonRoot) || len(c.WallSensors) > 0 }, openSensors},
	{NameRAPL, func(c *Config) bool {
		return exists(c.PowercapRoot) || c.PowercapRoot == defaultPowercap && exists(classPowercap)
	}, as(NewRAPL)},
	{NameGuest, func(c *Config) bool { return GuestTree(c.GuestDir) }, as(NewGuest)},
	{NameScaphandre, func(c *Config) bool { return c.ScaphandreURL != "" }, as(NewScaphandre)},
	{NameKepler, func(c *Config) bool { return c.KeplerURL != "" }, as(NewKepler)},
	{NameModel, nil, as(NewModel)},
	{NameNVML, (*Config).hasDriver, as(NewNVML)},
	{NameDCGM, func(c *Config) bool { return c.DCGMURL != "" }, as(NewDCGM)},
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func openSensors(c Config, log *slog.Logger) (Meter, error) {
	h, err := NewHwmon(c, log)
	if err == nil && c.asked(NameHwmon) && len(h.Domains()) == 0 {
		err = fmt.Errorf("opening hwmon: no sensor is known to cover the whole machine: set --wall-sensor; "+
			"have %s", h.choice())
	}
	return h, err
}

// as converts the constructor of a meter to an opener.
func as[M Meter](open func(Config, *slog.Logger) (M, error)) func(Config, *slog.Logger) (Meter, error) {
	return func(c Config, log *slog.Logger) (Meter, error) { return open(c, log) }
}

// Close closes all meters.
func Close(meters []Meter) {
	for _, m := range slices.Backward(meters) {
		_ = m.Close() // meters do not write
	}
}
