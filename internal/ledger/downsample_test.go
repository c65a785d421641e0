package ledger_test

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

var begin = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)

func series(t *rapid.T) []ledger.Point {
	n := rapid.IntRange(0, 300).Draw(t, "points")
	out := make([]ledger.Point, n)
	at := begin
	for i := range out {
		out[i] = ledger.Point{At: at, Watts: rapid.Float64Range(-100, 10_000).Draw(t, "watts")}
		at = at.Add(time.Duration(rapid.Int64Range(1, 3600).Draw(t, "step")) * time.Second)
		if rapid.IntRange(0, 30).Draw(t, "bad") == 0 {
			out[i].Watts = []float64{math.NaN(), math.Inf(1), math.Inf(-1)}[i%3]
		}
	}
	return out
}

func finite(points []ledger.Point) []ledger.Point {
	return slices.DeleteFunc(slices.Clone(points), func(p ledger.Point) bool {
		return math.IsNaN(p.Watts) ||
			math.IsInf(p.Watts, 0)
	})
}

// steps returns the energy of a series in which each point is valid until the next one.
func steps(points []ledger.Point) (joules float64) {
	for i := range len(points) - 1 {
		joules += points[i].Watts * points[i+1].At.Sub(points[i].At).Seconds()
	}
	return joules
}

func TestDownsample(t *testing.T) {
	for _, how := range []string{"lttb", "timeBased", "minMax"} {
		t.Run(how, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				points, n := series(t), rapid.IntRange(2, 50).Draw(t, "n")
				before := slices.Clone(points)
				got, err := ledger.Downsample(points, n, how)
				if err != nil {
					t.Fatal(err)
				}
				for i := range points {
					if points[i].At != before[i].At || points[i].Watts != before[i].Watts &&
						!math.IsNaN(before[i].Watts) {
						t.Fatal("Downsample() modified its input")
					}
				}
				all := finite(points)
				if len(got) > n || len(got) > len(all) || len(all) <= n && !slices.Equal(got, all) {
					t.Fatalf("Downsample() returned %d points of %d, want at most %d", len(got), len(all), n)
				}
				if len(all) > 0 && (got[0] != all[0] || got[len(got)-1] != all[len(all)-1]) {
					t.Fatalf("unexpected first point %v or last point %v", got[0], got[len(got)-1])
				}
				for i, p := range got {
					if math.IsNaN(p.Watts) || math.IsInf(p.Watts, 0) || i > 0 && !p.At.After(got[i-1].At) {
						t.Fatalf("point %d is out of order in %v", i, got)
					}
					if how != "timeBased" && !slices.Contains(all, p) {
						t.Fatalf("point %v is not part of the input", p)
					}
				}
				if again, _ := ledger.Downsample(points, n, how); !slices.Equal(again, got) {
					t.Fatal("Downsample() is not idempotent")
				}
				if how == "timeBased" && n > 2 && len(all) > 1 {
					if want, have := steps(all), steps(got); math.Abs(want-have) > 1e-9*max(1, math.Abs(want))+1e-3 {
						t.Fatalf("got %v J, want %v J", have, want)
					}
				}
				if how == "minMax" && n > 3 && len(all) > 0 {
					byWatts := func(a, b ledger.Point) int { return int(math.Copysign(1, a.Watts-b.Watts)) }
					if slices.MaxFunc(all, byWatts).Watts != slices.MaxFunc(got, byWatts).Watts ||
						slices.MinFunc(all, byWatts).Watts != slices.MinFunc(got, byWatts).Watts {
						t.Fatal("Downsample() lost a peak")
					}
				}
			})
		})
	}
	for _, bad := range []struct {
		n   int
		how string
	}{{1, "lttb"}, {0, "minMax"}, {-1, "timeBased"}, {10, "average"}} {
		if _, err := ledger.Downsample(nil, bad.n, bad.how); !errors.Is(err, ledger.ErrQuery) {
			t.Errorf("%v: expected an invalid query, got error %v", bad, err)
		}
	}
}

// The largest triangle algorithm preserves a single peak.
func TestLTTBKeepsPeaks(t *testing.T) {
	points := make([]ledger.Point, 1000)
	for i := range points {
		points[i] = ledger.Point{At: begin.Add(time.Duration(i) * time.Minute), Watts: 100}
	}
	points[377].Watts = 900
	got, err := ledger.Downsample(points, 20, "lttb")
	if err != nil || !slices.Contains(got, points[377]) || len(got) != 20 {
		t.Errorf("unexpected points %v or error %v", got, err)
	}
}
