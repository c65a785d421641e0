package signal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// scripted is a source with a fetch function of the test.
type scripted struct {
	name  string
	fetch func(now time.Time) (Answer, error)
	asked int
}

func (s *scripted) Fetch(_ context.Context, now time.Time) (Answer, error) {
	s.asked++
	return s.fetch(now)
}

// hourly returns an answer with hourly values that start the given number of hours ago.
func hourly(now time.Time, hoursAgo int, value ...float64) Answer {
	a := Answer{Step: time.Hour, IssuedAt: now.Truncate(time.Hour)}
	for i, v := range value {
		a.Points = append(a.Points, Point{Time: a.IssuedAt.Add(time.Duration(i-hoursAgo) * time.Hour), Value: v})
	}
	return a
}

func staticSource(value float64) v1alpha1.CarbonSource {
	return v1alpha1.CarbonSource{Static: &v1alpha1.StaticSource{Value: value}}
}

// chain returns a keeper of scripted sources.
func chain(t *testing.T, now *time.Time, sources ...*scripted) *Keeper {
	k := carbonKeeper(t, testDeps(now), staticSource(1))
	k.links = nil
	for _, s := range sources {
		k.links = append(k.links, &link{name: s.name, source: s, every: 15 * time.Minute, asks: true})
	}
	return k
}

// TestFallback verifies that the second source is only polled after the status of the first one has expired, and
// that the first source is used again once it recovers.
func TestFallback(t *testing.T) {
	now, down := noon, false
	first := &scripted{name: "first", fetch: func(now time.Time) (Answer, error) {
		if down {
			return Answer{}, dial.Refuse(dial.ReasonHTTP, "down")
		}
		return hourly(now, 0, 100+float64(now.Hour())/3, 101, 102), nil
	}}
	second := &scripted{name: "second", fetch: func(now time.Time) (Answer, error) {
		return hourly(now, 0, 200+float64(now.Hour())/3, 201, 202), nil
	}}
	k := chain(t, &now, first, second)
	for minute := range 12 * 60 {
		now = noon.Add(time.Duration(minute) * time.Minute)
		down = minute >= 60 && minute < 600
		k.poll(t.Context())
		want := "first"
		if minute > 60+100 && minute < 600 { // last valid value at 13:00, received at about 13:10, expires after 15:00
			want = "second"
		}
		s := k.state(now)
		if s.Source != want {
			if minute >= 600 && minute < 620 {
				continue // the first source is polled again after its interval
			}
			t.Fatalf("source after %d minutes = %q (%s), want %q", minute, s.Source, s.LastError, want)
		}
		if minute == 100 && (second.asked != 0 || s.Reason != dial.ReasonHTTP || s.LastError != "first: down") {
			t.Errorf("the second source was polled %d times, last error %q", second.asked, s.LastError)
		}
		if minute > 630 && s.LastError != "" {
			t.Fatalf("after %d minutes: %s", minute, s.LastError)
		}
	}
	if second.asked < 20 || second.asked > 35 {
		t.Errorf("the second source was polled %d times in 7.5 hours, want every 15 minutes", second.asked)
	}
}

// TestFirstComesFirst verifies that other sources are not polled before the first poll of the first source.
func TestFirstComesFirst(t *testing.T) {
	now := noon
	good := func(now time.Time) (Answer, error) { return hourly(now, 0, 100), nil }
	for range 20 {
		now = noon
		first, second := &scripted{name: "first", fetch: good}, &scripted{name: "second", fetch: good}
		k := chain(t, &now, first, second)
		k.start(now)
		for ; now.Before(noon.Add(2 * firstPollWithin)); now = now.Add(time.Second / 2) {
			k.poll(t.Context())
		}
		if first.asked != 1 || second.asked != 0 {
			t.Fatalf("the first source was polled %d times and the second %d times", first.asked, second.asked)
		}
	}
}

// TestSourcePanics verifies that a panic in a source does not terminate the keeper.
func TestSourcePanics(t *testing.T) {
	now := noon
	k := chain(t, &now,
		&scripted{name: "mad", fetch: func(time.Time) (Answer, error) { panic("mad") }},
		&scripted{name: "sane", fetch: func(now time.Time) (Answer, error) { return hourly(now, 0, 5), nil }},
	)
	k.poll(t.Context())
	if s := k.state(now); s.Source != "sane" || s.Reason != dial.ReasonShape {
		t.Errorf("%+v", s)
	}
}

