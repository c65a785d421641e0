package meter

import (
	"cmp"
	"context"
	"errors"
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

// Deps are what a poller needs of the world.
type Deps struct {
	Keys dial.KeyReader // nil: meters with a password fail
	// Wall is told what a node draws each time that one of its meters was asked, if all of them answered lately; nil:
	// nothing is told.
	Wall func(node string, power energy.Watts, asOf time.Time, quality energy.Quality, source string)
	// Agent returns what the agent of a node says that it draws, if it said so lately, to compare with; nil: there is
	// none.
	Agent  func(node string) (energy.Watts, bool)
	Clock  func() time.Time     // nil: time.Now
	Uptime func() time.Duration // a clock that never goes back, of the instants of readings; nil: Uptime
	Log    *slog.Logger         // nil: silence

	Loopback bool          // this machine may be asked too; for tests
	Resolver *net.Resolver // nil: that of the system
}

var started = time.Now()

// Uptime is the time since the process began, by a clock that is never set.
func Uptime() time.Duration { return time.Since(started) }

// Bounds of asking.
const (
	healthyPlaces = 64 // requests at a time to devices that answered last time
	ailingPlaces  = 16 // and to those that did not: they wait for each other alone

	backoffCap     = 5 * time.Minute
	authBackoff    = time.Minute // a server that locks accounts is left alone
	authBackoffCap = 15 * time.Minute

	minStale   = 45 * time.Second // a value of now is no older
	stalePolls = 3

	ratioMemory = 10 * time.Minute
)

// staleAfter returns when a meter that is asked each interval has nothing to say of now any more.
func staleAfter(interval time.Duration) time.Duration { return max(stalePolls*interval, minStale) }

// Poller asks all meters. It is a prometheus.Collector.
type Poller struct {
	deps            Deps
	meters          []*meter
	nodes           map[string]*node
	healthy, ailing chan struct{}
}

// node is what the meters of a node say together.
type node struct {
	name   string
	meters []*meter

	mu    sync.Mutex
	ratio ratio
}

// source is a kind of device: what it says of its channels, in their order, all or none.
type source interface {
	read(ctx context.Context) ([]sample, error)
}

// kinds are those of devices: how they are told who asks, how long they may take, and what reads them.
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

// page is a source that says all at one path.
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

// meter is one device.
type meter struct {
	entry    Entry
	device   *Device
	source   source
	channels map[string]*channel
	failures int
	reported dial.Reason // why it gave nothing, as it was logged last
	log      *slog.Logger

	mu    sync.Mutex             // of what follows, which others read
	polls map[dial.Reason]uint64 // by why they gave nothing, or outcomeOK
	now   state
}

// state is what was seen at a poll.
type state struct {
	readings []energy.Reading
	power    energy.Watts
	quality  energy.Quality // of power
	total    energy.Microjoules
	at       time.Duration
	asOf     time.Time
	up       bool
}

// New returns a poller of all meters of a file that was loaded.
func New(c Config, d Deps) (*Poller, error) {
	if d.Clock == nil {
		d.Clock = time.Now
	}
	if d.Uptime == nil {
		d.Uptime = Uptime
	}
	d.Log = cmp.Or(d.Log, slog.New(slog.DiscardHandler))
	p := &Poller{
		deps: d, nodes: map[string]*node{},
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

// Run asks until ctx ends.
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

// follow asks one meter again and again. The first time is at random, so that not all are asked at once.
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
		begun := p.deps.Uptime()
		err := p.poll(ctx, m)
		if ctx.Err() != nil {
			return
		}
		wait = m.wait(err, p.deps.Uptime()-begun)
	}
}

// wait returns how long until the next poll.
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

var errPanicked = errors.New("reading what it says panicked")

// poll asks a meter once, when there is a place.
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
	before := p.deps.Uptime()
	samples, err := []sample(nil), errPanicked
	panics.Survive(m.log, "meter", "what a meter says", func() { samples, err = m.source.read(asking) })
	if ctx.Err() != nil {
		return ctx.Err() // stopped, not failed
	}
	at := before + (p.deps.Uptime()-before)/2
	if err == nil {
		m.addReadings(samples, at, p.deps.Clock())
	}
	m.noted(err)
	if err != nil {
		return err
	}
	p.notify(p.nodes[m.entry.Node])
	return nil
}

// addReadings makes readings of what a meter said.
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
			s.quality = energy.Estimated // the power of now is not known yet
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = s
}

// noted counts a poll, and says so when a meter fails or is back.
func (m *meter) noted(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		if m.failures > 0 || m.polls[outcomeOK] == 0 {
			m.log.Info("meter answers", "watts", float64(m.now.power))
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
		m.log.Warn("meter gives nothing", "reason", string(reason), "error", m.text(err))
	}
}

const (
	outcomeOK = "ok"
	maxError  = 300
)

// text is an error as it may be shown.
func (m *meter) text(err error) string {
	text := m.device.Secrets.Conceal(err.Error())
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "…")
}

// notify says what a node draws, if all of its meters know.
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
		n.ratio.add(power, said, known, p.deps.Uptime())
	}
}

// power adds what the meters of a node show now.
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
	return s.readings != nil && p.deps.Uptime()-s.at <= staleAfter(m.entry.Interval.Duration)
}

// Readings returns the counters of all meters of a node, which are to be added, by Deps.Uptime, and names the meters,
// as "wall (shelly2)"; ok is false where it has no meter, or one of them is silent.
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

// ratio is what the wall says over what the agent says, as means that forget.
type ratio struct {
	wall, agent float64 // joules, faded
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

// value is false while next to nothing was compared.
func (r *ratio) value() (float64, bool) {
	if r.agent < 1 {
		return 0, false
	}
	return r.wall / r.agent, true
}
