package meter

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Deps contains the dependencies of a Poller.
type Deps struct {
	Keys dial.KeyReader // if nil, meters with a password fail
	// Wall is called with the power of a node after each poll of one of its meters, if all of them have recent
	// values. It may be nil.
	Wall func(node string, power energy.Watts, asOf time.Time, quality energy.Quality, source string)
	// Agent returns the power reported by the agent of a node for comparison. It returns false if there is no
	// recent value. It may be nil.
	Agent func(node string) (energy.Watts, bool)
	Log   *slog.Logger // nil disables logging

	Loopback bool          // permits loopback addresses; for testing only
	Resolver *net.Resolver // defaults to the system resolver
}

var started = time.Now()

// Uptime returns the time since the process started, by a monotonic clock.
func Uptime() time.Duration { return time.Since(started) }

// Limits of polling.
const (
	healthyPlaces = 64 // concurrent requests to devices without a failure
	ailingPlaces  = 16 // concurrent requests to failing devices

	backoffCap     = 5 * time.Minute
	authBackoff    = time.Minute // avoids account lockouts
	authBackoffCap = 15 * time.Minute

	minStale   = 45 * time.Second // minimum age at which a value is stale
	stalePolls = 3

	ratioMemory = 10 * time.Minute
)

// staleAfter returns the age at which the last value of a meter with the given polling interval is stale.
func staleAfter(interval time.Duration) time.Duration { return max(stalePolls*interval, minStale) }

// Poller polls all meters. It implements prometheus.Collector and is safe for concurrent use.
type Poller struct {
	deps            Deps
	meters          []*meter
	nodes           map[string]*node
	healthy, ailing chan struct{}
	uptime          func() time.Duration // Uptime, except in tests
}

// node contains the meters of a node.
type node struct {
	name   string
	meters []*meter

	mu    sync.Mutex
	ratio ratio
}

// source is the driver of a kind of device. The method read returns a sample for each channel in order, or an
// error.
type source interface {
	read(ctx context.Context) ([]sample, error)
}

// kinds contains the authentication method, the request timeout and the driver of each kind of device.
var kinds = map[string]struct {
	manner manner
	limit  time.Duration
	source func(d *Device, channels []string) source
}{
	KindShelly1: {basic, simpleLimit, func(d *Device, channels []string) source {
		return &page{d, "/status", (&shelly1{channels: channels}).decode}
	}},
	KindShelly2: {digest, simpleLimit, func(d *Device, channels []string) source {
		return &page{d, "/rpc/Shelly.GetStatus", (&shelly2{channels: channels}).decode}
	}},
	KindTasmota: {inQuery, simpleLimit, func(d *Device, channels []string) source {
		return &tasmota{device: d, channels: channels}
	}},
	KindRedfish: {basic, serverLimit, func(d *Device, channels []string) source {
		return &Redfish{Device: d, channels: channels}
	}},
}

// page is a source with all values in a single resource.
type page struct {
	device *Device
	path   string
	decode func([]byte) ([]sample, error)
}

func (p *page) read(ctx context.Context) ([]sample, error) {
	body, err := p.device.get(ctx, p.path, nil)
	if err != nil {
		return nil, err
	}
	return p.decode(body)
}

// meter is a configured device.
type meter struct {
	entry    Entry
	device   *Device
	source   source
	channels map[string]*channel
	failures int
	reported dial.Reason // last logged reason of a failure
	log      *slog.Logger

	mu    sync.Mutex             // guards the following fields
	polls map[dial.Reason]uint64 // number of polls by reason, or outcomeOK
	now   state
}

// state is the result of a poll.
type state struct {
	readings []energy.Reading
	power    energy.Watts
	quality  energy.Quality // quality of power
	total    energy.Microjoules
	at       time.Duration
	asOf     time.Time
	up       bool
}

