package zone

import (
	"testing"
	"time"

	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func constant(t *testing.T, value float64) grid.Signal {
	t.Helper()
	s, err := grid.Constant(kit.Noon.Add(-100*time.Hour), 1000*time.Hour, value)
	if err != nil {
		t.Fatal(err)
	}
	return grid.Signal{Series: s}
}

// If a GridZone requests another kind of carbon intensity or another currency, the recorded values are dropped, and
// no values are recorded until the signals have changed, too.
func TestHistoryNeverMixesUnits(t *testing.T) {
	viewOf := func(value float64, units map[string]kube.Units) *kube.View {
		t.Helper()
		c := kube.Contents{Units: units}
		for name := range units {
			c.Sites = append(c.Sites, &sched.Site{
				Name: name, Carbon: constant(t, value), Price: constant(t, value),
			})
		}
		v, err := c.View()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	home := func(value float64, current kube.Units) *kube.View {
		return viewOf(value, map[string]kube.Units{"home": current})
	}
	h := NewHistory()
	average := kube.Units{Currency: "EUR"}
	units := average // units of the view
	know := func(from, to time.Time) (carbon, price *grid.Series) {
		c, p := h.during("home", units, from, to)
		return c.Series, p.Series
	}
	h.Sample(home(100, kube.Units{Currency: "EUR", Behind: true}), kit.Noon.Add(-10*time.Minute))
	h.Sample(home(100, average), kit.Noon)
	now := kit.Noon.Add(10 * time.Minute)
	h.Sample(home(100, average), now)
	if c, p := know(kit.Noon, now); c == nil || p == nil || Signal(home(100, average)) != "average" {
		t.Fatal("the sample was not recorded")
	}
	if c, _ := know(kit.Noon.Add(-10*time.Minute), now); c != nil {
		t.Error("a sample with unknown units was recorded")
	}
	// Another part of the spec has changed, and the units of the signals are the same.
	h.Sample(home(100, kube.Units{Currency: "EUR", Behind: true}), now.Add(5*time.Minute))
	now = now.Add(5 * time.Minute)
	if c, _ := know(kit.Noon, now); c == nil {
		t.Error("no sample was recorded after a change of another field")
	}
	marginal := kube.Units{Marginal: true, Currency: "EUR"}
	units = marginal // between two samples
	if c, p := know(kit.Noon, now); c != nil || p == nil {
		t.Error("the average was returned as marginal, or prices were dropped with it")
	}
	for range 2 { // the status still contains the average intensity
		h.Sample(home(100, kube.Units{Marginal: true, Currency: "EUR", Behind: true}), now.Add(time.Second))
	}
	if c, p := know(now, now.Add(time.Second)); c != nil || p == nil {
		t.Error("the average was recorded as marginal, or prices were dropped with it")
	}
	now = now.Add(10 * time.Minute)
	h.Sample(home(700, marginal), now)
	if c, _ := know(now, now.Add(time.Second)); c == nil || c.At(now) != 700 {
		t.Error("the marginal intensity was not recorded")
	}
	if c, _ := know(kit.Noon, now); c != nil {
		t.Error("a track contains both kinds")
	}
	if got := Signal(viewOf(1, map[string]kube.Units{"home": marginal, "other": average})); got != "mixed" {
		t.Errorf("Signal() = %s, want mixed", got)
	}
	units = kube.Units{Marginal: true, Currency: "USD"}
	if _, p := know(now.Add(-10*time.Minute), now); p != nil {
		t.Error("prices in euros were returned as dollars")
	}
	h.Sample(home(700, units), now)
	if _, p := know(now.Add(-10*time.Minute), now); p != nil {
		t.Error("prices in euros were recorded as dollars")
	}
}

func TestHistory(t *testing.T) {
	track := newTrack()
	note := func(value float64, now time.Time) { track.Note(now, value) }
	for i := range 12 {
		note(float64(i), kit.Noon.Add(time.Duration(i)*5*time.Minute))
	}
	got := track.During(kit.Noon.Add(10*time.Minute), kit.Noon.Add(20*time.Minute))
	if got == nil || got.At(kit.Noon.Add(12*time.Minute)) != 2 || got.At(kit.Noon.Add(19*time.Minute)) != 3 {
		t.Errorf("unexpected values: %v", got)
	}
	for name, w := range map[string][2]time.Duration{
		"before": {-time.Hour, time.Minute}, "after": {50 * time.Minute, 2 * time.Hour},
		"reversed": {time.Minute * 30, time.Minute * 20},
	} {
		if track.During(kit.Noon.Add(w[0]), kit.Noon.Add(w[1])) != nil {
			t.Errorf("%s: got values, want none", name)
		}
	}
	// Short gaps are filled, and long gaps are not.
	note(20, kit.Noon.Add(70*time.Minute))
	if got := track.During(kit.Noon, kit.Noon.Add(70*time.Minute)); got == nil ||
		got.At(kit.Noon.Add(65*time.Minute)) != 11 {
		t.Errorf("after a short gap: unexpected values: %v", got)
	}
	note(30, kit.Noon.Add(3*time.Hour))
	if track.During(kit.Noon, kit.Noon.Add(3*time.Hour)) != nil {
		t.Error("a gap of two hours was filled")
	}
	if track.During(kit.Noon.Add(3*time.Hour), kit.Noon.Add(3*time.Hour+time.Minute)) == nil {
		t.Error("no values after the gap")
	}
	// The history is limited to three days.
	start, last := kit.Noon.Add(4*time.Hour), time.Time{}
	for i := range 3 * int(remembered/time.Minute) / 5 {
		last = start.Add(time.Duration(i) * 5 * time.Minute)
		note(1, last)
	}
	if from := last.Add(-remembered); track.During(from, last) != nil ||
		track.During(from.Add(5*time.Minute), last) == nil {
		t.Error("the history does not contain exactly three days")
	}
	note(1, kit.Noon.Add(20000*time.Hour))
	if track.During(last, last) != nil {
		t.Error("the history contains values from years ago")
	}
}
