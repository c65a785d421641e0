package hardware

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
)

func TestPowerProfileBackAndForth(t *testing.T) {
	for _, p := range []energy.Profile{
		{Name: "plain", Idle: 50, Max: 200, Exponent: 1, Sleep: 50},
		{
			Name: "sleeps", Idle: 50, Max: 200, Exponent: 1.4, Sleep: 5, WakeUp: 6000, Quality: energy.Derived,
			Source: "a book",
		},
		{Name: "memory", Idle: 50, Max: 200, Sleep: 50, Memory: 30},
		{Name: "off when empty", Idle: 50, Max: 200, Sleep: 0},
		{
			Name: "gpus", Idle: 50, Max: 200, Sleep: 50, GPUIdle: 10, GPUMax: 70,
			GPUClasses: map[string]float64{"inference": 0.5},
		},
		{
			Name: "curve", Curve: []energy.Point{{Utilisation: 0, Power: 40}, {Utilisation: 1, Power: 90}}, Sleep: 40,
			Quality: energy.Measured,
		},
	} {
		for _, pue := range []float64{0, 1.3} {
			got, gotPUE, err := FromPowerProfile(ToPowerProfile(&p, pue))
			if err != nil || gotPUE != pue {
				t.Errorf("%s: got PUE %v, want %v, error %v", p.Name, gotPUE, pue, err)
				continue
			}
			if diff := cmp.Diff(&p, got); diff != "" {
				t.Errorf("%s: unexpected profile (-want +got):\n%s", p.Name, diff)
			}
		}
	}
}

func TestPowerProfileRefuses(t *testing.T) {
	half := 0.5
	for wrong, spec := range map[string]v1alpha1.PowerProfileSpec{
		"below idle":      {IdleWatts: 9, MaxWatts: 5},
		"not negative":    {IdleWatts: math.NaN(), MaxWatts: 5},
		"unknown quality": {MaxWatts: 5, Quality: "guessed"},
		"pue is 0.5":      {MaxWatts: 5, PUE: &half},
	} {
		o := &v1alpha1.PowerProfile{Spec: spec}
		if _, _, err := FromPowerProfile(o); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q", err, wrong)
		}
	}
}

func TestBenchmarks(t *testing.T) {
	o := &v1alpha1.PowerProfile{Spec: v1alpha1.PowerProfileSpec{Benchmarks: []v1alpha1.Benchmark{{
		Class: "training", Rate: 68, Watts: 137, IdleWatts: 50,
	}}}}
	want := map[string]energy.Benchmark{"training": {Rate: 68, Power: 137, Idle: 50}}
	if diff := cmp.Diff(want, Benchmarks(o)); diff != "" {
		t.Error(diff)
	}
}

func TestParseNodePower(t *testing.T) {
	for text, want := range map[string]struct {
		idle, full energy.Watts
		wrong      string
	}{
		"idle:50,max:300":      {idle: 50, full: 300},
		"max: 300.5, idle: 50": {idle: 50, full: 300.5},
		"idle:0,max:5":         {full: 5},
		"":                     {wrong: "want idle:watts,max:watts"},
		"idle:50":              {wrong: "want idle:watts,max:watts"},
		"idle:50,idle:60":      {wrong: "want idle:watts,max:watts"},
		"idle:50,max:40":       {wrong: "max power is 40"},
		"idle:-1,max:40":       {wrong: "idle power is -1"},
		"idle:NaN,max:40":      {wrong: "want idle:watts,max:watts"},
		"idle:x,max:40":        {wrong: "want idle:watts,max:watts"},
		"idle:0,max:0":         {wrong: "with a max above 0"},
		"idle:1,max:2,gpu:3":   {wrong: "want idle:watts,max:watts"},
	} {
		idle, full, err := ParseNodePower(text)
		if want.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), want.wrong) {
				t.Errorf("ParseNodePower(%q) = %v, want %q", text, err, want.wrong)
			}
		} else if err != nil || idle != want.idle || full != want.full {
			t.Errorf("%q: %v to %v, %v", text, idle, full, err)
		}
	}
}
