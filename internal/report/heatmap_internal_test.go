package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// Each row of a heat map has its name next to it, in smaller type if rows are low. If there are too many rows, only
// some have their name next to them, and all have it under the pointer.
func TestNamesOfRows(t *testing.T) {
	for rows, named := range map[int]int{3: 3, 24: 24, 33: 33, 200: 100} {
		m := heatmap{what: "Node", slot: 3600}
		for i := range rows {
			m.rows = append(m.rows, heatRow{fmt.Sprintf("node-%03d", i), []heat{{value: 1}, {value: 2}}})
		}
		f := heatFigure("<watts>", "", time.Unix(0, 0), 7200, 1, []heatmap{m})
		svg := f.svg()
		if err := xml.Unmarshal(svg, new(any)); err != nil {
			t.Errorf("%d rows: %v", rows, err)
		}
		if n := strings.Count(string(svg), `px">node-`); n != named {
			t.Errorf("%d of %d rows have their names next to them, want %d", n, rows, named)
		}
		if n := strings.Count(string(svg), "<title>node-"); (n == rows) != (named < rows) {
			t.Errorf("%d of %d rows have titles", n, rows)
		}
	}
}

// TestScaleOfAnything checks that the width of a shade is positive and finite for any maximum.
func TestScaleOfAnything(t *testing.T) {
	for _, most := range []float64{
		0, -1, 5e-324, 1e-300, 3, 1e300, math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
	} {
		if step := scale(most); !(step > 0) || math.IsInf(step, 0) {
			t.Errorf("scale(%g) = %g", most, step)
		}
	}
}
