package grid_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

var t0 = time.Date(2022, 3, 27, 0, 0, 0, 0, time.UTC)

func draw(t *rapid.T) (*grid.Series, []float64) {
	values := rapid.SliceOfN(rapid.Float64Range(-50, 900), 1, 50).Draw(t, "values")
	s, err := grid.NewSeries(t0, time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	return s, values
}

// The integral equals the sum over every second, within the series and beyond both ends, and is additive.
func TestIntegral(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, values := draw(t)
		at := func(label string) int { return rapid.IntRange(-200, 60*len(values)+200).Draw(t, label) }
		cut := []int{at("a"), at("b"), at("c")}
		slices.Sort(cut)
		moment := func(i int) time.Time { return t0.Add(time.Duration(cut[i]) * time.Second) }
		var want float64
		for second := cut[0]; second < cut[2]; second++ {
			want += values[min(max(0, second/60), len(values)-1)]
		}
		got := s.Integral(moment(0), moment(2))
		if math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
			t.Fatalf("Integral() = %v, want the sum over seconds %v", got, want)
		}
		if parts := s.Integral(moment(0), moment(1)) + s.Integral(moment(1),
			moment(2)); math.Abs(got-parts) > 1e-6*(1+math.Abs(got)) {
			t.Fatalf("Integral() = %v, but the sum of two parts is %v", got, parts)
		}
	})
}

// A resumed series has exactly the same integrals as the complete one.
func TestResumedSeriesAreTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole, values := draw(t)
		first := rapid.IntRange(0, len(values)-1).Draw(t, "first")
		start := t0.Add(time.Duration(first) * time.Minute)
		rest, err := grid.Resume(whole.Before(first), start, time.Minute, values[first:])
		if err != nil {
			t.Fatal(err)
		}
		at := func(label string) time.Time {
			return start.Add(time.Duration(rapid.IntRange(0, 60*(len(values)-first)+200).Draw(t, label)) * time.Second)
		}
		from, to := at("from"), at("to")
		if previous, current := whole.Integral(from, to), rest.Integral(from, to); current != previous {
			t.Fatalf("Integral() = %v, want %v as for the complete series", current, previous)
		}
		if previous, current := whole.Before(len(values)), rest.Before(rest.Len()); current != previous {
			t.Fatalf("Before() = %v, want %v as for the complete series", current, previous)
		}
	})
}

func TestIntegralBelowASecondIsExact(t *testing.T) {
	s, err := grid.NewSeries(t0, time.Hour, []float64{100, 300})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Integral(t0.Add(time.Hour-time.Nanosecond),
		t0.Add(time.Hour+time.Nanosecond)); math.Abs(got-400e-9) > 1e-12 {
		t.Errorf("integral over two nanoseconds around a step = %v, want 400e-9", got)
	}
	if got := s.Integral(t0.Add(time.Hour), t0); got != 0 {
		t.Errorf("integral over an empty window = %v, want 0", got)
	}
	if got := s.Mean(t0.Add(90*time.Minute), t0.Add(90*time.Minute)); got != 300 {
		t.Errorf("mean over an empty window = %v, want the value 300", got)
	}
}

func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, values := draw(t)
		a := t0.Add(time.Duration(rapid.IntRange(-200, 3000).Draw(t, "a")) * time.Second)
		b := a.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "d")) * time.Second)
		var want []time.Time
		for i := 0; i <= len(values); i++ {
			if step := t0.Add(time.Duration(i) * time.Minute); step.After(a) && !step.After(b) {
				want = append(want, step)
			}
		}
		if got := slices.Collect(s.Steps(a, b)); !slices.EqualFunc(got, want, time.Time.Equal) {
			t.Fatalf("Steps(%v, %v) = %v, want %v", a, b, got, want)
		}
	})
}

func TestNewSeriesRefuses(t *testing.T) {
	for name, try := range map[string]func() (*grid.Series, error){
		"no values":     func() (*grid.Series, error) { return grid.NewSeries(t0, time.Hour, nil) },
		"no step":       func() (*grid.Series, error) { return grid.NewSeries(t0, 0, []float64{1}) },
		"negative step": func() (*grid.Series, error) { return grid.NewSeries(t0, -1, []float64{1}) },
		"NaN":           func() (*grid.Series, error) { return grid.NewSeries(t0, 1, []float64{1, math.NaN()}) },
		"infinite":      func() (*grid.Series, error) { return grid.NewSeries(t0, 1, []float64{math.Inf(1)}) },
	} {
		if s, err := try(); err == nil {
			t.Errorf("%s: NewSeries() returned a series of %d values, want an error", name, s.Len())
		}
	}
}

func TestFresh(t *testing.T) {
	s, err := grid.NewSeries(t0, time.Hour, []float64{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	signal := grid.Signal{Series: s, AsOf: t0}
	for _, c := range []struct {
		name   string
		signal grid.Signal
		at     time.Duration
		maxAge time.Duration
		want   bool
	}{
		{"absent", grid.Signal{}, 0, 0, false},
		{"young", signal, 30 * time.Minute, time.Hour, true},
		{"old", signal, 90 * time.Minute, time.Hour, false},
		{"old, but age does not matter", signal, 90 * time.Minute, 0, true},
		{"from the future", grid.Signal{Series: s, AsOf: t0.Add(time.Hour)}, 30 * time.Minute, time.Hour, false},
		{"ended", signal, 2 * time.Hour, 0, false},
		{"not begun", signal, -time.Second, 0, false},
		{"recorded", grid.Signal{Series: s}, 90 * time.Minute, time.Minute, true},
	} {
		if got := c.signal.Fresh(t0.Add(c.at), c.maxAge); got != c.want {
			t.Errorf("%s: Fresh() = %v", c.name, got)
		}
	}
}

func TestSignalJSON(t *testing.T) {
	s, err := grid.NewSeries(t0, 30*time.Minute, []float64{1, 2.5})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(grid.Signal{Series: s, AsOf: t0, Quality: energy.Measured})
	if err != nil {
		t.Fatal(err)
	}
	var back grid.Signal
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Series.Value(1) != 2.5 || back.Series.Step() != 30*time.Minute || !back.AsOf.Equal(t0) ||
		back.Quality != energy.Measured {
		t.Errorf("unmarshalling %s returned %+v", text, back)
	}
	for _, bad := range []string{
		`{"step":"x"}`, `{"start":"2022-01-01T00:00:00Z","step":"1h","values":[]}`, `{"stepp":"1h"}`, `7`,
	} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("unmarshalling %s succeeded, want an error", bad)
		}
	}
}

func TestBetween(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, err := grid.NewSeries(start, time.Hour, []float64{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, until time.Duration
		first       float64
		n           int
	}{
		{0, 4 * time.Hour, 1, 4},
		{-time.Hour, 9 * time.Hour, 1, 4},
		{90 * time.Minute, 2 * time.Hour, 2, 1},
		{90 * time.Minute, 121 * time.Minute, 2, 2},
	} {
		part := s.Between(start.Add(c.from), start.Add(c.until))
		if part == nil || part.Len() != c.n || part.Value(0) != c.first || part.At(part.Start()) != c.first {
			t.Errorf("unexpected result of Between(%v, %v): %+v", c.from, c.until, part)
		}
	}
	if part := s.Between(start.Add(4*time.Hour), start.Add(5*time.Hour)); part != nil {
		t.Errorf("Between() after the end = %+v, want nil", part)
	}
}