func TestGoodSignals(t *testing.T) {
	hour := noon.Truncate(time.Hour)
	at := func(hours int, v float64) Point {
		return Point{Time: hour.Add(time.Duration(hours) * time.Hour), Value: v}
	}
	answer := func(points ...Point) Answer {
		return Answer{Step: time.Hour, IssuedAt: newest(points, noon), Points: points}
	}
	still := func(v float64, hours int) Answer {
		var points []Point
		for i := range hours {
			points = append(points, at(i-hours+1, v))
		}
		return answer(points...)
	}
	ahead := still(412, 40) // constant estimates with a different forecast are not frozen
	ahead.Points = append(ahead.Points, at(1, 400))
	for i := range ahead.Points {
		ahead.Points[i].Estimated = true
	}
	estimated := still(412, 24)
	for i := range estimated.Points {
		estimated.Points[i].Estimated = true
	}
	zone := answer(at(0, 1), at(1, 2))
	zone.Zone = "de"
	irregular := Answer{Ageless: true, Points: []Point{at(-5, 1), at(2, 2), at(9, 3)}}
	for _, c := range []struct {
		name   string
		answer Answer
		first  float64
		known  int
	}{
		{"two hours", answer(at(0, 1), at(1, 2)), 1, 2},
		{"zone in another case", zone, 1, 2},
		{"unsorted", answer(at(2, 3), at(0, 1), at(1, 2)), 1, 3},
		{"repeated hour with the same value", answer(at(-1, 5), at(-1, 5), at(0, 1), at(1, 2)), 1, 2},
		{"a gap in the past", answer(at(-9, 5), at(-3, 6), at(0, 1), at(1, 2)), 1, 2},
		{"a short gap in the future", answer(at(0, 1), at(1, 2), at(3, 4)), 1, 4},
		{"a gap of three hours in the future", answer(at(0, 1), at(1, 2), at(5, 4)), 1, 6},
		{"a longer gap in the future ends the forecast", answer(at(0, 1), at(1, 2), at(6, 4)), 1, 2},
		{"without the last hour", answer(at(-2, 5), at(-1, 6)), 6, 1},
		{"constant for less than 6 h", still(412, 6), 412, 1},
		{"constant, estimated", estimated, 412, 1},
		{"constant, estimated, with a forecast", ahead, 412, 2},
		{"constant, small whole number of grams", still(24, 30), 24, 1},
		{"points that last until the next one", irregular, 1, 16}, // two hours, seven, and seven more
	} {
		w := terms{zone: "DE", quantity: carbon, maxAge: 2 * time.Hour}
		a := c.answer
		present, err := w.check(&a, noon)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if err := new(standstill).frozen(&a, noon); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		s := w.read(&a, present, noon, "x")
		if s.Values[0] != c.first || !s.Start.Time.Equal(hour) || s.Step.Duration != time.Hour {
			t.Errorf("%s: %+v", c.name, s)
		}
		if len(s.Values) != c.known {
			t.Errorf("%s: got %d values, want %d", c.name, len(s.Values), c.known)
		}
	}
}

// TestFrozenOverPolls verifies that constant values are detected over many polls with a single value, unless the
// values are far apart, and that the feed is used again once its value changes.
func TestFrozenOverPolls(t *testing.T) {
	for _, c := range []struct {
		name      string
		value     float64
		every     time.Duration
		refuse    time.Duration // expected time until the rejection; 0 for none within three days
		estimated bool
	}{
		{"grams", 412.5, 15 * time.Minute, 6 * time.Hour, false},
		{"whole grams", 412, 15 * time.Minute, 6 * time.Hour, false},
		{"few whole grams", 24, 15 * time.Minute, 48 * time.Hour, false},
		{"few grams", 24.5, 15 * time.Minute, 6 * time.Hour, false},
		{"nothing", 0, 15 * time.Minute, 6 * time.Hour, false},
		{"rare values", 412, 3 * time.Hour, 0, false},
		{"estimated grams", 412.5, 15 * time.Minute, 24 * time.Hour, true},
		{"few whole grams, estimated", 24, 15 * time.Minute, 48 * time.Hour, true},
		{"estimated, rare values", 412, 3 * time.Hour, 0, true},
	} {
		var s standstill
		var refused time.Duration
		for after := time.Duration(0); after < 72*time.Hour && refused == 0; after += c.every {
			t0 := noon.Add(after)
			if s.frozen(&Answer{Points: []Point{{Time: t0, Value: c.value, Estimated: c.estimated}}}, t0) != nil {
				refused = after
			}
		}
		if refused != c.refuse {
			t.Errorf("%s: rejected after %v, want %v", c.name, refused, c.refuse)
		}
		moved := noon.Add(80 * time.Hour)
		if err := s.frozen(&Answer{Points: []Point{{
			Time: moved, Value: c.value + 1, Estimated: c.estimated,
		}}}, moved); err != nil {
			t.Errorf("%s: unexpected error after the value has changed: %v", c.name, err)
		}
	}
}

