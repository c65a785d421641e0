package signal

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Look returns the current status with a forecast of up to 48 h, and the error of the first source that failed or
// returned incomplete data. The status is nil if no source is valid.
func (k *Keeper) Look(now time.Time) (*v1alpha1.SignalStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.believed(now)
	var trouble error
	for _, tried := range k.links {
		if tried.err != nil {
			trouble = fmt.Errorf("%s: %w", tried.name, tried.err)
		}
		if tried == l || trouble != nil {
			break
		}
	}
	if l == nil {
		return nil, trouble
	}
	s := *l.status
	s.AsOf = s.AsOf.DeepCopy() // clients decode responses into the object that they sent
	first := index(&s, now)
	last := min(len(s.Values), first+maxValues, first+int((horizon+s.Step.Duration-1)/s.Step.Duration))
	s.Start = metav1.NewTime(s.Start.Add(time.Duration(first) * s.Step.Duration).UTC())
	for _, values := range []*[]float64{&s.Values, &s.Low, &s.High} {
		if *values != nil {
			*values = rounded(k.terms.quantity, (*values)[first:last])
		}
	}
	if s.Now = s.Values[0]; len(s.Values) == 1 {
		s.ForecastSource = ""
	}
	return &s, trouble
}

// unit returns the unit of the values in a status.
func (w terms) unit() string {
	if w.quantity == price {
		return w.currency + "/kWh"
	}
	return "gCO2e/kWh"
}

// Seed restores the status of an earlier process, so that a restart does not poll sources with a valid status. The
// status is validated like an answer, because anyone with write access to it could have forged it. It must be
// called before Run.
func (k *Keeper) Seed(status *v1alpha1.SignalStatus) {
	if status == nil || status.Unit != k.terms.unit() || len(status.Values) > maxValues || status.Step.Duration <= 0 {
		return
	}
	s := status.DeepCopy()
	if len(s.Low) != len(s.Values) || len(s.High) != len(s.Values) {
		s.Low, s.High = nil, nil
	}
	if new(energy.Quality).UnmarshalText([]byte(s.Quality)) != nil {
		s.Quality = energy.Estimated.String()
	}
	now := k.deps.Clock()
	a := Answer{Step: s.Step.Duration, Ageless: s.AsOf == nil}
	if s.AsOf != nil {
		a.IssuedAt = s.AsOf.Time
	}
	for i := range s.Values {
		a.Points = append(a.Points, point(s, i))
	}
	if _, err := k.terms.check(&a, now); err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.links {
		if l.name == s.Source && l.asks && !expired(s, now, k.terms.maxAge) {
			l.status, l.issued, l.recent = s, a.IssuedAt, []Point{point(s, 0)}
			return
		}
	}
}
