package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Guest reads the energy counter that the host of this virtual machine shares as a file. The file is written by
// Scaphandre's qemu exporter or by a KubEnergy agent on the host, which also provides the names of the host and the
// machine.
//
// The file is opened for each reading, because an open descriptor would refer to a replaced file. The file may be
// empty or partially written, and the host may write it less often than it is read:
//
//   - While neither the value nor the modification time changes, the last reading remains valid. After 15 s, the energy
//     is unknown, not zero. When the host writes again, the counter continues and includes the energy used in between.
//   - A value that the host writes repeatedly without a change for 15 s means that no energy was used.
//   - A lower value is either partially written, or the counter was reset. The third consecutive lower value starts a
//     new run. Another run starts when the counter exceeds its previous maximum, so that energy is not overcounted if
//     the three values were partially written.
//
// A machine may migrate to another host, which has a different counter. This is detected with kubenergy.json, which
// is read after each new value and before the value is used, so that a value of the new host is never attributed to
// the old one.
//
// The time of a value is the modification time of the file, but not before the last reading.
type Guest struct {
	sys    *calls
	wall   func() time.Time // clock to compare with modification times
	log    *slog.Logger
	path   string
	info   string
	domain energy.Domain
	ours   int64 // calibration factor if the host runs a KubEnergy agent
	theirs int64 // calibration factor if the host runs Scaphandre
	factor bool  // a factor for Scaphandre is configured
	stale  time.Duration

	counter *energy.Counter
	last    energy.Reading
	known   bool          // last is valid, possibly from a previous process
	seen    bool          // last is from this process
	written time.Time     // modification time of last
	fresh   time.Duration // time when the file was last found to be modified
	looked  time.Duration // time when the file was last read
	low     low
	reached uint64 // maximum value before a reset; 0 if none

	parent   batch.Parent // empty if unknown
	quality  energy.Quality
	asked    time.Duration // time when info was last read
	infoText string        // content of info when last read
	moved    bool          // the machine or host name has changed since the last value
}

// low counts consecutive values below the last one.
type low struct {
	count   int
	raw     uint64
	written time.Time
}

const believedLow = 3

// again reports whether another lower value means that the counter was reset.
func (l *low) again(raw uint64, written time.Time) bool {
	switch {
	case l.count > 0 && raw == l.raw && written.Equal(l.written):
		return false // not written since
	case l.count > 0 && raw < l.raw:
		l.count = 0 // still decreasing
	}
	l.count, l.raw, l.written = l.count+1, raw, written
	return l.count >= believedLow
}

const (
	guestEnergy = "intel-rapl:0/energy_uj"
	guestInfo   = "kubenergy.json"

	maxGuestInfo   = 4096
	maxNameInInfo  = 253
	guestInfoEvery = 10 * time.Second // the machine may have migrated to another host
)

// NewGuest returns a meter of the counter that the host shares. The file does not need to exist yet.
func NewGuest(c Config, log *slog.Logger) (*Guest, error) {
	g := &Guest{
		sys: &realCalls, wall: time.Now, log: log, stale: c.stale(), factor: c.ScaphandreFactor != 0,
		path: filepath.Join(c.GuestDir, guestEnergy), info: filepath.Join(c.GuestDir, guestInfo),
		domain: energy.Domain{Kind: energy.Guest, Name: NameGuest}, quality: energy.Derived,
	}
	g.ours = c.scale(NameGuest, g.domain.Name)
	g.theirs = c.scaphandreScale(g.ours)
	g.counter = g.newCounter(g.theirs)
	g.readInfo(c.Now())
	return g, nil
}

func (g *Guest) newCounter(scale int64) *energy.Counter {
	return energy.NewCounter(energy.CounterOptions{
		Domain: g.domain, Quality: energy.Derived, MicrojoulesPerUnit: 1, Max: envelope[energy.Guest], Scale: scale,
		Period: period(g.stale), // the host may write at any interval
	})
}

// GuestTree reports whether dir contains a counter shared by a host.
func GuestTree(dir string) bool {
	_, _, err := readSmallAt(&realCalls, filepath.Join(dir, guestEnergy), maxNumber)
	return err == nil
}

// guestHost is the content of kubenergy.json, which is written by the agent on the host.
type guestHost struct {
	batch.Parent

	Version int    `json:"version"`
	Quality string `json:"quality"`
}

