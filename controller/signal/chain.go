package signal

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/controller/dial"
	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/grid"
)

// What a GridZone calls the two kinds of intensity; average is the default.
const signalMarginal = "Marginal"

// habit is how a kind of source is asked where the GridZone does not say: about as often as it has anything new, and
// with room for retries.
type habit struct {
	every   time.Duration
	perHour int // 0: it asks nobody
}

var habits = map[string]habit{
	"electricityMaps":   {every: 15 * time.Minute, perHour: 16},
	"ukCarbonIntensity": {every: 30 * time.Minute, perHour: 12},
	"wattTime":          {every: 5 * time.Minute, perHour: 40},
	"prometheus":        {every: 5 * time.Minute, perHour: 30},
	"http":              {every: 5 * time.Minute, perHour: 30},
	"entsoe":            {every: time.Hour, perHour: 12},
	"octopus":           {every: time.Hour, perHour: 12},
	"file":              {every: time.Minute},
	"static":            {every: time.Hour},
	"typical":           {every: 15 * time.Minute},
	"tariff":            {every: 15 * time.Minute},
}

// broken is a source that cannot be: asked for what it does not know, or badly configured. It says so each time that
// it is asked, so that the other sources of the zone still count.
type broken struct {
	name string
	err  error
}

func (b broken) Name() string                                     { return b.name }
func (b broken) Fetch(context.Context, time.Time) (Answer, error) { return Answer{}, b.err }

// builder makes the sources of a chain.
type builder struct {
	zone     grid.Zone
	quantity quantity
	marginal bool
	currency string
	deps     Deps
	names    map[string]int
	links    []*link
}

// add appends a source. build is given a fetcher whose requests count as those of this source.
func (b *builder) add(kind string, every *time.Duration, perHour *int32, private bool,
	build func(f *fetcher) (Source, error),
) error {
	h := habits[kind]
	if every != nil && *every > 0 {
		h.every = max(*every, time.Minute)
	}
	if perHour != nil {
		h.perHour = int(*perHour)
	}
	b.names[kind]++
	name := kind
	if n := b.names[kind]; n > 1 {
		name = fmt.Sprintf("%s-%d", kind, n)
	}
	l := &link{name: name, every: h.every}
	var f *fetcher
	if habits[kind].perHour > 0 {
		if b.deps.Calls == nil {
			return fmt.Errorf("source %s asks others: want a budget of calls", name)
		}
		l.asks, l.account = true, fmt.Sprintf("%s/%s/%s", b.zone, b.quantity, name)
		f = b.fetcher(kind, l.account, h.perHour, private)
		l.fetcher = f
	}
	source, err := build(f)
	if err != nil {
		source = broken{kind, err}
		l.asks = false
	}
	l.source = source
	b.links = append(b.links, l)
	return nil
}

// fetcher returns one that counts.
func (b *builder) fetcher(kind, account string, perHour int, private bool) *fetcher {
	f := newFetcher(b.deps.Reach, private)
	f.keys, f.Now = b.deps.Keys, b.deps.Clock
	f.count = func(outcome string) { b.deps.Metrics.requested(kind, outcome) }
	f.reserve = func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, tryTimeout)
		defer cancel()
		now := b.deps.Clock()
		granted, next, err := b.deps.Calls.Reserve(ctx, account, perHour, now)
		switch {
		case err != nil:
			return dial.Refuse(dial.ReasonRate, "counting the request: %w", err)
		case !granted:
			return &dial.Error{Reason: dial.ReasonRate, Wait: min(max(0, next.Sub(now)), dial.MaxWait), Err: fmt.Errorf(
				"no request is granted before %s: the limit of %d in an hour is reached, or the provider wants to be "+
					"left alone", next.UTC().Format(time.RFC3339), perHour)}
		}
		return nil
	}
	if b.deps.Reach.tweak != nil {
		b.deps.Reach.tweak(f)
	}
	return f
}

// ofKind makes a source unless it knows the other kind of intensity: then nobody needs to be asked to know that.
func (b *builder) ofKind(marginal bool, build func(f *fetcher) (Source, error)) func(f *fetcher) (Source, error) {
	if b.quantity == carbon && marginal != b.marginal {
		return func(*fetcher) (Source, error) {
			return nil, dial.Refuse(dial.ReasonKind, "this source knows %s intensity, wanted is %s: the two are never mixed",
				kind(marginal), kind(b.marginal))
		}
	}
	return build
}

