package meter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// fake is a fake device with constant power, configurable latency and errors.
type fake struct {
	mu    sync.Mutex
	watts float64
	slow  time.Duration
	err   error
	polls []time.Time
	most  *atMost

	panics bool
}

// atMost tracks the maximum number of concurrent requests.
type atMost struct {
	mu        sync.Mutex
	now, most int
}

func (a *atMost) add(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now += n
	a.most = max(a.most, a.now)
}

var born = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // start time of a synctest bubble

func (f *fake) read(ctx context.Context) ([]sample, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.most != nil {
		f.most.add(1)
		defer f.most.add(-1)
	}
	f.polls = append(f.polls, time.Now())
	if f.slow > 0 {
		select {
		case <-ctx.Done():
			return nil, dial.Refuse(dial.ReasonHTTP, "timeout")
		case <-time.After(f.slow):
		}
	}
	if f.panics {
		panic("planted")
	}
	if f.err != nil {
		return nil, f.err
	}
	mWh := f.watts * time.Since(born).Seconds() / 3.6
	return []sample{{
		channel: "0", watts: f.watts, powered: true, counted: true, counts: uint64(mWh),
		unit: microjoulesPerMilliwattHour,
	}}, nil
}

// reported contains the last reported values of nodes.
type reported struct {
	mu   sync.Mutex
	last map[string]energy.Watts
	asOf map[string]time.Time
	how  map[string]string
}

func (w *reported) wall(node string, power energy.Watts, asOf time.Time, quality energy.Quality, source string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last[node], w.asOf[node], w.how[node] = power, asOf, quality.String()+" "+source
}

// poller returns a Poller with fake devices by meter name. A meter name consists of the node name and a number.
func poller(t *testing.T, d Deps, fakes map[string]*fake) (*Poller, *reported) {
	t.Helper()
	var text strings.Builder
	text.WriteString("meters:\n")
	for name := range fakes {
		node, _, _ := strings.Cut(name, "-")
		fmt.Fprintf(&text, "- {name: %s, node: %s, kind: shelly2, url: 'http://%s'}\n", name, node, name)
	}
	c, err := Parse([]byte(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	heard := &reported{last: map[string]energy.Watts{}, asOf: map[string]time.Time{}, how: map[string]string{}}
	d.Wall = heard.wall
	p, err := New(c, d)
	if err != nil {
		t.Fatal(err)
	}
	p.uptime = func() time.Duration { return time.Since(born) }
	for _, m := range p.meters {
		m.source = fakes[m.entry.Name]
	}
	return p, heard
}

// during runs a poller for the given time in a bubble.
func during(t *testing.T, p *Poller, d time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := map[string]*fake{"a-1": {watts: 100}, "a-2": {watts: 50}, "b-1": {watts: 70}}
		agent := energy.Watts(125)
		p, heard := poller(t, Deps{Agent: func(node string) (energy.Watts, bool) { return agent, node == "a" }}, fakes)
		if _, _, ok := p.Readings("a"); ok {
			t.Error("got readings before the first poll")
		}
		during(t, p, 30*time.Minute)
		if heard.last["a"] != 150 || heard.last["b"] != 70 || heard.how["a"] != "measured wall (shelly2)" ||
			time.Since(heard.asOf["a"]) > 15*time.Second {
			t.Errorf("%+v", heard)
		}
		for name, f := range fakes {
			if n := len(f.polls); n < 175 || n > 190 {
				t.Errorf("%s was polled %d times in 30 minutes", name, n)
			}
		}
		readings, _, ok := p.Readings("a")
		if !ok || len(readings) != 2 || readings[0].Domain == readings[1].Domain ||
			readings[0].Domain.Kind != energy.Wall {
			t.Fatalf("%+v, %v", readings, ok)
		}
		for _, r := range readings {
			if joules := float64(r.Total.Joules()); joules < 50*29*60 || joules > 100*30*60 {
				t.Errorf("got %v J in 30 minutes", joules)
			}
		}
		if _, source, ok := p.Readings("unknown"); ok || source != "" {
			t.Error("got readings of a node without a meter")
		}
		if ratio, ok := p.nodes["a"].ratio.value(); !ok || math.Abs(ratio-1.2) > 1e-9 {
			t.Errorf("unexpected ratio %v, %v", ratio, ok)
		}
		text := gather(t, p)
		for _, want := range []string{
			`kubenergy_meter_up{kind="shelly2",meter="a-1",node="a"} 1`,
			`kubenergy_meter_power_watts{kind="shelly2",meter="a-1",node="a"} 100`,
			`kubenergy_meter_agent_ratio{node="a"} 1.`, `kubenergy_meter_polls_total{meter="b-1",outcome="ok"} 1`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("missing %s in\n%s", want, text)
			}
		}
		if problems, err := testutil.GatherAndLint(registry(p)); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		bubble.Advance(time.Minute) // polling has stopped
		if _, _, ok := p.Readings("a"); ok {
			t.Error("got stale readings after a minute")
		}
		if text := gather(t, p); strings.Contains(text, "power_watts") {
			t.Error("got a stale power after a minute")
		}
	})
}