// parseGuestInfo parses kubenergy.json. It ignores unknown fields, because the host may run a newer version.
func parseGuestInfo(text []byte) (batch.Parent, energy.Quality, error) {
	var h guestHost
	if err := json.Unmarshal(text, &h); err != nil {
		return batch.Parent{}, 0, err
	}
	for _, name := range []string{h.Host, h.VM} {
		if name == "" || len(name) > maxNameInInfo ||
			strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return batch.Parent{}, 0, fmt.Errorf("invalid name %.64q", name)
		}
	}
	if h.Version < 1 {
		return batch.Parent{}, 0, fmt.Errorf("version %d: want at least 1", h.Version)
	}
	quality := energy.Estimated // default if the host does not report a quality
	if err := quality.UnmarshalText([]byte(h.Quality)); err != nil && h.Quality != "" {
		return batch.Parent{}, 0, err
	}
	return h.Parent, min(quality, energy.Derived), nil
}

// readInfo reads kubenergy.json. If it cannot be read, the last known host remains valid.
func (g *Guest) readInfo(now time.Duration) {
	g.asked = now
	text, err := readSmall(g.sys, g.info, maxGuestInfo)
	if err != nil || string(text) == g.infoText {
		return // does not exist with Scaphandre
	}
	g.infoText = string(text)
	parent, quality, err := parseGuestInfo(text)
	if err != nil {
		g.log.Warn("Failed to read the names of the host and this machine", "file", g.info, "err", err)
		return
	}
	unknown := g.parent == batch.Parent{}
	if unknown && g.theirs != g.ours {
		g.counter = g.newCounter(g.ours) // Scaphandre's factor does not apply
		if g.known {
			g.counter.Resume(g.last)
			g.counter.Break()
		}
	}
	if g.parent != parent {
		g.log.Info("Detected a virtual machine", "host", parent.Host, "vm", parent.VM)
		g.moved = g.known && (!unknown || g.seen) // the counter is that of another host
	}
	g.parent, g.quality = parent, quality
}

// ParentOf returns the names of the host and this virtual machine, which are empty if they are unknown.
func ParentOf(meters []Meter) (parent batch.Parent) {
	if g, ok := Of[*Guest](meters); ok {
		parent = g.parent
	}
	return parent
}

// Name implements Meter.
func (g *Guest) Name() string { return NameGuest }

// Domains implements Meter.
func (g *Guest) Domains() []energy.Domain { return []energy.Domain{g.domain} }

// Resume implements Meter.
func (g *Guest) Resume(last []energy.Reading) {
	if r, ok := find(last, g.domain); ok {
		g.counter.Resume(r)
		g.last, g.known = r, true
	}
}

// Read implements Meter.
func (g *Guest) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	now := t.Now()
	if now-g.asked >= guestInfoEvery {
		g.readInfo(now)
	}
	err := g.look(now)
	g.looked = now
	if !g.seen {
		return into, err
	}
	if age := now - g.fresh; age > g.stale {
		return into, errors.Join(err, fmt.Errorf("reading %s: not written by the host for %v", g.path,
			age.Round(time.Second)))
	}
	return append(into, g.last), err
}

// look updates last if the file was modified.
func (g *Guest) look(now time.Duration) error {
	text, written, err := readSmallAt(g.sys, g.path, maxNumber-1)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !g.seen {
			return fmt.Errorf("waiting for the host: %w", err)
		}
		return err
	}
	raw, err := parseUint(text)
	switch {
	case errors.Is(err, errEmpty) && g.seen:
		return nil // the host is writing the file
	case err != nil:
		return fmt.Errorf("reading %s: %w", g.path, err)
	}
	if g.seen && raw == g.last.Raw && written.Equal(g.written) {
		return nil
	}
	moved := g.moved
	if g.readInfo(now); g.moved && !moved {
		return g.look(now) // the value may be from the previous host
	}
	g.record(raw, written, now)
	return nil
}

func (g *Guest) record(raw uint64, written time.Time, now time.Duration) {
	switch {
	case g.moved:
		g.moved, g.reached = false, 0
		g.counter.Break()
	case g.known && raw < g.last.Raw:
		if !g.low.again(raw, written) {
			return
		}
		g.reached = max(g.reached, g.last.Raw)
		g.counter.Break()
	case g.reached > 0 && raw >= g.reached:
		g.reached = 0
		g.counter.Break()
	}
	at := now
	if g.seen {
		at = min(max(now-g.wall().Sub(written), g.looked, g.last.At), now)
	} else if g.parent == (batch.Parent{}) && !g.factor {
		g.log.Warn("Counter appears to be written by Scaphandre and increases too slowly because of the period "+
			"of its loop, set --scaphandre-factor", "file", g.path)
	}
	g.low = low{}
	g.last = g.counter.Next(raw, at)
	g.last.Quality = min(g.last.Quality, g.quality)
	g.known, g.seen, g.written, g.fresh = true, true, written, now
}

// Close implements Meter.
func (g *Guest) Close() error { return nil }