// New returns a Poller for all meters of a configuration.
func New(c Config, d Deps) (*Poller, error) {
	d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	p := &Poller{
		deps: d, nodes: map[string]*node{}, uptime: Uptime,
		healthy: make(chan struct{}, healthyPlaces), ailing: make(chan struct{}, ailingPlaces),
	}
	for i := range c.Meters {
		m, err := newMeter(&c.Meters[i], &d)
		if err != nil {
			return nil, fmt.Errorf("meters[%d] (%.80q): %w", i, c.Meters[i].Name, err)
		}
		n := p.nodes[m.entry.Node]
		if n == nil {
			n = &node{name: m.entry.Node}
			p.nodes[n.name] = n
		}
		n.meters = append(n.meters, m)
		p.meters = append(p.meters, m)
	}
	return p, nil
}

func newMeter(e *Entry, d *Deps) (*meter, error) {
	v, err := NewDevice(e, d)
	if err != nil {
		return nil, err
	}
	return &meter{
		entry: *e, device: v, source: kinds[e.Kind].source(v, e.Channels), channels: map[string]*channel{},
		polls: map[dial.Reason]uint64{}, log: d.Log.With("meter", e.Name, "node", e.Node),
	}, nil
}

// Run polls the meters until ctx is done. It always returns nil.
func (p *Poller) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, m := range p.meters {
		all.Go(func() {
			_ = panics.Keep(ctx, p.deps.Log, "meter", m.entry.Name, func(ctx context.Context) error {
				p.follow(ctx, m)
				return nil
			})
		})
	}
	all.Wait()
	return nil
}

// follow polls a meter repeatedly. The first poll has a random delay, so that the meters are not polled
// simultaneously.
func (p *Poller) follow(ctx context.Context, m *meter) {
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), simpleLimit)
		defer cancel()
		m.device.Logout(ctx)
	}()
	wait := rand.N(m.entry.Interval.Duration)
	for {
		if !kube.Pause(ctx, wait) {
			return
		}
		begun := p.uptime()
		err := p.poll(ctx, m)
		if ctx.Err() != nil {
			return
		}
		wait = m.wait(err, p.uptime()-begun)
	}
}

// wait returns the time until the next poll: the interval with jitter, or an exponential backoff after a failure.
func (m *meter) wait(err error, took time.Duration) time.Duration {
	interval := m.entry.Interval.Duration
	if err == nil {
		return max(interval-took, interval/10) + rand.N(interval/20+1) - interval/40
	}
	least, most := interval, max(backoffCap, interval)
	if dial.ReasonOf(err) == dial.ReasonAuth {
		least, most = max(authBackoff, interval), max(authBackoffCap, interval)
	}
	const doublings = 10
	full := min(least<<min(max(m.failures-1, 0), doublings), most)
	return full/2 + rand.N(full/2+1)
}

// poll polls a meter once, after waiting for the concurrency limit.
func (p *Poller) poll(ctx context.Context, m *meter) error {
	lane := p.healthy
	if m.failures > 0 {
		lane = p.ailing
	}
	select {
	case lane <- struct{}{}:
		defer func() { <-lane }()
	case <-ctx.Done():
		return ctx.Err()
	}
	asking, cancel := context.WithTimeout(ctx, 2*m.device.Timeout)
	defer cancel()
	before := p.uptime()
	var samples []sample
	err := panics.Try(m.log, "meter", "reading a meter", func() (err error) {
		samples, err = m.source.read(asking)
		return err
	})
	if ctx.Err() != nil {
		return ctx.Err() // stopped, not a failure
	}
	at := before + (p.uptime()-before)/2
	if err == nil {
		m.addReadings(samples, at, time.Now())
	}
	m.noted(err)
	if err != nil {
		return err
	}
	p.notify(p.nodes[m.entry.Node])
	return nil
}