func registry(p *Poller) *prom.Registry {
	r := prom.NewRegistry()
	r.MustRegister(p)
	return r
}

func gather(t *testing.T, p *Poller) string {
	t.Helper()
	families, err := registry(p).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&b, "%s{%s} %g\n", f.GetName(), strings.Join(labels, ","),
				m.GetGauge().GetValue()+m.GetCounter().GetValue())
		}
	}
	return b.String()
}

// TestDeadMetersDelayNoOther verifies that many unresponsive devices do not delay others, that they are polled less
// often and recover, and that a node is unknown if one of its meters does not respond.
func TestDeadMetersDelayNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const dead = 300
		fakes := map[string]*fake{
			"good-1": {watts: 100}, "half-1": {watts: 10},
			"half-2": {watts: 10, err: dial.Refuse(dial.ReasonMissing, "x")},
		}
		most := new(atMost)
		for i := range dead {
			fakes[fmt.Sprintf("dead-%d", i)] = &fake{slow: time.Hour, most: most}
		}
		var log bytes.Buffer
		p, heard := poller(t, Deps{Log: slog.New(slog.NewTextHandler(&log, nil))}, fakes)
		during(t, p, 20*time.Minute)
		for i, at := range fakes["good-1"].polls {
			if i > 12 && at.Sub(fakes["good-1"].polls[i-1]) > 12*time.Second {
				t.Errorf("a poll was delayed by %v", at.Sub(fakes["good-1"].polls[i-1]))
			}
		}
		if n := len(fakes["good-1"].polls); n < 100 {
			t.Errorf("the responding meter was polled %d times, want at least 100", n)
		}
		if _, ok := heard.last["half"]; ok {
			t.Error("the power of an incomplete node was reported")
		}
		if _, _, ok := p.Readings("half"); ok {
			t.Error("got readings of an incomplete node")
		}
		if most.most > healthyPlaces+ailingPlaces {
			t.Errorf("got %d concurrent polls", most.most)
		}
		for name, f := range fakes {
			if n := len(f.polls); strings.HasPrefix(name, "dead") && (n < 2 || n > 12) {
				t.Errorf("%s was polled %d times", name, n)
			}
		}
		if n := strings.Count(log.String(), "Failed to read meter"); n != dead+1 {
			t.Errorf("got %d log messages, want one per meter", n)
		}
		if !strings.Contains(gather(t, p), `kubenergy_meter_up{kind="shelly2",meter="dead-7",node="dead"} 0`) {
			t.Error("a meter without responses is up")
		}
		fakes["half-2"].err, fakes["half-2"].watts = nil, 10
		during(t, p, 11*time.Minute)
		if heard.last["half"] != 20 {
			t.Errorf("got %v W after the recovery, want 20", heard.last["half"])
		}
	})
}

// TestRefusedPasswords verifies that a server is polled rarely after it has rejected a password, to avoid account
// lockouts.
func TestRefusedPasswords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fakes := map[string]*fake{"a-1": {err: dial.Refuse(dial.ReasonAuth, "x")}, "b-1": {err: errors.New("reset")}}
		p, _ := poller(t, Deps{}, fakes)
		during(t, p, time.Hour)
		if n := len(fakes["a-1"].polls); n < 4 || n > 16 {
			t.Errorf("an incorrect password was sent %d times in an hour", n)
		}
		if n := len(fakes["b-1"].polls); n < 12 || n > 40 {
			t.Errorf("a device that resets connections was polled %d times in an hour", n)
		}
	})
}

// TestPowerOfACounter verifies that the power of a device with only a counter is derived after the second poll.
func TestPowerOfACounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, heard := poller(t, Deps{}, map[string]*fake{"a-1": {}})
		m := p.meters[0]
		at := func(seconds int, counts uint64) {
			up := time.Duration(seconds) * time.Second
			m.addReadings([]sample{{channel: "0", counted: true, counts: counts, unit: microjoulesPerMilliwattHour}}, up,
				time.Now())
			p.uptime = func() time.Duration { return up }
			p.notify(p.nodes["a"])
		}
		at(10, 1000)
		if len(heard.last) != 0 {
			t.Errorf("power was reported after one value: %+v", heard)
		}
		at(20, 1100)
		if heard.last["a"] != 36 || !strings.HasPrefix(heard.how["a"], "derived") {
			t.Errorf("%+v", heard)
		}
		at(30, 5) // reset of the counter
		at(40, 5)
		if heard.last["a"] != 0 {
			t.Errorf("%+v", heard)
		}
	})
}

// TestAMeterThatPanics verifies that a panic while reading a meter counts as a failure and does not affect other
// meters.
func TestAMeterThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		fakes := map[string]*fake{"a-1": {watts: 100, panics: true}, "b-1": {watts: 70}}
		p, heard := poller(t, Deps{}, fakes)
		during(t, p, 10*time.Minute)
		if _, reported := heard.last["a"]; reported || heard.last["b"] != 70 || p.meters[0].failures+p.meters[1].failures < 3 {
			t.Errorf("%+v", heard)
		}
	})
	if panics.Note("meter") < 4 {
		t.Error("the panics were not counted")
	}
}
