package meter

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// RAPL reads the energy counters of Intel and AMD processors through the kernel's powercap tree. It needs to own
// the files, because the kernel restricts read access to the owner since CVE-2020-8694.
//
// The domains overlap: psys includes packages, and a package includes its core and uncore. They are not added up
// here. If a counter is available both by MSR and by MMIO, it is read once.
type RAPL struct {
	zones   []raplZone
	domains []energy.Domain
	stale   time.Duration
}

type raplZone struct {
	domain  energy.Domain
	file    counterFile
	limit   uint64 // maximum value of the counter; 0 if unknown
	counter *energy.Counter
	changes changeDetector

	raw  uint64
	gone bool // the device was removed since the last reading
	err  error
}

const (
	maxZones   = 256 // 8 sockets with 2 dies and 5 domains have 85
	probes     = 3   // number of attempts to read a zone at the start
	probePause = 20 * time.Millisecond

	// maxStall is the maximum duration of reading all zones. If it is exceeded, the process was suspended, and the
	// common timestamp is too inaccurate.
	maxStall = 100 * time.Millisecond
)

// envelope is the maximum power of a domain by kind. A higher power means that the counter was reset or replaced.
// It also determines the maximum gap without an undetected wraparound, so it must not be much too high: AMD's
// counters wrap after 65 kJ, which takes 68 s at 1.2 times this power.
var envelope = map[energy.DomainKind]energy.Watts{
	energy.Wall:    20_000,
	energy.Psys:    3000,
	energy.Package: 800,
	energy.Core:    800,
	energy.Uncore:  800,
	energy.DRAM:    400,
	energy.Guest:   20_000,
}

// NewRAPL finds the readable zones. If a zone cannot be read, all zones of its kind are omitted, because a subset
// of the packages does not cover the machine. If no zone can be read, it returns an error with the reason.
func NewRAPL(c Config, log *slog.Logger) (*RAPL, error) { return newRAPL(c, log, &realCalls) }

func newRAPL(c Config, log *slog.Logger, sys *calls) (*RAPL, error) {
	zones, err := findZones(sys, c.PowercapRoot)
	if len(zones) == 0 && err == nil && c.PowercapRoot == defaultPowercap {
		zones, err = findZones(sys, classPowercap)
	}
	if err != nil {
		return nil, fmt.Errorf("opening RAPL: %w", err)
	}
	if len(zones) == 0 {
		return nil, fmt.Errorf("opening RAPL: no zones in %s: RAPL is not supported, or its kernel module is not "+
			"loaded", c.PowercapRoot)
	}
	r := &RAPL{stale: c.stale()}
	err = r.open(c, sys, zones)
	for i := range r.zones {
		r.domains = append(r.domains, r.zones[i].domain)
	}
	switch {
	case len(r.zones) == 0 && err == nil:
		return nil, fmt.Errorf("opening RAPL: no zone in %s has a counter", c.PowercapRoot)
	case len(r.zones) == 0:
		return nil, fmt.Errorf("opening RAPL: %w", err)
	case err != nil:
		log.Warn("Failed to read some RAPL zones, ignoring all zones of the same kinds", "err", err)
	}
	return r, nil
}

// open opens the readable zones. It closes all zones of a kind if one of them cannot be read.
func (r *RAPL) open(c Config, sys *calls, zones []zoneDir) error {
	var errs []error
	lost := map[energy.DomainKind]bool{}
	for _, same := range byDomain(zones) {
		z, err := openZone(c, sys, same)
		if err != nil {
			errs = append(errs, err)
			lost[same[0].domain.Kind] = true
			continue
		}
		if z != nil {
			r.zones = append(r.zones, *z)
		}
	}
	r.zones = slices.DeleteFunc(r.zones, func(z raplZone) bool {
		if lost[z.domain.Kind] {
			z.file.close()
		}
		return lost[z.domain.Kind]
	})
	err := errors.Join(errs...)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w\nonly the owner may read these files: run the agent as root, without any capability and "+
			"not in a user namespace, or assign the files to a group of the agent with a udev or tmpfiles rule "+
			"(mode 0440)", err)
	}
	return err
}