// TestFrozenFeedIsLeft verifies that a keeper uses the next source if the values of the first one are constant.
func TestFrozenFeedIsLeft(t *testing.T) {
	now := noon
	frozen := &scripted{name: "frozen", fetch: func(now time.Time) (Answer, error) { return hourly(now, 0, 412), nil }}
	k := chain(t, &now, frozen, &scripted{name: "alive", fetch: func(now time.Time) (Answer, error) {
		return hourly(now, 0, 300+float64(now.Hour())), nil
	}})
	for ; now.Before(noon.Add(9 * time.Hour)); now = now.Add(5 * time.Minute) {
		k.poll(t.Context())
		if s := k.state(now); now.Sub(noon) < 5*time.Hour && s.Source != "frozen" {
			t.Fatalf("after %v: %+v", now.Sub(noon), s)
		}
	}
	if s := k.state(now); s.Source != "alive" || s.Reason != dial.ReasonFrozen {
		t.Errorf("%+v", s)
	}
}

// TestCompletion verifies that the typical curve is scaled to the current value if the source provides no forecast,
// that a model with percentiles is used if there is enough history, and that a source's own forecast takes
// precedence.
func TestCompletion(t *testing.T) {
	now := noon
	swing := func(t time.Time) float64 { return 300 + 100*float64((t.Hour()+6)%24)/24 + float64(t.YearDay()%3) }
	days := func(back, ahead int) Answer {
		var v []float64
		for h := -back; h <= ahead; h++ {
			v = append(v, swing(now.Truncate(time.Hour).Add(time.Duration(h)*time.Hour)))
		}
		return hourly(now, back, v...)
	}
	for _, c := range []struct {
		name    string
		answer  Answer
		model   string // empty for any of the models
		quality energy.Quality
		ranged  bool
	}{
		{"only the current value", days(0, 0), "typical", energy.Derived, false},
		{"with a week of history", days(7*24, 0), "", energy.Derived, true},
		{"with a week of history and six hours", days(7*24, 6), "src+", energy.Derived, false},
		{"with its own forecast", days(24, 48), "src", energy.Measured, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := chain(t, &now, &scripted{name: "src", fetch: func(time.Time) (Answer, error) { return c.answer, nil }})
			k.poll(t.Context())
			s := k.state(now)
			if !s.Fresh || s.Quality != c.quality.String() || s.Signal.Series.Len() < 46 ||
				s.Signal.Series.Value(0) != swing(now) {
				t.Fatalf("%+v, %d hours", s, s.Signal.Series.Len())
			}
			switch {
			case c.model == "" && (s.ForecastSource == "src" || s.ForecastSource == "typical"):
				t.Errorf("%q forecast", s.ForecastSource)
			case c.model == "src+" && !strings.HasPrefix(s.ForecastSource, "src+"), c.model == "src" &&
				s.ForecastSource != "src":
				t.Errorf("%q forecast", s.ForecastSource)
			case c.model == "typical" && !strings.Contains(s.ForecastSource, "typical"):
				t.Errorf("%q forecast", s.ForecastSource)
			}
			if c.ranged && s.Low == nil {
				t.Error("the forecast has no percentiles")
			}
			if c.model == "" {
				tomorrow := now.Add(24 * time.Hour)
				if got, want := s.Signal.Series.At(tomorrow), swing(tomorrow); got < want-15 || got > want+15 {
					t.Errorf("forecast for tomorrow = %v, want about %v", got, want)
				}
			}
		})
	}
}

