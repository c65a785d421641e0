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

// RAPL reads the energy counters of Intel's and AMD's processors through the kernel's powercap tree. It needs to own
// the files: since CVE-2020-8694 the kernel lets no one else read them.
//
// Its domains overlap: psys covers packages, a package covers its core and uncore. Nothing is added here. A counter
// that the tree offers twice, once by MSR and once by MMIO, is read once.
type RAPL struct {
	zones   []raplZone
	domains []energy.Domain
	stale   time.Duration
}

type raplZone struct {
	domain  energy.Domain
	file    counterFile
	limit   uint64 // the counter's highest value; 0 if unknown
	counter *energy.Counter
	changes changeDetector

	raw  uint64
	gone bool // its device was away since it was last read
	err  error
}

const (
	maxZones   = 256 // 8 sockets of 2 dies with 5 domains have 85
	probes     = 3   // how often a zone is tried at the start
	probePause = 20 * time.Millisecond

	// maxStall is how long reading all zones may take before their common time says too little: the process was
	// stopped.
	maxStall = 100 * time.Millisecond
)

// envelope is what no domain of a kind ever draws: more is not energy but another counter. It also says after what
// gap a wrap may hide, so it must not be far off: AMD's counters hold 65 kJ, which is 68 s of it.
var envelope = map[energy.DomainKind]energy.Watts{
	energy.Wall:    20_000,
	energy.Psys:    3000,
	energy.Package: 800,
	energy.Core:    800,
	energy.Uncore:  800,
	energy.DRAM:    400,
	energy.Guest:   20_000,
}

// NewRAPL finds the zones that can be read. Of a kind of domain, all zones must be readable, or it is left out: half of
// the packages is not what a machine uses. Without any, the error says why.
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
		return nil,
			fmt.Errorf("opening RAPL: no zones in %s: this machine has none, or its kernel module is not loaded",
				c.PowercapRoot)
	}
	r := &RAPL{stale: c.stale()}
	err = r.open(c, sys, zones)
	for i := range r.zones {
		r.domains = append(r.domains, r.zones[i].domain)
	}
	switch {
	case len(r.zones) == 0 && err == nil:
		return nil, fmt.Errorf("opening RAPL: no zone in %s counts", c.PowercapRoot)
	case len(r.zones) == 0:
		return nil, fmt.Errorf("opening RAPL: %w", err)
	case err != nil:
		log.Warn("some RAPL zones cannot be read; domains of their kinds are unknown", "err", err)
	}
	return r, nil
}

// open takes what can be read, and closes it again if another zone of its kind cannot.
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
		err = fmt.Errorf("%w\nthe kernel lets only their owner read these files: run the agent as root, without any "+
			"capability and not in a "+
			"user namespace, or give the files to a group of the agent's with a udev or tmpfiles rule (mode 0440)", err)
	}
	return err
}

// openZone opens the first of several zones of one domain that can be read. It returns nil for a psys zone that does
// not count: the kernel offers it where the board has no such counter, and one per socket where only one has it. A
// package that shows 0 is one of a virtual machine, whose host answers for hardware that it does not show.
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
			err = fmt.Errorf("reading %s: 0: it does not count", z.file.path)
		}
		if err != nil {
			z.file.close()
			errs = append(errs, err)
			continue
		}
		z.limit, _ = readUint(sys, filepath.Join(dir.path, "max_energy_range_uj")) // without it a wrap is a break
		z.counter = energy.NewCounter(energy.CounterOptions{
			Domain: z.domain, Quality: energy.Measured, Range: z.limit, MicrojoulesPerUnit: 1,
			Max: envelope[z.domain.Kind], Scale: c.scale(NameRAPL, z.domain.Name),
		})
		return z, nil
	}
	return nil, errors.Join(errs...)
}

// probe reads a zone for the first time. What fails thrice is taken for a zone without a counter.
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

// Read implements Meter. All zones are read within microseconds, and have the time in the middle.
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
			z.counter.Break() // what comes next is not what was before
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

// check tells a value that may be counted from one that says nothing.
func (z *raplZone) check(at, stale time.Duration) error {
	if z.limit > 0 && z.raw > z.limit {
		return fmt.Errorf("reading %s: %d is beyond the counter's range of %d", z.file.path, z.raw, z.limit)
	}
	if age := z.changes.beat(z.raw, at); mustMove(z.domain.Kind) && age > stale {
		return fmt.Errorf("reading %s: it does not count: %d for %v", z.file.path, z.raw, age.Round(time.Second))
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
