package signal

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	prom "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/test/kit"
)

// weekly returns a carbon intensity that is low at noon, and lower on weekends.
func weekly(t time.Time) float64 {
	v := 400 - 150*math.Cos(2*math.Pi*float64(t.UTC().Hour()-12)/24) + float64(t.Unix()/3600%7)
	if day := t.UTC().Weekday(); day == time.Saturday || day == time.Sunday {
		v *= .8
	}
	return v
}

func measuredWeekly(now time.Time) (Answer, error) {
	return hourly(now, 0, weekly(now.Truncate(time.Hour))), nil
}

// step polls like Run.
func (k *Keeper) step(t *testing.T, now time.Time) {
	k.report("load", k.archive.Load(t.Context()))
	k.poll(t.Context())
	k.recall(t.Context(), now)
}

// TestForecastsAfterRestarts checks that forecasts of a controller that is restarted at random times equal those of
// one that is not.
//
//test:norace
func TestForecastsAfterRestarts(t *testing.T) {
	now := noon.AddDate(0, 0, -98)
	states := &kit.States{All: map[string][]byte{}}
	source := &scripted{name: "first", fetch: measuredWeekly}
	start := func(states past.States) *Keeper {
		k := chain(t, &now, source)
		k.archive = past.NewArchive("test/", states)
		return k
	}
	steady, restarted := start(nil), start(states)
	random := rand.New(rand.NewPCG(1, 2))
	used, restarts := map[string]int{}, 0
	for ; now.Before(noon); now = now.Add(time.Hour) {
		fresh := random.IntN(150) == 0
		if fresh {
			restarted, restarts = start(states), restarts+1
		}
		for _, k := range []*Keeper{steady, restarted} {
			k.step(t, now)
			k.retrain(t.Context(), now.Truncate(retrain))
		}
		if fresh {
			continue // was not trained before the poll
		}
		want, _ := steady.Look(now)
		got, _ := restarted.Look(now)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("at %s after %d restarts (-uninterrupted +restarted):\n%s", now, restarts, diff)
		}
		used[want.ForecastSource]++
	}
	t.Logf("%d restarts; forecasts: %v", restarts, used)
	if restarts < 8 || used[forecast.History] == 0 {
		t.Errorf("%d restarts; forecasts: %v", restarts, used)
	}
}

// TestHistoryFile checks that a file with past values suffices for a trained forecast.
//
//test:norace
func TestHistoryFile(t *testing.T) {
	now := noon
	d := testDeps(&now)
	d.Data = t.TempDir()
	var text strings.Builder
	text.WriteString("time,value\n")
	for at := now.Truncate(time.Hour).AddDate(0, 0, -120); at.Before(now.AddDate(0, 0, 7)); at = at.Add(time.Hour) {
		fmt.Fprintf(&text, "%s,%.3f\n", at.Format(time.RFC3339), weekly(at))
	}
	if err := os.WriteFile(filepath.Join(d.Data, "de.csv"), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{
		Sources: []v1alpha1.CarbonSource{staticSource(1)}, History: &v1alpha1.FileSource{Path: "de.csv"},
	}, d)
	if err != nil {
		t.Fatal(err)
	}
	k.links[0] = &link{name: "first", source: &scripted{fetch: measuredWeekly}, every: time.Minute, asks: true}
	k.step(t, now)
	k.retrain(t.Context(), now.Truncate(retrain))
	if m := k.trained; m == nil || m.model() == nil || !m.start.Equal(now.Truncate(time.Hour).AddDate(0, 0, -120)) {
		t.Fatalf("training: %+v", m)
	}
	now = now.Add(2 * time.Minute)
	k.step(t, now)
	s, err := k.Look(now)
	if err != nil || s.ForecastSource != forecast.History || len(s.Values) != 48 || len(s.Low) != 48 {
		t.Fatalf("status %+v, error %v", s, err)
	}
	for i, v := range s.Values {
		if want := weekly(s.Start.Add(time.Duration(i) * time.Hour)); math.Abs(v/want-1) > .05 {
			t.Errorf("value %d is %v, want %v", i, v, want)
		}
	}
	// Values after the present are not history.
	if _, known := k.archive.Mean(now.Truncate(time.Hour).Add(time.Hour)); known {
		t.Error("the archive contains the future")
	}
	for d, history := range map[*Deps]v1alpha1.FileSource{
		new(testDeps(&now)): {Path: "de.csv"}, // without a data directory
		&d:                  {Path: "de.csv", Signal: signalMarginal},
	} {
		if _, err := NewCarbonKeeper("DE", &v1alpha1.CarbonSpec{
			Sources: []v1alpha1.CarbonSource{staticSource(1)}, History: &history,
		}, *d); err == nil {
			t.Errorf("history %+v was accepted", history)
		}
	}
}

