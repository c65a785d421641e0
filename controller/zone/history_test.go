package zone

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/controller/controllertest"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

func carbonOf(h *History, from, to time.Time) (grid.Signal, bool) {
	s, _ := h.during("home", from, to)
	return s, s.Series != nil
}

func priceOf(h *History, from, to time.Time) (grid.Signal, bool) {
	_, s := h.during("home", from, to)
	return s, s.Series != nil
}

func whole(t *track, from, to time.Time) (grid.Signal, bool) {
	s := t.during(from, to)
	return s, s.Series != nil
}

// When a GridZone asks for another kind of carbon intensity, or another currency, what was recorded is of no use any
// more, and nothing is recorded until status and view are of that kind.
func TestHistoryNeverMixesUnits(t *testing.T) {
	signalOf := func(value float64) grid.Signal {
		s, err := grid.Constant(kit.Noon.Add(-time.Hour), 100*time.Hour, value)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	viewOf := func(value float64) *kube.View {
		v,
			err := (&kube.Contents{Sites: []*sched.Site{{
			Name: "home", Carbon: signalOf(value), Price: signalOf(value),
		}}}).View()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	h := NewHistory()
	zone := kit.Zone("home", 1)
	zone.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR"}
	zone.Status.ObservedGeneration = 1
	h.sawZone(zone, kit.Noon)
	h.Sample(viewOf(100), kit.Noon)
	now := kit.Noon.Add(10 * time.Minute)
	h.Sample(viewOf(100), now)
	if _, ok := carbonOf(h, kit.Noon, now); !ok || h.Signal() != SignalAverage {
		t.Fatalf("not recorded; the signal is %s", h.Signal())
	}
	zone = zone.DeepCopy()
	zone.Generation, zone.Spec.Carbon.Signal = 2, "Marginal"
	h.sawZone(zone, now)
	h.Sample(viewOf(100), now.Add(time.Second)) // the view still has the average
	if _, ok := carbonOf(h, now, now.Add(time.Second)); ok {
		t.Error("the average was recorded as marginal")
	}
	if _, ok := priceOf(h, kit.Noon, now); !ok {
		t.Error("prices were forgotten with the carbon intensity")
	}
	zone = zone.DeepCopy()
	zone.Status.ObservedGeneration = 2
	h.sawZone(zone, now.Add(30*time.Second))
	h.Sample(viewOf(100), now.Add(31*time.Second))
	if _, ok := carbonOf(h, now, now.Add(31*time.Second)); ok {
		t.Error("the average was recorded as marginal")
	}
	now = now.Add(10 * time.Minute)
	h.Sample(viewOf(700), now)
	if s, ok := carbonOf(h, now, now.Add(time.Second)); !ok || s.Series.At(now) != 700 {
		t.Error("the marginal intensity is not recorded")
	}
	if _, ok := carbonOf(h, kit.Noon, now); ok {
		t.Error("one track holds both")
	}
	if u := h.Units("home"); u.Signal != SignalMarginal || u.Currency != "EUR" {
		t.Errorf("the units are %+v", u)
	}
	other := kit.Zone("other", 1)
	h.sawZone(other, now)
	if h.Signal() != SignalMixed {
		t.Errorf("together the zones are %s", h.Signal())
	}
	h.LostZone(other)
	zone = zone.DeepCopy()
	zone.Generation, zone.Status.ObservedGeneration, zone.Spec.Price.Currency = 3, 3, "USD"
	h.sawZone(zone, now)
	if _, ok := priceOf(h, kit.Noon, now.Add(-10*time.Minute)); ok || h.Signal() != SignalMarginal {
		t.Error("prices in euros are believed to be dollars")
	}
}

func TestHistory(t *testing.T) {
	var track track
	signalOf := func(value float64) grid.Signal {
		s, err := grid.Constant(kit.Noon.Add(-100*time.Hour), 1000*time.Hour, value)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	for i := range 12 {
		track.note(signalOf(float64(i)), kit.Noon.Add(time.Duration(i)*slot))
	}
	got, ok := whole(&track, kit.Noon.Add(10*time.Minute), kit.Noon.Add(20*time.Minute))
	if !ok || got.Series.At(kit.Noon.Add(12*time.Minute)) != 2 || got.Series.At(kit.Noon.Add(19*time.Minute)) != 3 {
		t.Errorf("known %v: %v", ok, got.Series)
	}
	for name, w := range map[string][2]time.Duration{
		"before": {-time.Hour, time.Minute}, "after": {50 * time.Minute, 2 * time.Hour},
		"reversed": {time.Minute * 30, time.Minute * 20},
	} {
		if _, ok := whole(&track, kit.Noon.Add(w[0]), kit.Noon.Add(w[1])); ok {
			t.Errorf("%s: known", name)
		}
	}
	// A short gap is bridged, a long one is a gap.
	track.note(signalOf(20), kit.Noon.Add(70*time.Minute))
	if got, ok := whole(&track, kit.Noon, kit.Noon.Add(70*time.Minute)); !ok ||
		got.Series.At(kit.Noon.Add(65*time.Minute)) != 11 {
		t.Errorf("after a short gap: known %v", ok)
	}
	track.note(grid.Signal{}, kit.Noon.Add(75*time.Minute))
	track.note(signalOf(30), kit.Noon.Add(3*time.Hour))
	if _, ok := whole(&track, kit.Noon, kit.Noon.Add(3*time.Hour)); ok {
		t.Error("a gap of two hours is known")
	}
	if _, ok := whole(&track, kit.Noon.Add(3*time.Hour), kit.Noon.Add(3*time.Hour+time.Minute)); !ok {
		t.Error("what follows the gap is not known")
	}
	// However long it runs, it remembers no more than three days.
	for i := range 3 * most {
		track.note(signalOf(1), kit.Noon.Add(4*time.Hour).Add(time.Duration(i)*slot))
	}
	if int64(len(track.values)) != most {
		t.Errorf("%d values are remembered", len(track.values))
	}
	track.note(signalOf(1), kit.Noon.Add(1000*time.Hour).Add(-remembered))
	track.note(signalOf(1), kit.Noon.Add(20000*time.Hour)) // outside of the signal
	if n := len(track.values); int64(n) > most {
		t.Errorf("%d values are remembered", n)
	}
}
