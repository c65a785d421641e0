package signal

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// Kind of carbon intensity in a GridZone. The default is average.
const signalMarginal = "Marginal"

// habit contains the defaults for a kind of source. The interval matches the update rate of the provider, and the
// limit of requests allows some retries.
type habit struct {
	every   time.Duration
	perHour int    // maximum number of requests per hour; 0 if the source sends none
	home    string // server of the provider
}

var habits = map[string]habit{
	"electricityMaps":   {every: 15 * time.Minute, perHour: 16, home: electricityMapsURL},
	"ukCarbonIntensity": {every: 30 * time.Minute, perHour: 12},
	"wattTime":          {every: 5 * time.Minute, perHour: 40, home: wattTimeURL},
	"prometheus":        {every: 5 * time.Minute, perHour: 30},
	"http":              {every: 5 * time.Minute, perHour: 30},
	"entsoe":            {every: time.Hour, perHour: 12, home: entsoeURL},
	"octopus":           {every: time.Hour, perHour: 12},
	"file":              {every: time.Minute},
	"static":            {every: time.Hour},
	"typical":           {every: 15 * time.Minute},
	"tariff":            {every: 15 * time.Minute},
}

// broken is a source with an invalid configuration. It returns the error from each poll, so that the other sources
// of the zone can still be used.
type broken struct{ err error }

func (b broken) Fetch(context.Context, time.Time) (Answer, error) { return Answer{}, b.err }

// builder creates the sources of a chain.
type builder struct {
	terms
	deps  Deps
	names map[string]int
	links []*link
}

// open appends a link for a source of the given kind to the chain. The caller must set the source of the link. The
// returned fetcher counts its requests for this source. It is nil if the kind sends no requests.
func (b *builder) open(kind string, every *metav1.Duration, perHour *int32, private bool) (*link, *fetcher) {
	h := habits[kind]
	limit := h.perHour
	if every != nil && every.Duration > 0 {
		h.every = max(every.Duration, time.Minute)
	}
	if perHour != nil {
		limit = int(*perHour)
	}
	b.names[kind]++
	l := &link{kind: kind, name: kind, every: h.every}
	if n := b.names[kind]; n > 1 {
		l.name = fmt.Sprintf("%s-%d", kind, n)
	}
	if h.perHour > 0 {
		l.asks, l.account = true, fmt.Sprintf("%s/%s/%s", b.zone, b.quantity, l.name)
		l.fetcher = b.fetcher(kind, l.account, limit, private)
	}
	b.links = append(b.links, l)
	return l, l.fetcher
}

// fetcher returns a fetcher that reserves its requests in the budget and counts them in metrics.
func (b *builder) fetcher(kind, account string, perHour int, private bool) *fetcher {
	f := newFetcher(b.deps.Reach, private)
	f.keys, f.home, f.Now = b.deps.Keys, strings.TrimPrefix(habits[kind].home, "https://"), b.deps.Clock
	f.count = func(outcome string) { b.deps.Metrics.requests.WithLabelValues(kind, outcome).Inc() }
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
				"no request is allowed before %s: the limit of %d per hour is reached, or the provider requested "+
					"a delay", next.UTC().Format(time.RFC3339), perHour)}
		}
		return nil
	}
	if b.deps.Reach.tweak != nil {
		b.deps.Reach.tweak(f)
	}
	return f
}

// spec is a carbon or price source.
type spec struct {
	v1alpha1.CarbonSource
	tariff  *v1alpha1.TariffSource
	entsoe  *v1alpha1.ENTSOESource
	octopus *v1alpha1.OctopusSource
}

func specOf(s v1alpha1.PriceSource) spec {
	return spec{tariff: s.Tariff, entsoe: s.ENTSOE, octopus: s.Octopus, CarbonSource: v1alpha1.CarbonSource{
		Every: s.Every, MaxCallsPerHour: s.MaxCallsPerHour, ElectricityMaps: s.ElectricityMaps,
		Prometheus: s.Prometheus, HTTP: s.HTTP, File: s.File, Static: s.Static,
	}}
}

// add appends a source to the chain. A source with the wrong kind of intensity or currency is added as broken and
// sends no requests.
func (b *builder) add(s spec) error {
	var l *link
	open := func(kind string, private bool) (f *fetcher) {
		l, f = b.open(kind, s.Every, s.MaxCallsPerHour, private)
		return f
	}
	source, marginal, err := b.source(s, open)
	switch {
	case l == nil:
		return fmt.Errorf("source %d has no kind", len(b.links))
	case l.asks && b.deps.Calls == nil:
		return fmt.Errorf("source %s sends requests: want a budget of calls", l.name)
	case b.quantity == carbon && marginal != b.marginal:
		err = dial.Refuse(dial.ReasonKind, "this source provides %s intensity, want %s: the two kinds cannot be mixed",
			Kind(marginal), Kind(b.marginal))
	}
	if l.source = source; err != nil {
		l.source, l.asks = broken{err}, false
	}
	return nil
}

// source creates the configured source. marginal reports whether it provides marginal carbon intensities.
func (b *builder) source(s spec, open func(kind string, private bool) *fetcher,
) (source Source, marginal bool, err error) {
	switch {
	case s.ElectricityMaps != nil:
		source = newElectricityMaps(b.terms, s.ElectricityMaps, open("electricityMaps", false))
	case s.UKCarbonIntensity != nil:
		source, err = newUKCarbonIntensity(b.zone, s.UKCarbonIntensity, open("ukCarbonIntensity", false))
	case s.WattTime != nil:
		source, marginal = &wattTime{spec: s.WattTime, fetch: open("wattTime", false)}, true
	case s.Prometheus != nil:
		marginal = s.Prometheus.Signal == signalMarginal
		source, err = newPrometheus(s.Prometheus, b.quantity, open("prometheus", s.Prometheus.AllowPrivateAddress))
	case s.HTTP != nil:
		marginal = s.HTTP.Signal == signalMarginal
		source, err = newHTTP(b.zone, s.HTTP, b.quantity, open("http", s.HTTP.AllowPrivateAddress))
	case s.File != nil:
		open("file", false)
		marginal = s.File.Signal == signalMarginal
		source, err = newFile(b.terms, s.File, b.deps.Data)
	case s.Static != nil:
		open("static", false)
		source, marginal = &static{s.Static.Value, b.quantity}, b.marginal
	case s.Typical != nil:
		open("typical", false)
		source = newTypical(b.zone, s.Typical)
	case s.tariff != nil:
		open("tariff", false)
		source, err = newTariff(s.tariff, b.currency, b.deps.Data)
	case s.entsoe != nil:
		source = &entsoe{s.entsoe, open("entsoe", false)}
	case s.octopus != nil:
		if source = (&octopus{s.octopus, open("octopus", false)}); b.currency != "GBP" {
			err = dial.Refuse(dial.ReasonUnit, "the prices are in GBP, want %s", b.currency)
		}
	}
	return source, marginal, err
}
