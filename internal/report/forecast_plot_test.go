package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func outlookSeries(t *testing.T, step time.Duration, n int, shift float64) *grid.Series {
	t.Helper()
	values := make([]float64, n)
	for i := range values {
		values[i] = 300 + 20*float64(i%7) + shift
	}
	s, err := grid.NewSeries(time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC), step, values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOutlookIsDrawn(t *testing.T) {
	start := time.Date(2026, 3, 1, 5, 0, 0, 0, time.UTC)
	o := &Outlook{
		Title: "Zone <DE> & others", Label: "Carbon intensity\n(gCO2e/kWh)",
		Series: outlookSeries(t, time.Hour, 24, 0), Low: outlookSeries(t, time.Hour, 24, -50),
		High:   outlookSeries(t, time.Hour, 24, 60),
		Band:   "80 % interval",
		Window: sched.Window{Start: start.Add(7 * time.Hour), End: start.Add(9 * time.Hour)},
	}
	svg, err := o.SVG()
	if err != nil {
		t.Fatal(err)
	}
	checkXML(t, svg)
	for _, want := range []string{
		"Zone &lt;DE&gt; &amp; others", "80 % interval", "cheapest 2 h, from 1 Mar 12:00", "gCO2e/kWh",
	} {
		if !bytes.Contains(svg, []byte(want)) {
			t.Errorf("the figure does not contain %q", want)
		}
	}
	again, err := o.SVG()
	if err != nil || !bytes.Equal(svg, again) {
		t.Errorf("a second figure differs (%v)", err)
	}
	filled := strings.Count(string(svg), "#D6E6F2") // the band and its legend
	o.Low, o.High = nil, nil
	bare, err := o.SVG()
	if err != nil {
		t.Fatal(err)
	}
	if filled == 0 || strings.Contains(string(bare), "#D6E6F2") || strings.Contains(string(bare), "80 % interval") {
		t.Errorf("the band is drawn %d times with percentiles, and without them: %v", filled,
			strings.Contains(string(bare), "#D6E6F2"))
	}
}

func TestOutlookOfManyStepsStaysSmall(t *testing.T) {
	o := &Outlook{Title: "long", Label: "(gCO2e/kWh)", Series: outlookSeries(t, 5*time.Minute, 4032, 0)}
	svg, err := o.SVG()
	if err != nil {
		t.Fatal(err)
	}
	checkXML(t, svg)
	if len(svg) > 100_000 {
		t.Errorf("got %d bytes for two weeks in steps of five minutes", len(svg))
	}
}

func checkXML(t *testing.T, svg []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("invalid XML: %v", err)
		}
	}
}