// addReadings converts the samples of a meter to readings and updates its state.
func (m *meter) addReadings(samples []sample, at time.Duration, asOf time.Time) {
	s := state{at: at, asOf: asOf, up: true, quality: energy.Measured}
	for i := range samples {
		c := m.channels[samples[i].channel]
		if c == nil {
			name := m.entry.Name + "/" + samples[i].channel
			c = newChannel(name[:min(len(name), maxText)], &m.entry)
			m.channels[samples[i].channel] = c
		}
		before := c.last
		r := c.next(samples[i], at)
		c.last = r
		s.readings = append(s.readings, r)
		s.total += r.Total
		switch {
		case samples[i].powered:
			s.power += energy.Watts(samples[i].watts * c.factor)
		case r.Run == before.Run && r.At > before.At:
			s.power += energy.Watts(float64((r.Total - before.Total).Joules()) / (r.At - before.At).Seconds())
			s.quality = energy.Derived
		default:
			s.quality = energy.Estimated // the current power is unknown
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = s
}

// noted counts a poll and logs when a meter starts to fail or recovers.
func (m *meter) noted(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		if m.failures > 0 || m.polls[outcomeOK] == 0 {
			m.log.Info("Meter responded", "watts", float64(m.now.power))
		}
		m.failures, m.reported = 0, ""
		m.polls[outcomeOK]++
		return
	}
	reason := dial.ReasonOf(err)
	m.now.up = false
	m.polls[reason]++
	m.failures++
	if m.reported != reason {
		m.reported = reason
		m.log.Warn("Failed to read meter", "reason", string(reason), "error", m.text(err))
	}
}

const (
	outcomeOK = "ok"
	maxError  = 300
)

// text returns the message of an error without secrets, limited in length.
func (m *meter) text(err error) string {
	text := m.device.Secrets.Conceal(err.Error())
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "…")
}

// notify reports the power of a node if it is known from all of its meters.
func (p *Poller) notify(n *node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	power, asOf, quality, ok := p.power(n)
	if !ok {
		return
	}
	if p.deps.Wall != nil {
		p.deps.Wall(n.name, power, asOf, quality, n.source())
	}
	if p.deps.Agent != nil {
		said, known := p.deps.Agent(n.name)
		n.ratio.add(power, said, known, p.uptime())
	}
}

// power returns the sum of the current power of all meters of a node. It returns false if any of them is unknown.
func (p *Poller) power(n *node) (power energy.Watts, asOf time.Time, quality energy.Quality, ok bool) {
	quality = energy.Measured
	for _, m := range n.meters {
		s := m.state()
		if !p.fresh(m, s) || s.quality == energy.Estimated {
			return 0, time.Time{}, 0, false
		}
		power += s.power
		quality = min(quality, s.quality)
		if asOf.IsZero() || s.asOf.Before(asOf) {
			asOf = s.asOf
		}
	}
	return power, asOf, quality, true
}

func (m *meter) state() state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

func (p *Poller) fresh(m *meter, s state) bool {
	return s.readings != nil && p.uptime()-s.at <= staleAfter(m.entry.Interval.Duration)
}

// Readings returns the counters of all channels of a node's meters, with times of Uptime, and the name of the
// source, e.g. "wall (shelly2)". The energy of the node is the sum of the counters. It returns false if the node
// has no meter or the value of any meter is stale.
func (p *Poller) Readings(name string) (readings []energy.Reading, source string, ok bool) {
	n := p.nodes[name]
	if n == nil {
		return nil, "", false
	}
	for _, m := range n.meters {
		s := m.state()
		if !p.fresh(m, s) {
			return nil, "", false
		}
		readings = append(readings, s.readings...)
	}
	return readings, n.source(), true
}

func (n *node) source() string {
	var all []string
	for _, m := range n.meters {
		if !slices.Contains(all, m.entry.Kind) {
			all = append(all, m.entry.Kind)
		}
	}
	return energy.Wall.String() + " (" + strings.Join(all, ", ") + ")"
}

// ratio is the ratio of the power at the wall to the power reported by the agent, with exponential decay.
type ratio struct {
	wall, agent float64 // in joules, decayed
	at          time.Duration
}

func (r *ratio) add(wall, agent energy.Watts, known bool, at time.Duration) {
	dt := min(at-r.at, minStale)
	r.at = at
	fade := 1 - min(float64(dt)/float64(ratioMemory), 1)
	r.wall *= fade
	r.agent *= fade
	if known && agent > 0 {
		r.wall += float64(wall.For(dt))
		r.agent += float64(agent.For(dt))
	}
}

// value returns the ratio. It returns false if there is not enough data.
func (r *ratio) value() (float64, bool) {
	if r.agent < 1 {
		return 0, false
	}
	return r.wall / r.agent, true
}