// openZone opens the first readable zone of a domain. It returns nil for a psys zone without a counter, which the
// kernel exposes on boards that do not support it, or for each socket if only one of them does. A package counter
// of 0 is an error; it occurs in virtual machines with an emulated MSR.
func openZone(c Config, sys *calls, same []zoneDir) (*raplZone, error) {
	var errs []error
	for _, dir := range same {
		z := &raplZone{domain: dir.domain, file: counterFile{sys: sys, path: filepath.Join(dir.path, "energy_uj")}}
		raw, err := probe(&z.file)
		if err == nil && raw == 0 && mustMove(z.domain.Kind) {
			if z.domain.Kind == energy.Psys {
				z.file.close()
				return nil, nil
			}
			err = fmt.Errorf("reading %s: the counter is 0", z.file.path)
		}
		if err != nil {
			z.file.close()
			errs = append(errs, err)
			continue
		}
		limit := counterFile{sys: sys, path: filepath.Join(dir.path, "max_energy_range_uj")}
		z.limit, _ = limit.readUint() // optional
		limit.close()
		z.counter = energy.NewCounter(energy.CounterOptions{
			Domain: z.domain, Quality: energy.Measured, Range: z.limit, MicrojoulesPerUnit: 1,
			Max: envelope[z.domain.Kind], Scale: c.scale(NameRAPL, z.domain.Name),
		})
		return z, nil
	}
	return nil, errors.Join(errs...)
}

// probe reads a zone for the first time, with a limited number of attempts.
func probe(f *counterFile) (raw uint64, err error) {
	for i := range probes {
		if i > 0 {
			time.Sleep(probePause)
		}
		if raw, err = f.readUint(); err == nil || errors.Is(err, fs.ErrPermission) {
			break
		}
	}
	return raw, err
}

// Name implements Meter.
func (r *RAPL) Name() string { return NameRAPL }

// Domains implements Meter.
func (r *RAPL) Domains() []energy.Domain { return r.domains }

// Resume implements Meter.
func (r *RAPL) Resume(last []energy.Reading) {
	for i := range r.zones {
		r.zones[i].counter.Resume(last...)
	}
}

// Read implements Meter. All zones are read within microseconds and get the same timestamp.
func (r *RAPL) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	at, stalled := r.sweep(t)
	if stalled {
		at, _ = r.sweep(t)
	}
	var errs []error
	for i := range r.zones {
		z := &r.zones[i]
		if z.err == nil {
			z.err = z.check(at, r.stale)
		}
		if z.gone = z.gone || isGone(z.err); z.gone {
			z.counter.Break() // the next value may be of another counter
		}
		if z.err != nil {
			errs = append(errs, z.err)
			continue
		}
		into = append(into, z.counter.Next(z.raw, at))
		z.gone = false
	}
	return into, errors.Join(errs...)
}

func (r *RAPL) sweep(t Tick) (at time.Duration, stalled bool) {
	before := t.Now()
	for i := range r.zones {
		z := &r.zones[i]
		z.raw, z.err = z.file.readUint()
	}
	after := t.Now()
	return before + (after-before)/2, after-before > maxStall
}

// check returns an error if a value is invalid or has not changed for too long.
func (z *raplZone) check(at, stale time.Duration) error {
	if z.limit > 0 && z.raw > z.limit {
		return fmt.Errorf("reading %s: %d exceeds the counter's range of %d", z.file.path, z.raw, z.limit)
	}
	if age := z.changes.beat(z.raw, at); mustMove(z.domain.Kind) && age > stale {
		return fmt.Errorf("reading %s: counter does not advance: %d for %v", z.file.path, z.raw, age.Round(time.Second))
	}
	return nil
}

// Close implements Meter.
func (r *RAPL) Close() error {
	for i := range r.zones {
		r.zones[i].file.close()
	}
	return nil
}