// TestSeed verifies that a restart sends no requests while the stored status is valid, and polls soon otherwise.
func TestSeed(t *testing.T) {
	now := noon
	p := newProvider(t, description("%s", latest("DE", noon.Truncate(time.Hour), "300")))
	d := testDeps(&now)
	k := carbonKeeper(t, d, electricityMapsAt(p.URL), staticSource(9))
	k.start(now)
	now = now.Add(firstPollWithin)
	k.poll(t.Context())
	status, _ := k.Look(now)
	if status == nil || status.Source != "electricityMaps" || status.Now != 300 || status.Unit != "gCO2e/kWh" ||
		len(status.Values) < 47 || len(status.Values) > 49 ||
		!status.Start.Equal(&metav1.Time{Time: noon.Truncate(time.Hour)}) || !status.AsOf.Equal(&status.Start) {
		t.Fatalf("%+v", status)
	}
	given, _ := k.Look(now)
	given.AsOf.Time = time.Time{} // clients decode responses into the object that they sent
	if again, _ := k.Look(now); !again.AsOf.Equal(status.AsOf) {
		t.Error("the returned status is not a copy")
	}
	asked := p.requests.Load()
	for i := range 5 {
		again := carbonKeeper(t, d, electricityMapsAt(p.URL), staticSource(9))
		again.Seed(status)
		again.start(now)
		again.poll(t.Context())
		written, _ := again.Look(now)
		if diff := cmp.Diff(status, written); diff != "" {
			t.Fatalf("restart %d: %s", i, diff)
		}
	}
	if p.requests.Load() != asked {
		t.Errorf("%d requests after restarts, want 0", p.requests.Load()-asked)
	}
	now = now.Add(3 * time.Hour)
	late := carbonKeeper(t, d, electricityMapsAt(p.URL), staticSource(9))
	late.Seed(status)
	if late.state(now).Fresh {
		t.Error("an expired status was restored")
	}
	late.start(now)
	if wait := late.links[0].next.Sub(now); wait > firstPollWithin {
		t.Errorf("the first poll is after %v", wait)
	}
}

// TestSeedRefuses verifies that a stored status is validated like an answer.
func TestSeedRefuses(t *testing.T) {
	now := noon
	hour := metav1.NewTime(noon.Truncate(time.Hour))
	good := v1alpha1.SignalStatus{
		Now: 1, Unit: "gCO2e/kWh", Quality: "measured", Source: "electricityMaps", AsOf: &hour, Start: hour,
		Step: metav1.Duration{Duration: time.Hour}, Values: []float64{1, 2, 3},
	}
	for name, spoil := range map[string]func(*v1alpha1.SignalStatus){
		"": func(*v1alpha1.SignalStatus) {}, "unit": func(s *v1alpha1.SignalStatus) { s.Unit = "EUR/kWh" },
		"source": func(s *v1alpha1.SignalStatus) { s.Source = "wattTime" }, "negative": func(s *v1alpha1.SignalStatus) {
			s.Values[1] = -1
		},
		"no values": func(s *v1alpha1.SignalStatus) { s.Values = nil }, "no step": func(s *v1alpha1.SignalStatus) {
			s.Step.Duration = 0
		},
		"no step, one value": func(s *v1alpha1.SignalStatus) {
			s.Step.Duration, s.Values, s.Start.Time = 0, s.Values[:1], noon.Add(time.Minute)
		},
		"absurd step": func(s *v1alpha1.SignalStatus) { s.Step.Duration = 1 },
		"other day":   func(s *v1alpha1.SignalStatus) { s.Start.Time = noon.AddDate(0, 0, -2) },
		"future":      func(s *v1alpha1.SignalStatus) { s.AsOf = &metav1.Time{Time: noon.Add(time.Hour)} },
		"ranges":      func(s *v1alpha1.SignalStatus) { s.Low, s.High = []float64{5, 5, 5}, []float64{6, 6, 6} },
	} {
		k := carbonKeeper(t, testDeps(&now), electricityMapsAt("https://x.example"))
		status := good.DeepCopy()
		spoil(status)
		k.Seed(status)
		if got := k.state(now).Fresh; got != (name == "") {
			t.Errorf("Seed() with invalid %q: accepted = %v", name, got)
		}
	}
	carbonKeeper(t, testDeps(&now), staticSource(1)).Seed(nil)
}

