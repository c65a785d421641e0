package zone

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func signalOf(t *testing.T, start time.Time, step time.Duration, values ...float64) grid.Signal {
	t.Helper()
	s, err := grid.NewSeries(start, step, values)
	if err != nil {
		t.Fatal(err)
	}
	return grid.Signal{Series: s}
}

// TestRates checks that energy is priced with the recorded values of the node's zone, and that missing values are
// unknown.
func TestRates(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	north := &sched.Site{Name: "north", Zone: "NO", PUE: 1.2, Carbon: signalOf(t, start, time.Hour, 100, 300)}
	south := &sched.Site{Name: "south", Zone: "IT", Price: signalOf(t, start, time.Hour, 0.1, 0.3)}
	view, err := kube.NewView([]*sched.Site{north, south}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	south1 := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1alpha1.LabelSite: "south"}}}
	node := func(name string) *v1.Node {
		if name != "n" {
			return nil
		}
		return south1
	}
	r := &Rates{View: func() *kube.View { return view }, History: NewHistory(), Node: node}

	half := start.Add(30 * time.Minute)
	got := r.Of("a host", half, half.Add(time.Hour))
	if got.Site != "north" || got.PUE != 1.2 || got.Carbon != 200 || !math.IsNaN(got.Price) {
		t.Errorf("an unknown host is not at the default site: %+v", got)
	}
	if got = r.Of("n", half, half.Add(time.Hour)); got.Site != "south" || got.PUE != 1 || !math.IsNaN(got.Carbon) ||
		math.Abs(got.Price-0.2) > 1e-12 {
		t.Errorf("a node is not at the site of its label: %+v", got)
	}
	r.Members = access.Members{"alpha": {Zone: "south", PUE: 1.5}, "beta": {}, "gamma": {Zone: "west"}}
	if got = r.Of("alpha/n", half, half.Add(time.Hour)); got.Site != "south" || got.PUE != 1.5 ||
		math.Abs(got.Price-0.2) > 1e-12 {
		t.Errorf("a node of a member is not in the member's zone: %+v", got)
	}
	if got = r.Of("beta/n", half, half.Add(time.Hour)); got.Site != "north" || got.PUE != 1.2 || got.Carbon != 200 {
		t.Errorf("a member without a zone is not at the default site: %+v", got)
	}
	if got = r.Of("gamma/n", half, half.Add(time.Hour)); got.Site != "" || !math.IsNaN(got.Carbon) {
		t.Errorf("a member's zone that does not exist was replaced: %+v", got)
	}
	for name, at := range map[string]time.Time{"before": start.Add(-time.Hour), "after": start.Add(150 * time.Minute)} {
		if got = r.Of("a host", at, at.Add(time.Minute)); !math.IsNaN(got.Carbon) {
			t.Errorf("%s the known values, the intensity is %v", name, got.Carbon)
		}
	}
	if got = r.Of("a host", half, half); got.Carbon != 100 {
		t.Errorf("unexpected intensity of an empty interval: %v", got.Carbon)
	}
	north.Carbon.AsOf, north.Carbon.MaxAge = start.Add(-3*time.Hour), time.Hour
	if got = (&Rates{View: r.View, History: NewHistory(), Node: node}).Of("a host", half,
		half.Add(time.Minute)); !math.IsNaN(got.Carbon) {
		t.Errorf("an expired forecast returned %v", got.Carbon)
	}
	empty, err := kube.NewView(nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	r.View = func() *kube.View { return empty }
	if got = r.Of("n", half, half.Add(time.Minute)); got.PUE != 1 || !math.IsNaN(got.Carbon) || !math.IsNaN(got.Price) {
		t.Errorf("unexpected rates without a site: %+v", got)
	}
}
