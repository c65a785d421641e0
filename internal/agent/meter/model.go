package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Model estimates what the whole machine uses from how busy its CPUs are, by a power profile. It is no meter, and
// says so: everything that comes from it is estimated.
type Model struct {
	profile *energy.Profile // nil: typical of a server with as many CPUs as there are
	typical *energy.Profile
	cpus    float64
	domain  energy.Domain
	scale   float64

	known   bool
	resumed bool
	last    energy.Reading // Raw is the CPU time of the node in nanoseconds
	rest    float64        // what is less than a microjoule
	maxGap  time.Duration
}

// The power of one hardware thread, idle and full, in the middle of 15 server architectures from Sandy Bridge to EPYC
// 4th Gen in the coefficients of Cloud Carbon Footprint. Half of them are within 0.65 and 1.1 W idle and 2.6 and 5 W
// full; how far a node is from the middle only a measurement can tell.
const (
	typicalIdle   energy.Watts = 0.7668
	typicalFull   energy.Watts = 4.0632
	typicalSource              = "Cloud Carbon Footprint from SPECpower_ssj2008, per hardware thread: median of 15 " +
		"server architectures"
)

// TypicalProfile returns the profile of a server of which nothing is known but its number of hardware threads.
func TypicalProfile(cpus float64) *energy.Profile {
	idle := typicalIdle * energy.Watts(cpus)
	return &energy.Profile{
		Name: "typical", Idle: idle, Max: typicalFull * energy.Watts(cpus), Exponent: 1, Sleep: idle,
		Quality: energy.Estimated, Source: typicalSource,
	}
}

const (
	maxProfile  = 1 << 20
	maxModelGap = 5 * time.Minute // a machine that was asleep for longer drew what no model says
)

// ReadProfile reads a profile in JSON.
func ReadProfile(path string) (*energy.Profile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe does not make it wait
	if err != nil {
		return nil, fmt.Errorf("reading the power profile: %w", err)
	}
	defer f.Close()
	var text []byte
	info, err := f.Stat()
	switch {
	case err != nil:
	case !info.Mode().IsRegular():
		err = errNotRegular
	default:
		text, err = io.ReadAll(io.LimitReader(f, maxProfile+1))
	}
	p := &energy.Profile{}
	switch {
	case err != nil:
	case len(text) > maxProfile:
		err = errTooLong
	default:
		err = json.Unmarshal(text, p)
	}
	if err == nil && p.Power(1) <= 0 {
		err = errors.New("a machine that never draws power")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the power profile %s: %w", path, err)
	}
	return p, nil
}

// NewModel returns a model of the configured profile, or of a typical server.
func NewModel(c Config, log *slog.Logger) (*Model, error) {
	d := energy.Domain{Kind: energy.Model, Name: NameModel}
	m := &Model{domain: d, scale: float64(c.scale(NameModel, d.Name)) / 1e6, maxGap: max(maxModelGap, 3*c.Interval)}
	if c.Profile == "" {
		return m, nil
	}
	var err error
	if m.profile, err = ReadProfile(c.Profile); err != nil {
		return nil, err
	}
	log.Info("power profile", "name", m.profile.Name, "idleWatts", float64(m.profile.Power(0)), "fullWatts",
		float64(m.profile.Power(1)))
	return m, nil
}

// Profile returns the profile that a node with so many CPUs is estimated by.
func (m *Model) Profile(cpus float64) *energy.Profile {
	if m.profile != nil {
		return m.profile
	}
	if m.typical == nil || m.cpus != cpus {
		m.typical, m.cpus = TypicalProfile(cpus), cpus
	}
	return m.typical
}

// Name implements Meter.
func (m *Model) Name() string { return NameModel }

// Domains implements Meter.
func (m *Model) Domains() []energy.Domain { return []energy.Domain{m.domain} }

// Resume implements Meter. How busy the node was meanwhile is known: nothing is lost.
func (m *Model) Resume(last []energy.Reading) {
	if r, ok := find(last, m.domain); ok && r.Raw > 0 && r.Raw <= math.MaxInt64 && r.Total >= 0 {
		m.last, m.known, m.resumed = r, true, true
	}
}

var errNoCPUTime = errors.New("the node's CPU time is not known, without which no model works")

// Read implements Meter.
func (m *Model) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	if t.Busy <= 0 || !(t.CPUs > 0) {
		return into, errNoCPUTime
	}
	at := t.At
	if at == 0 {
		at = t.Now()
	}
	if m.known && at <= m.last.At && !m.resumed {
		return append(into, m.last), nil
	}
	before := m.last
	m.last = energy.Reading{
		Domain: m.domain, At: at, Total: before.Total, Run: before.Run, Raw: uint64(t.Busy), Quality: energy.Estimated,
	}
	dt, busy := at-before.At, t.Busy-time.Duration(before.Raw)
	known := m.known
	m.known, m.resumed = true, false
	if !known || dt <= 0 || dt > m.maxGap || busy < 0 || before.Total > math.MaxInt64/2 {
		m.begin(known)
		return append(into, m.last), nil
	}
	u := busy.Seconds() / (dt.Seconds() * t.CPUs)
	used := float64(m.Profile(t.CPUs).Power(u).For(dt))*m.scale*1e6 + m.rest
	whole := math.Floor(used)
	m.rest = used - whole
	m.last.Total += energy.Microjoules(whole)
	return append(into, m.last), nil
}

// begin makes the last reading the first of a run. As with counters, the number is none that a former process used.
func (m *Model) begin(known bool) {
	m.rest = 0
	if m.last.Total > math.MaxInt64/2 {
		m.last.Total = 0
	}
	if known {
		m.last.Run++
		return
	}
	m.last.Run = uint32(m.last.At / time.Millisecond)
}

// Close implements Meter.
func (m *Model) Close() error { return nil }