func TestStatusIsBounded(t *testing.T) {
	now := noon
	minutes := Answer{Step: time.Minute, IssuedAt: now}
	for m := -60; m < 5000; m++ {
		minutes.Points = append(minutes.Points, Point{
			Time: now.Add(time.Duration(m) * time.Minute), Value: 100 + float64(m)/7,
		})
	}
	k := chain(t, &now, &scripted{name: "src", fetch: func(time.Time) (Answer, error) { return minutes, nil }})
	k.poll(t.Context())
	status, _ := k.Look(now)
	if len(status.Values) != maxValues || status.Values[8] != 101.1 || status.Now != 100 {
		t.Errorf("%d values, %v", len(status.Values), status.Values[:9])
	}
	if got := rounded(price, []float64{0.123456789, -0.000001}); got[0] != 0.12346 || got[1] != 0 {
		t.Errorf("%v", got)
	}
}

func TestPrices(t *testing.T) {
	now := noon
	keeper := func(currency string, value float64) *Keeper {
		k, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
			Currency: currency, Sources: []v1alpha1.PriceSource{{Static: &v1alpha1.StaticSource{Value: value}}},
		}, testDeps(&now))
		if err != nil {
			t.Fatal(err)
		}
		k.poll(t.Context())
		return k
	}
	s := keeper("EUR", -0.21).state(now)
	if s.Unit != "EUR/kWh" || !s.Fresh || s.Signal.Series.At(now) != -0.21 || !s.Signal.AsOf.IsZero() ||
		s.Quality != energy.Measured.String() || s.Signal.Series.Len() != 48 {
		t.Errorf("%+v", s)
	}
	for currency, fresh := range map[string]bool{"EUR": false, "JPY": true, "HUF": true, "NOK": true} {
		if s := keeper(currency, 31).state(now); s.Fresh != fresh || !fresh && s.Reason != dial.ReasonRange {
			t.Errorf("31 %s: %+v", currency, s)
		}
	}
	// The last price is not used for an hour without a price.
	last := hourly(now, 3, 0.1, 0.2)
	if _, err := (terms{zone: "DE", quantity: price, currency: "EUR", maxAge: 36 * time.Hour}).check(&last,
		now); err == nil || dial.ReasonOf(err) != dial.ReasonMissing {
		t.Errorf("check() of a price for a past hour: %v", err)
	}
	last.Points[1].Time, last.Currency = now.Truncate(time.Hour), "USD"
	if _, err := (terms{zone: "DE", quantity: price, currency: "EUR", maxAge: 36 * time.Hour}).check(&last,
		now); err == nil || dial.ReasonOf(err) != dial.ReasonUnit {
		t.Errorf("check() of a price in another currency: %v", err)
	}
}

func TestKeeperRefuses(t *testing.T) {
	now := noon
	d := testDeps(&now)
	if _, err := NewCarbonKeeper("DE", new(v1alpha1.CarbonSpec), d); err == nil {
		t.Error("no source")
	}
	if _, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{Sources: []v1alpha1.CarbonSource{{}}}, d); err == nil {
		t.Error("a source without a kind was accepted")
	}
	if _, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{Currency: "EUR", Sources: []v1alpha1.PriceSource{{}}},
		d); err == nil {
		t.Error("a source without a kind was accepted")
	}
	d.Calls = nil
	if _,
		err := NewCarbonKeeper("DE",
		&v1alpha1.CarbonSpec{Sources: []v1alpha1.CarbonSource{electricityMapsAt("https://x.example")}}, d); err == nil {
		t.Error("no budget")
	}
}

// ledger is a budget with a maximum number of requests in any period of one hour.
type ledger struct {
	mu      sync.Mutex
	spent   map[string][]time.Time
	refused int
	down    bool
}

func (*ledger) Block(context.Context, string, time.Time, time.Time) error { return nil }

func (b *ledger) Reserve(_ context.Context, source string, perHour int, now time.Time) (bool, time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return false, time.Time{}, errors.New("the store is unavailable")
	}
	spent := b.spent[source]
	for len(spent) > 0 && now.Sub(spent[0]) >= time.Hour {
		spent = spent[1:]
	}
	if b.spent[source] = spent; len(spent) >= perHour {
		b.refused++
		return false, spent[0].Add(time.Hour), nil
	}
	b.spent[source] = append(spent, now)
	return true, time.Time{}, nil
}

