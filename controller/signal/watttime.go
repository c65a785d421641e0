package signal

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/dial"
	"github.com/kubenergy/kubenergy/grid"
)

const (
	wattTimeURL    = "https://api.watttime.org"
	wattTimeSignal = "co2_moer"
	wattTimeStep   = 5 * time.Minute
	wattTimeToken  = 25 * time.Minute // tokens hold for 30
)

// wattTime is WattTime's API v3: the marginal operating emissions rate of a region, as it was and as it is forecast.
type wattTime struct {
	spec  *v1alpha1.WattTimeSource
	fetch *fetcher

	token      string
	tokenUntil time.Time
	unforeseen time.Time // until then no forecast is asked for: the plan does not include it
}

// Fetch asks for the day past, which ends at about now, and for two days ahead.
func (s *wattTime) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	past, _, err := s.get(ctx, now, "/v3/historical", url.Values{
		"start": {now.Add(-24 * time.Hour).UTC().Format(time.RFC3339)},
		"end":   {now.UTC().Format(time.RFC3339)},
	})
	if err != nil && !passing(err) {
		return Answer{}, err
	}
	a := Answer{
		Zone: grid.Zone(s.spec.Region), Asked: grid.Zone(s.spec.Region), Step: wattTimeStep, Marginal: true, Lacks: err,
	}
	a.Points, a.IssuedAt = past, newest(past, now)
	if now.Before(s.unforeseen) {
		return a, err
	}
	ahead, issued, failed := s.get(ctx, now, "/v3/forecast", url.Values{"horizon_hours": {"48"}})
	switch {
	case failed == nil:
		for i := range ahead {
			ahead[i].Estimated = true
		}
		if a.Points = supplement(a.Points, ahead); issued.After(a.IssuedAt) {
			a.IssuedAt = issued
		}
		return a, nil
	case err != nil || !passing(failed):
		return Answer{}, failed
	case dial.ReasonOf(failed) == dial.ReasonAuth:
		s.unforeseen = now.Add(24 * time.Hour)
	}
	a.Lacks = failed
	return a, nil
}

// passing reports whether an error leaves the other half of an answer believable.
func passing(err error) bool {
	switch dial.ReasonOf(err) {
	case dial.ReasonHTTP, dial.ReasonRate, dial.ReasonMissing:
		return true
	case dial.ReasonAuth:
		return dial.HasStatus(err, http.StatusForbidden) // known to the service, but not entitled
	}
	return false
}

// get asks once, with a token; and once more with a new one if that is refused.
func (s *wattTime) get(ctx context.Context, now time.Time, path string, query url.Values) ([]Point, time.Time, error) {
	query.Set("region", s.spec.Region)
	query.Set("signal_type", wattTimeSignal)
	for again := true; ; again = false {
		if err := s.login(ctx, now); err != nil {
			return nil, time.Time{}, err
		}
		body, _, err := s.fetch.get(ctx, request{
			url: s.base() + path, query: query, header: http.Header{"Authorization": {"Bearer " + s.token}},
		})
		switch {
		case err == nil:
			return s.decode(body)
		case dial.HasStatus(err, http.StatusUnauthorized):
			if s.token = ""; again {
				continue
			}
		}
		return nil, time.Time{}, err
	}
}

// login gets a token unless there is one.
func (s *wattTime) login(ctx context.Context, now time.Time) error {
	if s.token != "" && now.Before(s.tokenUntil) {
		return nil
	}
	key, err := s.fetch.Key(s.fetch.keys, s.spec.Key)
	if err != nil {
		return err
	}
	if _, _, ok := strings.Cut(key, ":"); !ok {
		return dial.Refuse(dial.ReasonAuth, "key %q: want user name and password, separated by a colon", s.spec.Key)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(key))
	body, _, err := s.fetch.get(ctx, request{url: s.base() + "/login", header: http.Header{"Authorization": {basic}}})
	if err != nil {
		return err
	}
	var text struct {
		Token string `json:"token"`
	}
	if err := decode(body, &text); err != nil {
		return err
	}
	if text.Token == "" || strings.ContainsAny(text.Token, "\r\n") {
		return dial.Refuse(dial.ReasonAuth, "the login gave no token")
	}
	s.token, s.tokenUntil = text.Token, now.Add(wattTimeToken)
	return nil
}

func (s *wattTime) base() string {
	return strings.TrimSuffix(cmp.Or(s.spec.URL, wattTimeURL), "/")
}

// wattTimeText is an answer about a region.
type wattTimeText struct {
	Data []struct {
		PointTime instant `json:"point_time"`
		Value     number  `json:"value"`
	} `json:"data"`
	Meta struct {
		Region      string  `json:"region"`
		SignalType  string  `json:"signal_type"`
		Units       string  `json:"units"`
		GeneratedAt instant `json:"generated_at"`
		Seconds     number  `json:"data_point_period_seconds"`
	} `json:"meta"`
}

// decode reads an answer, and when a forecast was made.
func (s *wattTime) decode(body []byte) ([]Point, time.Time, error) {
	var text wattTimeText
	if err := decode(body, &text); err != nil {
		return nil, time.Time{}, err
	}
	meta := text.Meta
	var err error
	switch {
	case !strings.EqualFold(meta.Region, s.spec.Region):
		err = dial.Refuse(dial.ReasonZone, "the answer is of region %.40q, asked was %s", meta.Region, s.spec.Region)
	case meta.SignalType != wattTimeSignal:
		err = dial.Refuse(dial.ReasonKind, "the answer is of signal %.40q, asked was %s", meta.SignalType,
			wattTimeSignal)
	case meta.Units != "lbs_co2_per_mwh":
		err = dial.Refuse(dial.ReasonUnit, "the unit is %.40q: want lbs_co2_per_mwh", meta.Units)
	case meta.Seconds.set && meta.Seconds.value != wattTimeStep.Seconds():
		err = dial.Refuse(dial.ReasonTime, "points are %v seconds apart: want %v", meta.Seconds.value,
			wattTimeStep.Seconds())
	case len(text.Data) == 0:
		err = dial.Refuse(dial.ReasonMissing, "the answer has no values")
	}
	if err != nil {
		return nil, time.Time{}, err
	}
	points := make([]Point, 0, len(text.Data))
	for _, p := range text.Data {
		if p.PointTime.IsZero() {
			return nil, time.Time{}, dial.Refuse(dial.ReasonTime, "a value has no point_time")
		}
		if !p.Value.set {
			return nil, time.Time{}, dial.Refuse(dial.ReasonMissing, "the value of %s is null or absent",
				p.PointTime.Format(time.RFC3339))
		}
		points = append(points, Point{Time: p.PointTime.Time, Value: p.Value.value * gramsPerKWhOfPoundsPerMWh})
	}
	return points, meta.GeneratedAt.Time, nil
}
