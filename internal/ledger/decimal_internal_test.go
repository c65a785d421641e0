package ledger

import (
	"math"
	"testing"
)

// TestDecimals verifies that amounts are formatted exactly.
func TestDecimals(t *testing.T) {
	for v, want := range map[int64]string{
		0: "0", 1: "0.000001", 10: "0.00001", 1_000_000: "1", 1_500_000: "1.5", 123_456_789: "123.456789",
		9_000_000_000_000_001: "9000000000.000001",
		math.MaxInt64:         "9223372036854.775807", -1: "-0.000001", math.MinInt64: "-9223372036854.775808",
	} {
		if got := decimal(v, 6); got != want {
			t.Errorf("decimal(%d, 6) = %s, want %s", v, got, want)
		}
	}
	if got := decimal(1_000_000_001, 9); got != "1.000000001" {
		t.Error(got)
	}
}