// wire is a round tripper that responds without network access, for tests with virtual time.
type wire func(*http.Request) (*http.Response, error)

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

func respond(code int, text string, header ...string) (*http.Response, error) {
	h := make(http.Header)
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(text))}, nil
}

// TestCallsPerHour verifies the limit of requests in any period of one hour with ten replicas that restart at
// random times, with and without the stored status, and a provider with transient failures.
func TestCallsPerHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 12
		var mu sync.Mutex
		var calls []time.Time
		dice := rand.New(rand.NewPCG(1, 2))
		provider := wire(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, time.Now())
			switch n := dice.IntN(10); {
			case n < 3:
				return respond(503, "")
			case n < 4:
				return respond(429, "", "Retry-After", "5")
			case n < 5:
				return nil, errors.New("reset")
			case !strings.HasSuffix(r.URL.Path, "latest"):
				return respond(404, "")
			}
			return respond(200, latest("DE", time.Now().Truncate(time.Hour), strconv.Itoa(200+dice.IntN(200))))
		})
		budget := &ledger{spent: make(map[string][]time.Time)}
		perHour, every := int32(limit), metav1.Duration{Duration: 5 * time.Minute}
		source := electricityMapsAt("https://provider.example")
		source.MaxCallsPerHour, source.Every = &perHour, &every
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		var written *v1alpha1.SignalStatus
		var replicas sync.WaitGroup
		for replica := range 10 {
			own := rand.New(rand.NewPCG(3, uint64(replica)))
			replicas.Go(func() {
				for ctx.Err() == nil {
					d := Deps{
						Calls: budget, Keys: testKeys{"em": "sesame"}, Clock: time.Now,
						Log: slog.New(slog.DiscardHandler), Metrics: NewMetrics(time.Now),
					}
					d.Reach.tweak = func(f *fetcher) { f.HTTP.Transport = provider }
					k, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{Sources: []v1alpha1.CarbonSource{source}}, d)
					if err != nil {
						t.Error(err)
						return
					}
					if own.IntN(2) == 0 {
						mu.Lock()
						k.Seed(written)
						mu.Unlock()
					}
					life, end := context.WithTimeout(ctx, time.Duration(own.IntN(40*60))*time.Second)
					k.Run(life, func() {
						mu.Lock()
						defer mu.Unlock()
						if status, _ := k.Look(time.Now()); status != nil {
							written = status
						}
					})
					end()
				}
			})
		}
		replicas.Wait()
		for i := range calls {
			if i >= limit && calls[i].Sub(calls[i-limit]) < time.Hour {
				t.Fatalf("%d requests were sent within %v", limit+1, calls[i].Sub(calls[i-limit]))
			}
		}
		if len(calls) < 24*limit/2 || budget.refused == 0 || written == nil {
			t.Errorf("%d requests sent and %d rejected: the limit was not tested", len(calls), budget.refused)
		}
	})
}

// TestBudgetDown verifies that no requests are sent if they cannot be counted.
func TestBudgetDown(t *testing.T) {
	now := noon
	p := newProvider(t, description("%s", latest("DE", noon.Truncate(time.Hour), "300")))
	d := testDeps(&now)
	budget := &ledger{spent: make(map[string][]time.Time), down: true}
	d.Calls = budget
	k := carbonKeeper(t, d, electricityMapsAt(p.URL))
	k.poll(t.Context())
	if s := k.state(now); p.requests.Load() != 0 || s.Fresh || s.Reason != dial.ReasonRate {
		t.Errorf("%d requests, %+v", p.requests.Load(), s)
	}
	budget.down = false
	now = now.Add(time.Hour)
	p.serve(description("%s", latest("DE", now.Truncate(time.Hour), "300")))
	if k.poll(t.Context()); !k.state(now).Fresh {
		t.Errorf("%+v", k.state(now))
	}
}

