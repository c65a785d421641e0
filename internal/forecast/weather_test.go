package forecast_test

import (
	"testing"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func FuzzParseWeather(f *testing.F) {
	f.Add([]byte("t,wind,temperature,dew,sun,rain\n2026-06-01T12:00Z,1,280,270,9,0\n2026-06-01T13:00Z,1,280,270,1,0\n"))
	f.Add([]byte("t,a,b,c,d,e\n1969-12-31 23:00:00,0,0,0,0,0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 100*len(text))()
		if w, err := forecast.ParseWeather("w", text); err == nil && !w.Start().Before(w.End()) {
			t.Fatalf("weather is from %v to %v", w.Start(), w.End())
		}
	})
}
