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
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	wattTimeURL    = "https://api.watttime.org"
	wattTimeSignal = "co2_moer"
	wattTimeStep   = 5 * time.Minute
	wattTimeToken  = 25 * time.Minute // tokens are valid for 30 minutes
)

// wattTime implements the API v3 of WattTime. It provides the past and forecast marginal operating emissions rate
// of a region.
type wattTime struct {
	spec  *v1alpha1.WattTimeSource
	fetch *fetcher

	token      string
	tokenUntil time.Time
	ahead      extra
}

// Fetch requests the last day and the next two days. Either of them is sufficient for an answer.
func (s *wattTime) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	var past extra
	lacks, wrong := past.renew(now, 0, 0, func() (Answer, error) {
		return s.get(ctx, now, "/v3/historical", url.Values{
			"start": {now.Add(-24 * time.Hour).UTC().Format(time.RFC3339)},
			"end":   {now.UTC().Format(time.RFC3339)},
			// Requests imputed_data_used.
			"include_imputed_marker": {"true"},
		})
	})
	if wrong != nil || dial.ReasonOf(lacks) == dial.ReasonAuth && !dial.HasStatus(lacks, http.StatusForbidden) {
		return Answer{}, cmp.Or(wrong, lacks)
	}
	more, wrong := s.ahead.renew(now, 0, 0, func() (Answer, error) {
		a, err := s.get(ctx, now, "/v3/forecast", url.Values{"horizon_hours": {"48"}})
		return a.estimated(), err
	})
	if more != nil && (lacks != nil || !dial.HasStatus(more, http.StatusForbidden)) {
		s.ahead.next = now // the plan excludes the forecast only if nothing else is forbidden
	}
	if wrong != nil || len(past.Points)+len(s.ahead.Points) == 0 {
		return Answer{}, cmp.Or(wrong, more, lacks)
	}
	return Answer{
		Points: supplement(past.Points, s.ahead.Points), Step: wattTimeStep, Lacks: cmp.Or(more, lacks),
		IssuedAt: timeutil.Later(newest(past.Points, now), s.ahead.IssuedAt),
	}, nil
}

// get sends a request with a token. If the token is rejected, it retries once with a new one.
func (s *wattTime) get(ctx context.Context, now time.Time, path string, query url.Values) (Answer, error) {
	query.Set("region", s.spec.Region)
	query.Set("signal_type", wattTimeSignal)
	for again := true; ; again = false {
		if err := s.login(ctx, now); err != nil {
			return Answer{}, err
		}
		a, err := fetched(ctx, s.fetch, request{
			url: s.url(), path: path, query: query, header: http.Header{"Authorization": {"Bearer " + s.token}},
		}, s.decode)
		if !dial.HasStatus(err, http.StatusUnauthorized) {
			return a, err
		}
		if s.token = ""; !again {
			return Answer{}, err
		}
	}
}

// login requests a token unless there is a valid one.
func (s *wattTime) login(ctx context.Context, now time.Time) error {
	if s.token != "" && now.Before(s.tokenUntil) {
		return nil
	}
	key, err := s.fetch.keyFor(s.url(), s.spec.Key)
	if err != nil {
		return err
	}
	if _, _, ok := strings.Cut(key, ":"); !ok {
		return dial.Refuse(dial.ReasonAuth, "key %q: want a user name and a password separated by a colon", s.spec.Key)
	}
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte(key))
	var text struct {
		Token string `json:"token"`
	}
	r := request{url: s.url(), path: "/login", header: http.Header{"Authorization": {basic}}}
	_, err = fetched(ctx, s.fetch, r, func(body []byte) (any, error) { return nil, decode(body, &text) })
	switch {
	case err != nil:
		return err
	case text.Token == "" || strings.ContainsAny(text.Token, "\r\n"):
		return dial.Refuse(dial.ReasonAuth, "the login returned no token")
	}
	s.token, s.tokenUntil = text.Token, now.Add(wattTimeToken)
	return nil
}

func (s *wattTime) url() string { return cmp.Or(s.spec.URL, wattTimeURL) }

// wattTimeText is a response with the values of a region.
type wattTimeText struct {
	Data []struct {
		PointTime instant `json:"point_time"`
		Value     number  `json:"value"`
		Imputed   bool    `json:"imputed_data_used"`
	} `json:"data"`
	Meta struct {
		Region      string  `json:"region"`
		SignalType  string  `json:"signal_type"`
		Units       string  `json:"units"`
		GeneratedAt instant `json:"generated_at"`
		Seconds     number  `json:"data_point_period_seconds"`
	} `json:"meta"`
}

// decode parses a response. IssuedAt is the time when a forecast was generated.
func (s *wattTime) decode(body []byte) (Answer, error) {
	var text wattTimeText
	if err := decode(body, &text); err != nil {
		return Answer{}, err
	}
	meta := text.Meta
	var err error
	switch {
	case !strings.EqualFold(meta.Region, s.spec.Region):
		err = dial.Refuse(dial.ReasonZone, "the response is for region %.40q, want %s", meta.Region, s.spec.Region)
	case meta.SignalType != wattTimeSignal:
		err = dial.Refuse(dial.ReasonKind, "the response is for signal %.40q, want %s", meta.SignalType, wattTimeSignal)
	case meta.Units != "lbs_co2_per_mwh":
		err = dial.Refuse(dial.ReasonUnit, "the unit is %.40q, want lbs_co2_per_mwh", meta.Units)
	case meta.Seconds.set && meta.Seconds.value != wattTimeStep.Seconds():
		err = dial.Refuse(dial.ReasonTime, "the interval of points is %v seconds, want %v", meta.Seconds.value,
			wattTimeStep.Seconds())
	case len(text.Data) == 0:
		err = dial.Refuse(dial.ReasonMissing, "the response has no values")
	}
	if err != nil {
		return Answer{}, err
	}
	a := Answer{IssuedAt: meta.GeneratedAt.Time}
	for _, p := range text.Data {
		if p.PointTime.IsZero() {
			return Answer{}, dial.Refuse(dial.ReasonTime, "a value has no field point_time")
		}
		if !p.Value.set {
			return Answer{}, dial.Refuse(dial.ReasonMissing, "the value at %s is null or absent",
				p.PointTime.Format(time.RFC3339))
		}
		a.Points = append(a.Points, Point{
			Time: p.PointTime.Time, Value: p.Value.value * gramsPerKWhOfPoundsPerMWh, Estimated: p.Imputed,
		})
	}
	return a, nil
}
