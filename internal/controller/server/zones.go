package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Zones is the response of GET /api/v1/zones.
type Zones struct {
	Zones []Zone `json:"zones"`
}

// Zone contains the signals of a GridZone that are used for decisions.
type Zone struct {
	Name   string  `json:"name"`
	Zone   string  `json:"zone"`
	PUE    float64 `json:"pue,omitempty"`
	Carbon *Signal `json:"carbon,omitempty"` // in gCO2e per kWh; absent if unknown
	Price  *Signal `json:"price,omitempty"`  // in currency units per kWh
}

// Signal contains the current value and the forecast of a signal.
type Signal struct {
	Now     *float64       `json:"now,omitempty"` // absent if the series does not cover the current time
	Fresh   bool           `json:"fresh"`         // recent enough for decisions, according to the zone
	Quality energy.Quality `json:"quality"`
	AsOf    *time.Time     `json:"asOf,omitempty"` // time of issue; absent if the signal does not age
	// AgeSeconds is the time since AsOf.
	AgeSeconds     *float64  `json:"ageSeconds,omitempty"`
	Kind           string    `json:"kind,omitempty"` // average or marginal; only for carbon intensity
	Unit           string    `json:"unit,omitempty"`
	Source         string    `json:"source,omitempty"`
	ForecastSource string    `json:"forecastSource,omitempty"`
	Step           string    `json:"step"`
	Start          time.Time `json:"start"` // time of the first value
	Values         []float64 `json:"values"`
	Low            []float64 `json:"low,omitempty"` // 10th percentiles
	High           []float64 `json:"high,omitempty"`
}

func (s *server) serveZones(w http.ResponseWriter, r *http.Request, q *query) error {
	described := s.gridZones(r.Context())
	answer := Zones{Zones: []Zone{}}
	for _, site := range s.View().Sites() {
		answer.Zones = append(answer.Zones, zoneOf(site, described[site.Name], q.now))
	}
	slices.SortFunc(answer.Zones, func(a, b Zone) int { return strings.Compare(a.Name, b.Name) })
	return writeJSON(w, http.StatusOK, answer)
}

// gridZones returns all GridZones by name. On failure it returns none, and the response has less metadata.
func (s *server) gridZones(ctx context.Context) map[string]*v1alpha1.GridZone {
	byName := map[string]*v1alpha1.GridZone{}
	const timeout = 2 * time.Second // for a cache that has not been synced yet
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var list v1alpha1.GridZoneList
	if err := s.Client.List(ctx, &list); err != nil {
		s.Log.Warn("Failed to list GridZones", "error", err)
		return byName
	}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
	}
	return byName
}

func zoneOf(site *sched.Site, z *v1alpha1.GridZone, now time.Time) Zone {
	shown := Zone{
		Name: site.Name, Zone: string(site.Zone), PUE: site.PUE, Carbon: signalOf(site.Carbon, now),
		Price: signalOf(site.Price, now),
	}
	if z == nil {
		return shown
	}
	describe(shown.Carbon, z.Status.Carbon)
	describe(shown.Price, z.Status.Price)
	if shown.Carbon != nil && z.Spec.Carbon != nil {
		shown.Carbon.Kind = strings.ToLower(cmp.Or(z.Spec.Carbon.Signal, "average"))
	}
	return shown
}

func signalOf(s grid.Signal, now time.Time) *Signal {
	if s.Series == nil {
		return nil
	}
	shown := &Signal{
		Fresh: s.Fresh(now, 0), Quality: s.Quality, Step: s.Series.Step().String(), Start: s.Series.Start(),
		Values: s.Series.Values(0, s.Series.Len()),
	}
	if s.Series.Covers(now, now) {
		shown.Now = new(s.Series.At(now))
	}
	if !s.AsOf.IsZero() {
		shown.AsOf, shown.AgeSeconds = new(s.AsOf.UTC()), new(now.Sub(s.AsOf).Seconds())
	}
	return shown
}

// describe adds metadata from the status of the GridZone. It does nothing if the status has changed since the view
// was built.
func describe(shown *Signal, s *v1alpha1.SignalStatus) {
	if shown == nil || s == nil || !s.Start.Time.Equal(shown.Start) || len(s.Values) != len(shown.Values) {
		return
	}
	shown.Unit, shown.Source, shown.ForecastSource = s.Unit, s.Source, s.ForecastSource
	if len(s.Low) == len(s.Values) && len(s.High) == len(s.Values) {
		shown.Low, shown.High = s.Low, s.High
	}
}
