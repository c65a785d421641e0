package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestSolveFindsWhatMadeTheData checks that a ridge regression without a penalty recovers the coefficients of the
// data, independent of the scale of the columns.
func TestSolveFindsWhatMadeTheData(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.IntRange(2, 7).Draw(t, "columns")
		want := rapid.SliceOfN(rapid.Float64Range(-3, 3), p, p).Draw(t, "coefficients")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		const n = 83 // not a multiple of the block size
		w := p + 1
		rows := make([]float64, n*w)
		for i := range n {
			row := rows[i*w : (i+1)*w]
			row[0] = 1
			for j := 1; j < p; j++ {
				row[j] = 50*float64(j) + math.Pow(10, float64(j%3))*random.NormFloat64()
			}
			row[p] = dot(want, row[:p])
		}
		std := standardise(rows, w, p)
		g := make([]float64, w*w)
		gram(g, rows, w)
		b, err := newSolver(p).solve(g, 0)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range std.raw(b) {
			if math.Abs(v-want[j]) > 1e-6*(1+math.Abs(want[j]))*(1+500*indicator(j == 0)) {
				t.Fatalf("coefficient %d = %v, want %v", j, v, want[j])
			}
		}
	})
}

func TestSolveRefusesWhatIsSingular(t *testing.T) {
	if _, err := newSolver(2).solve(make([]float64, 9), 0); err == nil {
		t.Error("expected an error for a singular matrix")
	}
}

// TestMinWrong compares the factor with a grid search.
func TestMinWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := make([]weighted, rapid.IntRange(1, 30).Draw(t, "errors"))
		for i := range seen {
			seen[i] = weighted{
				math.Exp(rapid.Float64Range(-.3, .3).Draw(t, "error")), rapid.Float64Range(.01, 1).Draw(t, "weight"),
			}
		}
		wrong := func(b float64) (sum float64) {
			for _, s := range seen {
				sum += s.weight * math.Abs(1-math.Exp(b)/s.ratio)
			}
			return sum
		}
		best := minWrong(seen)
		for b := -.4; b <= .4; b += .005 {
			if wrong(b) < wrong(best)-1e-9 {
				t.Fatalf("error with %v is below the error with %v", b, best)
			}
		}
	})
}

// TestTreesLearnAStep checks that trees learn a step function.
func TestTreesLearnAStep(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const n = 4000
	rows, targets := make([]float64, 2*n), make([]float64, n)
	for i := range n {
		rows[2*i], rows[2*i+1] = random.Float64(), random.Float64()
		targets[i] = .2*indicator(rows[2*i] > .5) + .01*random.NormFloat64()
	}
	ts := newExamples(rows, 2, targets, make([]float64, n)).boost(rand.New(rand.NewPCG(3, 4)))
	for _, c := range []struct{ a, b, want float64 }{{.75, .75, .2}, {.25, .75, 0}, {.55, .1, .2}, {.45, .1, 0}} {
		if got := ts.of([]float64{c.a, c.b}); math.Abs(got-c.want) > .04 {
			t.Errorf("at %v, %v: got %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

func TestCalendar(t *testing.T) {
	for _, at := range []time.Time{
		time.Date(2024, 2, 29, 23, 0, 0, 0, time.UTC), time.Date(1969, 12, 30, 5, 0, 0, 0, time.UTC),
		time.Unix(0, 0).UTC(),
	} {
		hour := at.Unix() / 3600
		if c := calendarAt(hour); c.hour != at.Hour() || c.weekday != int(at.Weekday()) {
			t.Errorf("%s: got hour %d of weekday %d", at, c.hour, c.weekday)
		}
	}
}

// TestOddHours checks that hours that deviate at their time of day are odd after one week, and no other hours are.
func TestOddHours(t *testing.T) {
	logs := make([]float64, 40*24)
	random := rand.New(rand.NewPCG(5, 6))
	for i := range logs {
		logs[i] = .3*math.Sin(2*math.Pi*float64(i%24)/24) + .01*random.NormFloat64()
		if i >= 20*24 && i%24 == 7 {
			logs[i] += .3
		}
	}
	for i, odd := range oddHours(logs) {
		if i%24 != 7 && odd || i < 20*24 && odd || i >= 28*24 && i%24 == 7 && !odd {
			t.Fatalf("hour %d of day %d: odd = %v", i%24, i/24, odd)
		}
	}
}

func TestTrainingOriginsAreOfAllHours(t *testing.T) {
	for _, until := range []int{60 * 24, 200 * 24, 3 * 365 * 24} {
		var hours [168]int
		for _, h := range trainingOrigins(until, false).hours {
			hours[h%168]++
		}
		for h, n := range hours {
			if n == 0 {
				t.Errorf("until hour %d: no origin at hour %d of the week", until, h)
			}
		}
		daily := trainingOrigins(until, true).hours
		for t0 := until - 24; t0 >= reach; t0 -= 24 {
			if !slices.Contains(daily, t0) {
				t.Fatalf("until hour %d: hour %d is a multiple of a day earlier, but not an origin", until, t0)
			}
		}
	}
}

// TestIntervalsFitTheHour checks that if noon is harder to forecast than the night, its intervals are wider, so
// that each hour of the day has the nominal coverage.
func TestIntervalsFitTheHour(t *testing.T) {
	const days, asked, ahead = 120, 60, 4
	random := rand.New(rand.NewPCG(5, 6))
	values := make([]float64, (days+asked+1)*24)
	for i := range values {
		noise := .01
		if hour := i % 24; hour >= 10 && hour < 14 {
			noise = .1
		}
		values[i] = 300 * math.Exp(noise*random.NormFloat64())
	}
	s, err := grid.NewSeries(time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC), time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRecord(s, nil, ahead)
	if err != nil {
		t.Fatal(err)
	}
	l, err := learn(r, days*24, training{horizon: ahead})
	if err != nil {
		t.Fatal(err)
	}
	v := newView(r, l.shape)
	x := make([]float64, v.width+1)
	for _, hour := range []int{1, 10} {
		inside := 0
		for day := range asked {
			at := (days+day)*24 + hour
			for h := range ahead {
				y := math.Log(values[at+h] / l.at(v, x, at, h))
				of := (hour + h) % 24
				if y >= l.leads.margins.at(h, of, .1) && y <= l.leads.margins.at(h, of, .9) {
					inside++
				}
			}
		}
		if share := float64(inside) / (ahead * asked); share < .7 || share > .9 {
			t.Errorf("issued at %d:00: 80 %% interval contains %.0f %% of the values", hour, 100*share)
		}
	}
}
