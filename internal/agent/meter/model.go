package meter

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Model estimates the energy of the whole machine from the CPU utilization and a power profile. All of its readings
// have quality estimated.
type Model struct {
	profile *energy.Profile // nil for a typical server with the same number of CPUs
	domain  energy.Domain
	scale   float64

	known   bool
	resumed bool
	last    energy.Reading // Raw is the CPU time of the node, in nanoseconds
	rest    float64        // remainder below one microjoule
	maxGap  time.Duration
}

// Idle and full power of a hardware thread: the median of 15 server architectures from Sandy Bridge to EPYC 4th Gen
// in the coefficients of Cloud Carbon Footprint. Half of the architectures are between 0.65 and 1.1 W idle and 2.6
// and 5 W at full load. The deviation of a specific node is unknown without a measurement.
const (
	typicalIdle   energy.Watts = 0.7668
	typicalFull   energy.Watts = 4.0632
	typicalSource              = "Cloud Carbon Footprint from SPECpower_ssj2008, per hardware thread: median of 15 " +
		"server architectures"
)

// TypicalProfile returns the profile of a typical server with the given number of hardware threads.
func TypicalProfile(cpus float64) *energy.Profile {
	idle := typicalIdle * energy.Watts(cpus)
	return &energy.Profile{
		Name: "typical", Idle: idle, Max: typicalFull * energy.Watts(cpus), Exponent: 1, Sleep: idle,
		Quality: energy.Estimated, Source: typicalSource,
	}
}

const (
	maxProfile  = 1 << 20
	maxModelGap = 5 * time.Minute // after a longer sleep, the model is not applicable
)

// ReadProfile reads a power profile from a JSON file.
func ReadProfile(path string) (*energy.Profile, error) {
	p := &energy.Profile{}
	info, err := os.Stat(path)
	switch {
	case err != nil:
	case !info.Mode().IsRegular(): // reading a named pipe could block
		err = errNotRegular
	case info.Size() > maxProfile:
		err = errTooLong
	default:
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			err = json.Unmarshal(text, p)
		}
	}
	if err == nil && p.Power(1) <= 0 {
		err = errors.New("power must be positive")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the power profile %s: %w", path, err)
	}
	return p, nil
}

// NewModel returns a model with the configured profile, or that of a typical server.
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
	log.Info("Loaded power profile", "name", m.profile.Name, "idleWatts", float64(m.profile.Power(0)), "fullWatts",
		float64(m.profile.Power(1)))
	return m, nil
}

// Profile returns the profile used for a node with the given number of CPUs.
func (m *Model) Profile(cpus float64) *energy.Profile {
	if m.profile != nil {
		return m.profile
	}
	return TypicalProfile(cpus)
}

// Name implements Meter.
func (m *Model) Name() string { return NameModel }

// Domains implements Meter.
func (m *Model) Domains() []energy.Domain { return []energy.Domain{m.domain} }

// Resume implements Meter. No energy is lost, because the CPU time of the node is cumulative.
func (m *Model) Resume(last []energy.Reading) {
	if r, ok := find(last, m.domain); ok && r.Raw > 0 && r.Raw <= math.MaxInt64 &&
		r.Total >= 0 && r.Total <= math.MaxInt64/2 {
		m.last, m.known, m.resumed = r, true, true
	}
}

var errNoCPUTime = errors.New("the CPU time of the node is unknown")

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
	if !known || dt <= 0 || dt > m.maxGap || busy < 0 {
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

// begin starts a new run with the last reading. As for counters, its number differs from those of previous
// processes.
func (m *Model) begin(known bool) {
	m.rest = 0
	if known {
		m.last.Run++
		return
	}
	m.last.Run = uint32(m.last.At / time.Millisecond)
}

// Close implements Meter.
func (m *Model) Close() error { return nil }
