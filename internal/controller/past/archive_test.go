package past

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestArchive checks that the stored history is never replaced by a shorter one, and that past values only replace
// recorded ones if requested.
func TestArchive(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 20, 0, 0, time.UTC)
	hour, month := now.Truncate(time.Hour), time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	states := &kit.States{All: map[string][]byte{
		"a/2026-03": []byte(`{"start":"2026-03-01T00:00:00Z","values":[7,null,9]}`),
		"a/2026-02": []byte(`{"start":"2026-02-`), "b/2026-03": []byte(`{"start":"2026-03-01T01:00:00Z","values":[1]}`),
	}}
	states.Fail(errors.New("not open"))
	a := NewArchive("a/", states)
	track := Track{Span: aDay}
	track.Set(hour, 100.00000049)
	a.Note(&track, now)
	if err := a.Load(t.Context()); err == nil || a.Save(t.Context()) != nil || len(states.All) != 3 {
		t.Errorf("loading from a store that is not open: %v", err)
	}
	states.Fail(nil)
	if err := a.Load(t.Context()); err == nil {
		t.Error("a damaged month was not reported")
	}
	a.Fill(map[time.Time]float64{hour.Add(-3 * time.Hour): 5, hour: 6, month: 6}, false, now)
	a.Fill(map[time.Time]float64{month.Add(2 * time.Hour): 10}, true, now)
	check := func(a *Archive) {
		t.Helper()
		for at, want := range map[time.Time]float64{
			month: 7, month.Add(time.Hour): 0, month.Add(2 * time.Hour): 10, hour: 100, hour.Add(-3 * time.Hour): 5,
		} {
			if got, known := a.Mean(at); known != (want > 0) || known && got != want {
				t.Errorf("value of %s is %v (%v), want %v", at, got, known, want)
			}
		}
	}
	check(a)
	states.Fail(errors.New("disk full"))
	if a.Save(t.Context()) == nil {
		t.Error("stored on a full disk")
	}
	states.Fail(nil)
	if err := a.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := NewArchive("a/", states)
	_ = again.Load(t.Context())
	check(again)
}

// TestStatesOfForecastsAreLimited checks that the number of states does not grow with time, and that only forecasts of
// four weeks are in memory after a restart.
func TestStatesOfForecastsAreLimited(t *testing.T) {
	states := &kit.States{All: map[string][]byte{}}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	a := NewArchive("a/", states)
	for range 70 * 24 {
		if err := a.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.Issue(&v1alpha1.SignalStatus{
			Start: metav1.NewTime(now), Step: metav1.Duration{Duration: time.Hour}, Values: []float64{1, 2, 3},
		}, now)
		if err := a.Save(t.Context()); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Hour)
	}
	again := NewArchive("a/", states)
	if err := again.Load(t.Context()); err != nil || len(states.All) != 29 || len(again.issued) > 29*24 ||
		len(again.issued) < 28*24 {
		t.Errorf("%d states with %d forecasts, error %v", len(states.All), len(again.issued), err)
	}
}

// TestGaps checks that an outage of up to three days does not discard the history before it, and that the longest part
// of a history with a longer outage is found.
func TestGaps(t *testing.T) {
	first := time.Date(2026, 3, 10, 0, 0, 0, 0, time.UTC)
	for gap, want := range map[int][2]int{3: {77, 77}, 30: {104, 104}, 72: {146, 146}, 73: {48, 48}, 100: {48, 48}} {
		t.Run(fmt.Sprint(gap), func(t *testing.T) {
			mean := func(at time.Time) (float64, bool) {
				i := int(at.Sub(first) / time.Hour)
				return float64(i), i < 26 || i >= 26+gap
			}
			until := first.Add(time.Duration(26+gap+48) * time.Hour)
			s := HourlyMeans(first, until, mean)
			if s.Len() != want[0] || hourlyMeans(first, until, true, mean).Len() != want[1] {
				t.Fatalf("history of %d hours, want %d", s.Len(), want)
			}
			for i := range s.Len() {
				at := s.Start().Add(time.Duration(i) * time.Hour)
				value, known := mean(at)
				hour := int(at.Sub(first) / time.Hour)
				if !known && gap == 3 {
					value = 25
				} else if !known {
					value = float64(hour - 24*((hour-26)/24+1))
				}
				if s.Value(i) != value {
					t.Errorf("value of hour %d is %v, want %v", hour, s.Value(i), value)
				}
			}
		})
	}
	// 48 hours, a week without values, and 24 hours.
	mean := func(at time.Time) (float64, bool) {
		i := int(at.Sub(first) / time.Hour)
		return float64(i), i < 48 || i >= 48+168
	}
	until := first.Add((48 + 168 + 24) * time.Hour)
	if s := hourlyMeans(first, until, true, mean); s.Len() != 48 || !s.Start().Equal(first) || s.Value(47) != 47 {
		t.Errorf("the longest part has %d hours from %s", s.Len(), s.Start())
	}
	if s := HourlyMeans(first, until, mean); s.Len() != 24 || s.Value(0) != 48+168 {
		t.Errorf("the last part has %d hours from %s", s.Len(), s.Start())
	}
}
