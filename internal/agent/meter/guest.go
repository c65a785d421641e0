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

// Guest reads, inside a virtual machine, the counter that its host shares as files: Scaphandre's qemu exporter, or a
// KubEnergy agent on the host, which also says whose machine this is.
//
// The file is opened anew each time: a descriptor that stays open shows for ever what the host replaced long ago. It
// may be empty or half written, and the host may write it less often than it is read:
//
//   - While neither the value nor the time of writing changes, the last reading stays. After 15 s the energy is
//     unknown,
//     and never zero. When the host writes again, the counter goes on: it includes what was used in between.
//   - An unchanged value that the host writes again and again means no use, after 15 s.
//   - A lower value is either half of one, or the counter began again. The third lower value in a row begins a new run.
//     Another run begins where the counter passes what it had reached before: if the three were halves, nothing is
//     counted that was not used.
//
// A machine may move to another host, which has another counter: kubenergy.json tells. It is read after each new value
// and before the value counts, so that a value of the new host is never taken for one of the old.
//
// A value is as old as the file, but not older than the last read.
type Guest struct {
	sys    *calls
	wall   func() time.Time // the clock that times of writing are compared with
	log    *slog.Logger
	path   string
	info   string
	domain energy.Domain
	ours   int64 // calibration, if the host is one of ours
	theirs int64 // and if it is Scaphandre
	factor bool  // one was declared for Scaphandre
	stale  time.Duration

	counter *energy.Counter
	last    energy.Reading
	known   bool          // last holds a reading, perhaps of the process before
	seen    bool          // it is one of this process
	written time.Time     // when it was written
	fresh   time.Duration // when it was seen to be written anew last
	looked  time.Duration // when the file was last looked at
	low     low
	reached uint64 // before the counter began again

	parent   *batch.Parent
	quality  energy.Quality
	asked    time.Duration // when info was last read
	infoText string        // what it held then
	moved    bool          // to another host, or under another name, since the last value
}

// Low are the values in a row that are below the last.
type low struct {
	count   int
	raw     uint64
	written time.Time
}

const believedLow = 3

// again reports whether another value below the last makes a counter that began again.
func (l *low) again(raw uint64, written time.Time) bool {
	switch {
	case l.count > 0 && raw == l.raw && written.Equal(l.written):
		return false // it was not written since
	case l.count > 0 && raw < l.raw:
		l.count = 0 // it still falls
	}
	l.count, l.raw, l.written = l.count+1, raw, written
	return l.count >= believedLow
}

const (
	guestEnergy = "intel-rapl:0/energy_uj"
	guestInfo   = "kubenergy.json"

	maxGuestInfo   = 4096
	maxNameInInfo  = 253
	guestInfoEvery = 10 * time.Second // a machine may move to another host
)

// NewGuest returns a meter of what the host shares. It need not be there yet.
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
		Period: period(g.stale), // the host writes when it likes
	})
}

// GuestTree reports whether dir holds what a host shares.
func GuestTree(dir string) bool {
	_, _, err := readSmallAt(&realCalls, filepath.Join(dir, guestEnergy), maxNumber)
	return err == nil
}

// guestHost is what our agent on the host says in kubenergy.json.
type guestHost struct {
	Host    string `json:"host"`
	VM      string `json:"vm"`
	Version int    `json:"version"`
	Quality string `json:"quality"`
}

// parseGuestInfo reads kubenergy.json. What it does not know it ignores: hosts may be newer than their guests.
func parseGuestInfo(text []byte) (batch.Parent, energy.Quality, error) {
	var h guestHost
	if err := json.Unmarshal(text, &h); err != nil {
		return batch.Parent{}, 0, err
	}
	for _, name := range []string{h.Host, h.VM} {
		if name == "" || len(name) > maxNameInInfo ||
			strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return batch.Parent{}, 0, fmt.Errorf("%.64q is no name", name)
		}
	}
	if h.Version < 1 {
		return batch.Parent{}, 0, fmt.Errorf("version %d: want 1 or more", h.Version)
	}
	quality := energy.Estimated // of a host that does not say
	if err := quality.UnmarshalText([]byte(h.Quality)); err != nil && h.Quality != "" {
		return batch.Parent{}, 0, err
	}
	return batch.Parent{Host: h.Host, VM: h.VM}, min(quality, energy.Derived), nil
}

// readInfo reads which host this is. Without an answer, the last known host stays.
func (g *Guest) readInfo(now time.Duration) {
	g.asked = now
	text, err := readSmall(g.sys, g.info, maxGuestInfo)
	if err != nil || string(text) == g.infoText {
		return // Scaphandre has none
	}
	g.infoText = string(text)
	parent, quality, err := parseGuestInfo(text)
	if err != nil {
		g.log.Warn("what the host says of itself cannot be read", "file", g.info, "err", err)
		return
	}
	if g.parent == nil && g.theirs != g.ours {
		g.counter = g.newCounter(g.ours) // what corrects Scaphandre is not for us
		if g.known {
			g.counter.Resume(g.last)
			g.counter.Break()
		}
	}
	if g.parent == nil || *g.parent != parent {
		g.log.Info("this is a virtual machine", "host", parent.Host, "vm", parent.VM)
		g.moved = g.known && (g.parent != nil || g.seen) // the other host's counter is another one
	}
	g.parent, g.quality = &parent, quality
}

// ParentOf returns the host and the name of this virtual machine, or nil if no host says them.
func ParentOf(meters []Meter) *batch.Parent {
	if g, ok := Of[*Guest](meters); ok {
		return g.parent
	}
	return nil
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
		return into, errors.Join(err, fmt.Errorf("reading %s: the host has not written it for %v", g.path,
			age.Round(time.Second)))
	}
	return append(into, g.last), err
}

// look brings last up to date.
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
		return nil // it is being written
	case err != nil:
		return fmt.Errorf("reading %s: %w", g.path, err)
	}
	if g.seen && raw == g.last.Raw && written.Equal(g.written) {
		return nil
	}
	moved := g.moved
	if g.readInfo(now); g.moved && !moved {
		return g.look(now) // the value may be the former host's
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
	} else if g.parent == nil && !g.factor {
		g.log.Warn("the counter that this virtual machine is given seems to be Scaphandre's, which counts too slowly "+
			"by its loop's period: "+
			"declare --scaphandre-factor", "file", g.path)
	}
	g.low = low{}
	g.last = g.counter.Next(raw, at)
	g.last.Quality = min(g.last.Quality, g.quality)
	g.known, g.seen, g.written, g.fresh = true, true, written, now
}

// Close implements Meter.
func (g *Guest) Close() error { return nil }
