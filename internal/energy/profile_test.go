package energy_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func TestPower(t *testing.T) {
	linear := energy.Profile{Idle: 100, Max: 300}
	convex := energy.Profile{Idle: 100, Max: 300, Exponent: 2}
	curve := energy.Profile{Curve: []energy.Point{{0, 60}, {0.1, 110}, {0.5, 170}, {1, 300}}}
	for _, c := range []struct {
		name    string
		profile energy.Profile
		u       float64
		want    energy.Watts
	}{
		{"linear idle", linear, 0, 100},
		{"linear half", linear, 0.5, 200},
		{"linear full", linear, 1, 300},
		{"overcommitted is full", linear, 1.7, 300},
		{"negative is idle", linear, -1, 100},
		{"NaN is idle", linear, math.NaN(), 100},
		{"exponent", convex, 0.5, 150},
		{"curve at a point", curve, 0.5, 170},
		{"curve between points", curve, 0.3, 140},
		{"curve steep at low load", curve, 0.05, 85},
		{"curve full", curve, 1, 300},
	} {
		if got := c.profile.Power(c.u); math.Abs(float64(got-c.want)) > 1e-9 {
			t.Errorf("%s: Power() = %v W, want %v W", c.name, float64(got), float64(c.want))
		}
	}
}

// Memory draws power independently of the CPU. Idle and full-load power include both.
func TestDraw(t *testing.T) {
	curve := []energy.Point{{0, 100}, {0.5, 160}, {1, 200}}
	for _, c := range []struct {
		p    energy.Profile
		u, m float64
		want energy.Watts
	}{
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 0, 0, 100},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 1, 1, 200},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 1, 0, 160},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 0, 1, 140},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 0.5, 0.25, 140},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40, Exponent: 2}, 0.5, 0, 115},
		{energy.Profile{Idle: 100, Max: 200, Memory: 40}, 2, -1, 160},
		{energy.Profile{Idle: 100, Max: 200}, 0.5, 1, 150},
		{energy.Profile{Idle: 100, Max: 100}, 0.5, 1, 100},
		{energy.Profile{Curve: curve}, 0.5, 1, 160},
	} {
		if got := c.p.Draw(c.u, c.m); math.Abs(float64(got-c.want)) > 1e-9 {
			t.Errorf("profile %+v: Draw() = %v at %v and %v, want %v", c.p, got, c.u, c.m, c.want)
		}
	}
	for _, p := range []energy.Profile{
		{Name: "too much", Idle: 100, Max: 120, Sleep: 100, Memory: 21},
		{Name: "curve", Curve: curve, Sleep: 100, Memory: 9},
		{Name: "negative", Idle: 100, Max: 120, Sleep: 100, Memory: -1},
	} {
		if err := p.Validate(); err == nil {
			t.Errorf("%s: Validate() = nil, want an error", p.Name)
		}
	}
}

// If the profile is valid and its curve does not decrease, a higher load never draws less power.
func TestPowerIsMonotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		idle := rapid.Float64Range(0, 300).Draw(t, "idle")
		p := energy.Profile{
			Idle: energy.Watts(idle), Max: energy.Watts(idle + rapid.Float64Range(0, 500).Draw(t, "dynamic")),
			Exponent: rapid.Float64Range(0, 4).Draw(t, "exponent"),
		}
		a, b := rapid.Float64Range(0, 1).Draw(t, "a"), rapid.Float64Range(0, 1).Draw(t, "b")
		if a > b {
			a, b = b, a
		}
		if p.Power(a) > p.Power(b) {
			t.Fatalf("Power() = %v W at %v, but %v W at %v", float64(p.Power(a)), a, float64(p.Power(b)), b)
		}
	})
}

