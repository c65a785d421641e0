package signal

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestUnknownZone verifies that an unknown zone is rejected, with a suggestion if a similar one exists.
func TestUnknownZone(t *testing.T) {
	for zone, want := range map[grid.Zone]string{
		"ATLANTIS": `unknown zone "ATLANTIS": want a zone`, "de": "(did you mean DE?)",
	} {
		_, err := newTypical(zone, &v1alpha1.TypicalSource{}).Fetch(t.Context(), noon)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", zone, err, want)
		}
	}
}

func TestTypicalSource(t *testing.T) {
	for _, c := range []struct {
		zone grid.Zone
		spec v1alpha1.TypicalSource
		of   grid.Zone
	}{
		{"DE", v1alpha1.TypicalSource{}, "DE"},
		{"WORLD", v1alpha1.TypicalSource{}, ""},
		{"lab", v1alpha1.TypicalSource{Zone: "FR"}, "FR"},
	} {
		s := newTypical(c.zone, &c.spec)
		a, err := s.Fetch(t.Context(), noon)
		if err != nil {
			t.Fatal(err)
		}
		present, err := terms{zone: c.zone, quantity: carbon, maxAge: time.Hour}.check(&a, noon)
		if err != nil {
			t.Fatalf("%s: %v", c.zone, err)
		}
		curve, _ := forecast.TypicalDay(c.of)
		if !a.Ageless || a.Model != forecast.TypicalModel || present.Value != float64(curve.At(noon)) {
			t.Errorf("%s: ageless = %v, model = %s, value = %v, want %v", c.zone, a.Ageless, a.Model, present.Value,
				curve.At(noon))
		}
		for _, p := range a.Points {
			if !p.Estimated {
				t.Fatalf("%s: the value at %v is not marked as estimated", c.zone, p.Time)
			}
		}
		if _, ok := a.at(noon.Add(48 * time.Hour)); !ok {
			t.Errorf("%s: no forecast for the day after tomorrow", c.zone)
		}
	}
}
