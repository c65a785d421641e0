package dial

import (
	"net/http"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
)

func TestRetryAfter(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-7": 0, "7.5": 0, "soon": 0, "99999999999999999999": 0,
		"4000000000": MaxWait,
		noon.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second,
		noon.Add(-time.Hour).Format(http.TimeFormat):       0,
		noon.AddDate(10, 0, 0).Format(http.TimeFormat):     MaxWait,
	} {
		if got := apiclient.RetryAfter(http.Header{"Retry-After": {text}}, noon, MaxWait); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
