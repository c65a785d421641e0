package signal

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/dial"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
)

// State is what a keeper knows at a moment.
type State struct {
	Signal    grid.Signal   // from the present step on, up to 48 h; absent if nothing is to be believed
	Forecast  grid.Forecast // the same, with percentiles where they are known and who forecast; absent with the signal
	Source    string        // that is believed; "": none
	Fresh     bool          // there is something to believe
	Unit      string        // gCO2e/kWh, or a currency per kWh
	LastError string        // of the first source that did not give all it was asked for; "": none
	Reason    dial.Reason   // of LastError

	quantity quantity
	model    string
}

// State returns what is known now.
func (k *Keeper) State(now time.Time) State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := State{quantity: k.terms.quantity, Unit: k.terms.unit()}
	l := k.believed(now)
	for _, tried := range k.links {
		if tried.err != nil {
			s.LastError, s.Reason = tried.name+": "+tried.err.Error(), dial.ReasonOf(tried.err)
			break
		}
		if tried == l {
			break
		}
	}
	if l == nil {
		return s
	}
	r := l.reading
	first := r.index(now)
	s.Source, s.Fresh, s.model = l.name, true, r.model
	s.Forecast = r.forecast(first)
	s.Signal = grid.Signal{Series: s.Forecast.Series, AsOf: r.asOf, Quality: r.quality}
	return s
}

// unit returns what a status calls the unit.
func (w terms) unit() string {
	if w.quantity == price {
		return w.currency + "/kWh"
	}
	return "gCO2e/kWh"
}

// same reports whether two states say the same. Of errors only the reason counts: their texts tell ages.
func (s State) same(other State) bool {
	if s.Source != other.Source || s.Fresh != other.Fresh || s.Reason != other.Reason || s.model != other.model ||
		s.Signal.Quality != other.Signal.Quality || !s.Signal.AsOf.Equal(other.Signal.AsOf) {
		return false
	}
	return slices.Equal(values(s.Signal.Series), values(other.Signal.Series))
}

func values(s *grid.Series) []float64 {
	if s == nil {
		return nil
	}
	all := make([]float64, s.Len())
	for i := range all {
		all[i] = s.Value(i)
	}
	return all
}

// Status writes the state down, or returns nil if there is nothing to believe.
func (s State) Status(now time.Time) *v1alpha1.SignalStatus {
	series := s.Signal.Series
	if series == nil || !series.Covers(now, now) {
		return nil
	}
	first := int(now.Sub(series.Start()) / series.Step())
	written := func(of *grid.Series) []float64 {
		if of == nil {
			return nil
		}
		all := values(of)[first:]
		return rounded(s.quantity, all[:min(len(all), maxValues)])
	}
	status := &v1alpha1.SignalStatus{
		Unit: s.Unit, Quality: s.Signal.Quality.String(), Source: s.Source, ForecastSource: s.model,
		Start:  metav1.NewTime(series.Start().Add(time.Duration(first) * series.Step())),
		Step:   metav1.Duration{Duration: series.Step()},
		Values: written(series), Low: written(s.Forecast.Low), High: written(s.Forecast.High),
	}
	status.Now = status.Values[0]
	if !s.Signal.AsOf.IsZero() {
		asOf := metav1.NewTime(s.Signal.AsOf)
		status.AsOf = &asOf
	}
	if len(status.Values) == 1 {
		status.ForecastSource = ""
	}
	return status
}

// Seed takes what an earlier process knew, so that a restart asks no source for what is still good. It is checked like
// an answer: anyone who may write the status could have forged it. Call it before Run.
func (k *Keeper) Seed(status *v1alpha1.SignalStatus) {
	if status == nil || status.Unit != k.terms.unit() || len(status.Values) > maxValues {
		return
	}
	now := k.deps.Clock()
	a := Answer{Step: status.Step.Duration, Ageless: status.AsOf == nil, Marginal: k.terms.marginal}
	if status.AsOf != nil {
		a.IssuedAt = status.AsOf.Time
	}
	ranged := len(status.Low) == len(status.Values) && len(status.High) == len(status.Values)
	for i, v := range status.Values {
		p := Point{Time: status.Start.Add(time.Duration(i) * a.Step), Value: v}
		if ranged {
			p.Low, p.High = status.Low[i], status.High[i]
		}
		a.Points = append(a.Points, p)
	}
	if _, err := k.terms.check(a, now); err != nil {
		return
	}
	r := &reading{
		start: status.Start.UTC(), step: a.Step, values: slices.Clone(status.Values), model: status.ForecastSource,
		asOf: a.IssuedAt, issuedAt: a.IssuedAt,
	}
	if ranged {
		r.low, r.high = slices.Clone(status.Low), slices.Clone(status.High)
	}
	if r.quality.UnmarshalText([]byte(status.Quality)) != nil {
		r.quality = energy.Estimated
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.links {
		if l.name == status.Source && l.asks && !r.expired(now, k.terms.maxAge) {
			l.reading = r
			return
		}
	}
}