// TestRun verifies that Run calls changed after the first answer, after each new answer and after the status has
// expired, and that it returns when its context is canceled.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var value atomic.Int64
		var down atomic.Bool
		value.Store(300)
		d := Deps{
			Calls: new(endless), Keys: testKeys{"em": "x"}, Clock: time.Now, Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(time.Now),
		}
		d.Reach.tweak = func(f *fetcher) {
			f.HTTP.Transport = wire(func(r *http.Request) (*http.Response, error) {
				if down.Load() || !strings.HasSuffix(r.URL.Path, "latest") {
					return respond(503, "")
				}
				return respond(200, latest("DE", begin.Truncate(time.Hour), strconv.FormatInt(value.Load(), 10)))
			})
		}
		d.Metrics = NewMetrics(time.Now)
		k := carbonKeeper(t, d, electricityMapsAt("https://provider.example"))
		ctx, cancel := context.WithCancel(t.Context())
		var reports []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			k.Run(ctx, func() {
				s := k.state(time.Now())
				now := "none"
				if s.Fresh {
					now = fmt.Sprint(s.Signal.Series.Value(0))
				}
				reports = append(reports, fmt.Sprintf("%v %s %s", time.Since(begin).Round(30*time.Minute), now,
					s.Reason))
			})
		}()
		bubble.Advance(20 * time.Minute)
		value.Store(310)
		bubble.Advance(20 * time.Minute)
		down.Store(true)
		bubble.Advance(2 * time.Hour)
		if n := testutil.CollectAndCount(d.Metrics, "kubenergy_signal_rejected_total"); n != 1 {
			t.Errorf("%d reasons", n)
		}
		cancel()
		<-done
		if !slices.Contains(reports, "0s 300 http") || !strings.HasSuffix(reports[len(reports)-1], "none http") {
			t.Errorf("%q", reports)
		}
		if n := testutil.CollectAndCount(d.Metrics, "kubenergy_signal_rejected_total",
			"kubenergy_signal_age_seconds"); n != 0 {
			t.Errorf("%d series remain after the keeper was stopped", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	now := noon
	d := testDeps(&now)
	p := newProvider(t, description("%s", latest("DE", noon.Truncate(time.Hour), "300")))
	k := carbonKeeper(t, d, electricityMapsAt(p.URL))
	twin := carbonKeeper(t, d, electricityMapsAt(p.URL))
	paid, err := NewPriceKeeper("DE", &v1alpha1.PriceSpec{
		Currency: "EUR", Sources: []v1alpha1.PriceSource{{Static: &v1alpha1.StaticSource{Value: 0.3}}},
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*Keeper{k, twin, paid} {
		d.Metrics.add(k)
		k.poll(t.Context())
	}
	registry := prom.NewPedanticRegistry()
	registry.MustRegister(d.Metrics)
	now = now.Add(10 * time.Second)
	want := `
# HELP kubenergy_electricity_price_per_kilowatthour Current price of electricity per kWh in the currency of the zone.
# TYPE kubenergy_electricity_price_per_kilowatthour gauge
kubenergy_electricity_price_per_kilowatthour{currency="EUR",zone="DE"} 0.3
# HELP kubenergy_grid_carbon_intensity_grams_per_kilowatthour Current carbon intensity of electricity in gCO2e per kWh.
# TYPE kubenergy_grid_carbon_intensity_grams_per_kilowatthour gauge
kubenergy_grid_carbon_intensity_grams_per_kilowatthour{quality="derived",signal="average",zone="DE"} 300
# HELP kubenergy_signal_age_seconds Age of the current signal in seconds, by the timestamp of its source; 0 for signals that do not age.
# TYPE kubenergy_signal_age_seconds gauge
kubenergy_signal_age_seconds{quantity="carbon",zone="DE"} 1210
kubenergy_signal_age_seconds{quantity="price",zone="DE"} 0
# HELP kubenergy_signal_requests_total Number of requests to signal sources, including retries, by outcome: ok or a reason.
# TYPE kubenergy_signal_requests_total counter
kubenergy_signal_requests_total{outcome="ok",source="electricityMaps"} 4
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(registry)
	if err != nil || len(problems) != 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// TestMemory verifies the memory usage of 100 zones with four weeks of hourly values.
func TestMemory(t *testing.T) {
	now := noon
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	keepers := make([]*Keeper, 100)
	for i := range keepers {
		keepers[i] = carbonKeeper(t, testDeps(&now), staticSource(1))
		src := &scripted{name: "src", fetch: func(time.Time) (Answer, error) {
			var v []float64
			for h := range 28 * 24 {
				v = append(v, 300+100*float64(h%24)/24+float64(h%5))
			}
			return hourly(now, len(v)-1, v...), nil
		}}
		keepers[i].links[0].source, keepers[i].links[0].kind = src, "src"
		keepers[i].poll(t.Context())
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if hours := now.Sub(keepers[0].history.Start()).Hours(); hours < 28*24-1 || hours > 28*24+1 {
		t.Errorf("the history has %v hours", hours)
	}
	if used > 10<<20 {
		t.Errorf("100 zones use %d bytes", used)
	}
	t.Logf("100 zones use %d bytes", used)
	runtime.KeepAlive(keepers)
}

func TestHistory(t *testing.T) {
	hour := noon.Truncate(time.Hour)
	h := past.Track{Span: historySpan}
	observe := func(now time.Time, points ...Point) {
		(&Answer{Points: points, Step: time.Hour}).addTo(&h, now)
	}
	// Single values: each one changes the mean of its hour.
	for m := 0; m < 180; m += 5 {
		at := hour.Add(time.Duration(m-180) * time.Minute)
		observe(at, Point{Time: at, Value: float64(m / 60)})
	}
	none := func(time.Time) (float64, bool) { return 0, false }
	hourly := func(until time.Time, ahead func(time.Time) (float64, bool)) *grid.Series {
		b := basis{track: &h}
		return b.hours(until, ahead)
	}
	hours := func(s *grid.Series) string {
		var values []float64
		for i := range s.Len() {
			values = append(values, s.Value(i))
		}
		return fmt.Sprint(s.Start().Sub(hour), values)
	}
	if got := hours(hourly(hour, none)); got != "-3h0m0s [0 1 2]" {
		t.Errorf("single values: %s", got)
	}
	// An answer that starts within an hour does not affect the time before, and future values are not history.
	observe(hour.Add(-time.Minute), Point{Time: hour.Add(-5 * time.Minute), Value: 14},
		Point{Time: hour.Add(6 * time.Hour), Value: 900})
	if got := hours(hourly(hour.Add(7*time.Hour), none)); got != "-3h0m0s [0 1 3]" {
		t.Errorf("answer that starts within an hour: %s", got)
	}
	// Short gaps are filled, the history starts after a long gap, and missing hours at the end are taken from
	// ahead.
	h = past.Track{Span: historySpan}
	at := func(hours int, v float64) Point {
		return Point{Time: hour.Add(time.Duration(hours) * time.Hour), Value: v}
	}
	observe(hour, at(-20, 1), at(-19, 2), at(-10, 3), at(-7, 4), at(-6, 5))
	if got := hours(hourly(hour, none)); got != "-10h0m0s [3 3 3 4 5]" {
		t.Errorf("gaps: %s", got)
	}
	ahead := func(t time.Time) (float64, bool) { return 7, !t.Before(hour.Add(-2 * time.Hour)) }
	if got := hours(hourly(hour.Add(2*time.Hour), ahead)); got != "-10h0m0s [3 3 3 4 5 5 5 5 7 7 7 7]" {
		t.Errorf("ahead: %s", got)
	}
	// Older values are added later, and the oldest ones are removed.
	observe(hour, at(-30, 8), at(-24*40, 9))
	observe(hour.Add(27*24*time.Hour), at(24*27, 6))
	if first := h.Start(); first.Before(hour.Add(-24*time.Hour)) || first.After(hour) {
		t.Errorf("the first value is of %s", first)
	}
	if past.HourlyMeans(hour.Add(-time.Hour), hour, none) != nil {
		t.Error("hourlyMeans() without values returned a series")
	}
}

// TestLongHistoriesAreAddedQuickly verifies that points that are older than the span of a track are cheap.
func TestLongHistoriesAreAddedQuickly(t *testing.T) {
	day := noon.Truncate(24 * time.Hour)
	a := &Answer{Step: 24 * time.Hour}
	for i := 36_500; i >= 0; i-- { // in chronological order
		a.Points = append(a.Points, Point{Time: day.AddDate(0, 0, -i), Value: float64(i)})
	}
	machine := kit.WatchMachine(t)
	h, began := past.Track{Span: historySpan}, time.Now()
	a.addTo(&h, noon)
	if took := time.Since(began); took > 3*time.Second {
		machine.TooSlow("adding the points took %v", took)
	}
	for _, days := range []int{0, 1, 27} {
		at := noon.AddDate(0, 0, -days)
		if s := h.During(at, at); s == nil || s.At(at) != float64(days) {
			t.Errorf("value of %d days ago: %v", days, s)
		}
	}
}
