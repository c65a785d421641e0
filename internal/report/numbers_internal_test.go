package report

import (
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

// TestSmallFigures checks that small values, such as the energy of a pod in a minute, are not shown as zero.
func TestSmallFigures(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.000", 0.5: "0.500", 0.1: "0.100", 0.0123456: "0.0123", 0.00001234: "0.0000123", -0.000099: "-0.0000990",
		3e-13: "0.000", -4e-16: "0.000", -2e-9: "-0.000000002", 1234.5: "1234",
	} {
		if got := humanize.Significant(v); got != want {
			t.Errorf("%v is formatted as %s, want %s", v, got, want)
		}
	}
	if got := humanize.Shortened(strings.Repeat("ü", 50), 40); got != strings.Repeat("ü", 39)+"…" ||
		humanize.Shortened("a · b", 40) != "a · b" {
		t.Errorf("a long name is shortened to %q", got)
	}
	for _, got := range []string{
		percent(-1e-9), humanize.Fixed(-0.004, 2), shownInterval(&Interval{Value: -1e-9}, 100, 2),
	} {
		if strings.HasPrefix(got, "-") {
			t.Errorf("got %s, want no negative zero", got)
		}
	}
}