func TestProfileJSON(t *testing.T) {
	var p energy.Profile
	if err := json.Unmarshal([]byte(`{"name":"n","idleWatts":60,"maxWatts":160,"quality":"measured"}`),
		&p); err != nil {
		t.Fatal(err)
	}
	if p.Sleep != 60 {
		t.Errorf("sleep power of a profile without sleepWatts = %v W, want its idle power", float64(p.Sleep))
	}
	for text, want := range map[string]string{
		`{"name":"n","idleWatts":200,"maxWatts":160}`:                                        "below idle",
		`{"name":"n","idleWatts":-1,"maxWatts":160}`:                                         "idle",
		`{"name":"n","idelWatts":1}`:                                                         "unknown field",
		`{"name":"n","curve":[{"utilisation":0.5,"watts":1},{"utilisation":0.5,"watts":2}]}`: "curve[1]",
		`{"name":"n","quality":"guessed"}`:                                                   "guessed",
		`{"name":"n","gpuIdleWatts":50}`:                                                     "gpuMax",
		`{"name":"n","curve":[{"utilisation":1.5,"watts":1}]}`:                               "curve[0]",
		`{"name":"n","gpuMaxWatts":300,"gpuClasses":{"inference":60}}`:                       `gpuClasses["inference"]`,
		`{"name":"n","gpuMaxWatts":300,"gpuClasses":{"inference":-0.1}}`:                     `gpuClasses["inference"]`,
	} {
		if err := json.Unmarshal([]byte(text), &energy.Profile{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", text, err, want)
		}
	}
}

func TestGPUPower(t *testing.T) {
	var p energy.Profile
	text := `{"name":"n","gpuIdleWatts":50,"gpuMaxWatts":350,"gpuClasses":{"inference":0.5,"idle":0,"burst":1.1}}`
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	for class, want := range map[string]energy.Watts{
		"inference": 200, "idle": 50, "burst": 380, "training": 350, "generic": 350, "": 350,
	} {
		if got := p.GPUPower(class); math.Abs(float64(got-want)) > 1e-9 {
			t.Errorf("GPUPower(%q) = %v W, want %v W", class, float64(got), float64(want))
		}
	}
}

func TestBenchmarkJSON(t *testing.T) {
	var b energy.Benchmark
	if err := json.Unmarshal([]byte(`{"rate":12.5,"watts":6,"idleWatts":7}`), &b); err != nil ||
		b != (energy.Benchmark{Rate: 12.5, Power: 6, Idle: 7}) {
		t.Fatalf("%+v, error %v", b, err)
	}
	for text, want := range map[string]string{
		`{"rate":0,"watts":6,"idleWatts":3}`:          "rate is 0",
		`{"watts":6,"idleWatts":3}`:                   "rate is 0",
		`{"rate":1,"watts":0,"idleWatts":3}`:          "watts is 0",
		`{"rate":1,"watts":6,"idleWatts":-3}`:         "idleWatts is -3",
		`{"rate":1,"watts":6e6,"idleWatts":3}`:        "megawatt",
		`{"rate":1,"loadedWatts":6,"idleWatts":3}`:    "unknown field",
		`{"rate":"fast","watts":6,"idleWatts":3}`:     "rate",
		`[{"rate":1,"watts":6,"idleWatts":3}]`:        "benchmark",
		`{"rate":1e999,"watts":6,"idleWatts":3}`:      "rate",
		`{"rate":-1,"watts":-1,"idleWatts":-1}`:       "idleWatts",
		`{"rate":1,"watts":6,"idleWatts":3,"unit":1}`: "unknown field",
	} {
		if err := json.Unmarshal([]byte(text), &energy.Benchmark{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected an error that contains %[3]q, got %[2]v", text, err, want)
		}
	}
}

func TestUnits(t *testing.T) {
	if got := energy.Watts(1000).For(time.Hour).KWh(); got != 1 {
		t.Errorf("energy of 1 kW for an hour = %v kWh, want 1", got)
	}
	if got := energy.Joules(2 * energy.JoulesPerKWh).String(); got != "2 kWh" {
		t.Errorf("String() of 2 kWh = %q", got)
	}
	if got := energy.Joules(12).String(); got != "12 J" {
		t.Errorf("String() of 12 J = %q", got)
	}
	if got := energy.Grams(1500).String(); got != "1.5 kgCO2e" {
		t.Errorf("String() of 1500 g = %q", got)
	}
}
