package batch_test

import (
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestTemperature(t *testing.T) {
	for _, celsius := range []energy.Celsius{-60, 0, 41.3, 200} {
		if got, err := batch.DecodeTemperature(batch.EncodeTemperature(&celsius)); err != nil || *got != celsius {
			t.Errorf("decoding %v returned %v, error %v", celsius, got, err)
		}
	}
	for _, bad := range []string{"", "hot", "NaN", "Inf", "-60.1", "200.1", "1e300", "41 C"} {
		if got, err := batch.DecodeTemperature(bad); err == nil {
			t.Errorf("%q is %v", bad, *got)
		}
	}
}

func FuzzDecodeTemperature(f *testing.F) {
	f.Add("41.3")
	f.Add("-6e1")
	f.Fuzz(func(t *testing.T, value string) {
		defer memtest.Limit(t, 100*len(value))()
		if got, err := batch.DecodeTemperature(value); err == nil && !(*got >= -60 && *got <= 200) {
			t.Errorf("%q is %v", value, *got)
		}
	})
}