// carbonSource adds a source of intensities.
func (b *builder) carbonSource(s v1alpha1.CarbonSource) error {
	add := func(kind string, private, marginal bool, build func(f *fetcher) (Source, error)) error {
		return b.add(kind, duration(s.Every), s.MaxCallsPerHour, private, b.ofKind(marginal, build))
	}
	switch {
	case s.ElectricityMaps != nil:
		return add("electricityMaps", false, false, func(f *fetcher) (Source, error) {
			return newElectricityMaps(b.zone, s.ElectricityMaps, carbon, "", f)
		})
	case s.UKCarbonIntensity != nil:
		return add("ukCarbonIntensity", false, false, func(f *fetcher) (Source, error) {
			return newUKCarbonIntensity(b.zone, s.UKCarbonIntensity, f)
		})
	case s.WattTime != nil:
		return add("wattTime", false, true, func(f *fetcher) (Source, error) { return newWattTime(s.WattTime, f) })
	case s.Prometheus != nil:
		return add("prometheus", s.Prometheus.AllowPrivateAddress, s.Prometheus.Signal == signalMarginal,
			func(f *fetcher) (Source, error) {
				return newPrometheus(s.Prometheus, carbon, f)
			})
	case s.HTTP != nil:
		return add("http", s.HTTP.AllowPrivateAddress, s.HTTP.Signal == signalMarginal,
			func(f *fetcher) (Source, error) {
				return newHTTP(b.zone, s.HTTP, carbon, f)
			})
	case s.File != nil:
		return add("file", false, s.File.Signal == signalMarginal, func(*fetcher) (Source, error) {
			return newFile(b.zone, s.File, carbon, "", b.deps.Data)
		})
	case s.Static != nil:
		return add("static", false, b.marginal, func(*fetcher) (Source, error) {
			return newStatic(s.Static, carbon, b.marginal)
		})
	case s.Typical != nil:
		return add("typical", false, false, func(*fetcher) (Source, error) { return newTypical(b.zone, s.Typical) })
	}
	return fmt.Errorf("source %d names no kind", len(b.links))
}

// priceSource adds a source of prices.
func (b *builder) priceSource(s v1alpha1.PriceSource) error {
	add := func(kind string, private bool, build func(f *fetcher) (Source, error)) error {
		return b.add(kind, duration(s.Every), s.MaxCallsPerHour, private, build)
	}
	switch {
	case s.Tariff != nil:
		return add("tariff", false, func(*fetcher) (Source, error) {
			return newTariff(s.Tariff, b.currency, b.deps.Data)
		})
	case s.ENTSOE != nil:
		return add("entsoe", false, func(f *fetcher) (Source, error) { return newENTSOE(s.ENTSOE, f) })
	case s.ElectricityMaps != nil:
		return add("electricityMaps", false, func(f *fetcher) (Source, error) {
			return newElectricityMaps(b.zone, s.ElectricityMaps, price, b.currency, f)
		})
	case s.Octopus != nil:
		return add("octopus", false, func(f *fetcher) (Source, error) {
			if b.currency != "GBP" {
				return nil, dial.Refuse(dial.ReasonUnit, "the prices are in GBP, wanted is %s", b.currency)
			}
			return newOctopus(s.Octopus, f)
		})
	case s.Prometheus != nil:
		return add("prometheus", s.Prometheus.AllowPrivateAddress, func(f *fetcher) (Source, error) {
			return newPrometheus(s.Prometheus, price, f)
		})
	case s.HTTP != nil:
		return add("http", s.HTTP.AllowPrivateAddress, func(f *fetcher) (Source, error) {
			return newHTTP(b.zone, s.HTTP, price, f)
		})
	case s.File != nil:
		return add("file", false, func(*fetcher) (Source, error) {
			return newFile(b.zone, s.File, price, b.currency, b.deps.Data)
		})
	case s.Static != nil:
		return add("static", false, func(*fetcher) (Source, error) { return newStatic(s.Static, price, false) })
	}
	return fmt.Errorf("source %d names no kind", len(b.links))
}

func duration(d *metav1.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	return &d.Duration
}