// TestPastOfPrometheus checks that past values are imported, and that invalid ones do not prevent it.
func TestPastOfPrometheus(t *testing.T) {
	now, hour := noon, noon.Truncate(time.Hour)
	at := func(hours int) int64 { return hour.Add(time.Duration(hours) * time.Hour).Unix() }
	fails := true
	p := newProvider(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path == "/api/v1/query":
			_, _ = io.WriteString(w, sampleText(now, "300"))
		case fails:
			w.WriteHeader(http.StatusBadRequest)
		case q.Get("query") != "ci" || q.Get("step") != "3600" || !strings.HasSuffix(q.Get("end"), ":00:00Z"):
			t.Errorf("unexpected request %s", r.URL)
		default:
			_, _ = fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[`+
				`[%d,"410"],[%d,"NaN"],[%d,"-3"],[%d,"420"],[%d,"x"],[%d,"430"]]}]}}`, at(-9), at(-8), at(-7), at(-6), at(-5),
				at(0))
		}
	})
	k := carbonKeeper(t, testDeps(&now), v1alpha1.CarbonSource{Prometheus: &v1alpha1.PrometheusSource{
		URL: p.URL, Query: "ci",
	}})
	k.step(t, now)
	fails = false
	if k.step(t, now); len(k.past) != 1 {
		t.Error("the past values were requested again at once")
	}
	now = now.Add(30 * time.Minute)
	k.step(t, now)
	k.recall(t.Context(), now.Add(retryPast))
	if len(k.past) != 0 {
		t.Error("the past values were not read")
	}
	for hours, want := range map[int]float64{-9: 410, -8: 0, -7: 0, -6: 420, -5: 0, 0: 300} {
		if got, known := k.archive.Mean(hour.Add(time.Duration(hours) * time.Hour)); known != (want > 0) ||
			known && got != want {
			t.Errorf("value of hour %d is %v (%v), want %v", hours, got, known, want)
		}
	}
}

// TestAccuracyOfForecasts checks the accuracy in the status and in metrics, with a source that always expects 300 for
// the next hour, 200 for the first day, and 199 later, while the actual value is 200, which is outside of the
// percentiles after two days. Errors are counted once, also after a restart.
func TestAccuracyOfForecasts(t *testing.T) {
	now := noon
	states := &kit.States{All: map[string][]byte{}}
	d := testDeps(&now)
	d.States = states
	start := func() *Keeper {
		k := carbonKeeper(t, d, staticSource(1))
		k.links = []*link{{name: "first", every: time.Minute, asks: true, source: &scripted{
			fetch: func(now time.Time) (Answer, error) {
				values := make([]float64, 52)
				for i := range values {
					values[i] = 200 + float64(now.Hour()%2)/1000 // a constant would be rejected as frozen
				}
				values[1] = 300
				a := hourly(now, 0, values...)
				for i := range a.Points {
					a.Points[i].Low, a.Points[i].High = 150, 350
				}
				for i := 24; i < len(a.Points); i++ {
					a.Points[i].Value = 199
				}
				for i := 48; i < len(a.Points); i++ {
					a.Points[i].High = 199
				}
				return a, nil
			},
		}}}
		return k
	}
	k := start()
	var s *v1alpha1.SignalStatus
	for hours := range 80 {
		if hours%7 == 0 {
			k = start()
		}
		for range 3 {
			k.step(t, now)
			now = now.Add(20 * time.Minute)
		}
		s, _ = k.Look(now.Add(-time.Minute))
	}
	want := []v1alpha1.ForecastAccuracy{
		{Ahead: metav1.Duration{Duration: time.Hour}, ErrorPercent: 50, InsidePercent: new(100.0), Forecasts: 79},
		{Ahead: metav1.Duration{Duration: 6 * time.Hour}, ErrorPercent: 0, InsidePercent: new(100.0), Forecasts: 74},
		{Ahead: metav1.Duration{Duration: 24 * time.Hour}, ErrorPercent: .5, InsidePercent: new(100.0), Forecasts: 56},
		{Ahead: metav1.Duration{Duration: 48 * time.Hour}, ErrorPercent: .5, InsidePercent: new(0.0), Forecasts: 32},
	}
	if diff := cmp.Diff(want, s.Accuracy); diff != "" {
		t.Errorf("accuracy (-want +got):\n%s", diff)
	}
	for name, forecasts := range map[string]uint64{"1h": 79, "6h": 74, "24h": 56, "48h": 32} {
		var m dto.Metric
		if err := d.Metrics.misses.WithLabelValues("DE", name).(prom.Metric).Write(&m); err != nil {
			t.Fatal(err)
		}
		// The hour before a restart is not counted.
		if got := m.Summary.GetSampleCount(); got > forecasts || got < forecasts*4/5 {
			t.Errorf("%d errors of forecasts %s ahead, want %d, or one less by restart", got, name, forecasts)
		}
	}
}
