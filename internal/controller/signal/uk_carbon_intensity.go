package signal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/grid"
)

const (
	ukCarbonIntensityURL  = "https://api.carbonintensity.org.uk"
	ukCarbonIntensitySlot = 30 * time.Minute
)

// ukCarbonIntensity implements the API of carbonintensity.org.uk. It provides half-hourly forecasts and, for the
// nation but not for regions, actual values.
type ukCarbonIntensity struct {
	spec  *v1alpha1.UKCarbonIntensitySource
	fetch *fetcher

	past extra
}

func newUKCarbonIntensity(zone grid.Zone, spec *v1alpha1.UKCarbonIntensitySource, f *fetcher) (Source, error) {
	if upper := strings.ToUpper(string(zone)); upper != "GB" && upper != "UK" && !strings.HasPrefix(upper, "GB-") &&
		!strings.HasPrefix(upper, "UK-") {
		return nil, dial.Refuse(dial.ReasonZone,
			"the zone is %q: this source is for Great Britain, want GB or a part of it such as GB-LONDON", zone)
	}
	return &ukCarbonIntensity{spec: spec, fetch: f}, nil
}

// Fetch requests the next two days and, at most every two hours, the last day.
func (s *ukCarbonIntensity) Fetch(ctx context.Context, now time.Time) (Answer, error) {
	slot := now.Truncate(ukCarbonIntensitySlot)
	// It starts one slot early, because the service starts with either the slot that contains the given time or the
	// next one.
	a, err := s.get(ctx, slot.Add(-ukCarbonIntensitySlot), "fw48h")
	if err != nil {
		return Answer{}, err
	}
	a.Step, a.IssuedAt = ukCarbonIntensitySlot, newest(a.Points, now)
	var wrong error
	a.Lacks, wrong = s.past.renew(now, 2*time.Hour, 24*time.Hour, func() (Answer, error) {
		return s.get(ctx, slot, "pt24h")
	})
	a.Points = supplement(a.Points, s.past.Points)
	return a, wrong
}

// get requests the slots before or after a point in time.
func (s *ukCarbonIntensity) get(ctx context.Context, from time.Time, span string) (Answer, error) {
	path := "/intensity/" + from.UTC().Format("2006-01-02T15:04Z") + "/" + span
	switch {
	case s.spec.Postcode != "":
		path = "/regional" + path + "/postcode/" + s.spec.Postcode
	case s.spec.RegionID != 0:
		path = fmt.Sprintf("/regional%s/regionid/%d", path, s.spec.RegionID)
	}
	return fetched(ctx, s.fetch, request{url: cmp.Or(s.spec.URL, ukCarbonIntensityURL), path: path}, s.decode)
}

// ukSlot is a period of half an hour.
type ukSlot struct {
	From      instant `json:"from"`
	To        instant `json:"to"`
	Intensity struct {
		Forecast number `json:"forecast"`
		Actual   number `json:"actual"`
	} `json:"intensity"`
}

// ukRegion is the object that contains the slots in regional responses.
type ukRegion struct {
	RegionID int32    `json:"regionid"`
	Postcode string   `json:"postcode"`
	Data     []ukSlot `json:"data"`
}

// decode parses a response, which is a list of slots for the nation, or an object with such a list for a region.
func (s *ukCarbonIntensity) decode(body []byte) (a Answer, err error) {
	var text struct {
		Data json.RawMessage `json:"data"`
	}
	if err := decode(body, &text); err != nil {
		return a, err
	}
	if len(text.Data) == 0 {
		return a, dial.Refuse(dial.ReasonMissing, "the response has no data")
	}
	var region ukRegion
	if s.spec.Postcode == "" && s.spec.RegionID == 0 {
		if err := decode(text.Data, &region.Data); err != nil {
			return a, err
		}
	} else if err := s.region(text.Data, &region); err != nil {
		return a, err
	}
	for _, slot := range region.Data {
		if slot.From.IsZero() || slot.To.Sub(slot.From.Time) != ukCarbonIntensitySlot {
			return a, dial.Refuse(dial.ReasonTime, "a slot is from %s to %s, want half an hour",
				slot.From.Format(time.RFC3339), slot.To.Format(time.RFC3339))
		}
		value, actual := slot.Intensity.Forecast, slot.Intensity.Actual
		if actual.set {
			value = actual
		}
		if !value.set {
			continue // no value is known for this slot
		}
		a.Points = append(a.Points, Point{Time: slot.From.Time, Value: value.value, Estimated: !actual.set})
	}
	return a, nil
}

// region parses a regional response, which must be of the requested region.
func (s *ukCarbonIntensity) region(data json.RawMessage, into *ukRegion) error {
	if err := decode(data, into); err != nil {
		return err
	}
	if s.spec.Postcode != "" && !strings.EqualFold(into.Postcode, s.spec.Postcode) {
		return dial.Refuse(dial.ReasonZone, "the response is for postcode %.20q, want %s", into.Postcode,
			s.spec.Postcode)
	}
	if s.spec.RegionID != 0 && into.RegionID != s.spec.RegionID {
		return dial.Refuse(dial.ReasonZone, "the response is for region %d, want %d", into.RegionID, s.spec.RegionID)
	}
	return nil
}
