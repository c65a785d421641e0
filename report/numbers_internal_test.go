package report

import "testing"

// TestSmallFigures: what a pod uses in a minute is a few millionths of a kilowatt-hour, and not nothing.
func TestSmallFigures(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.000", 0.5: "0.500", 0.1: "0.100", 0.0123456: "0.0123", 0.00001234: "0.0000123", -0.000099: "-0.0000990",
		3e-13: "0.000000000", 1234.5: "1234",
	} {
		if got := significant(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}
