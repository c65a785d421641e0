package forecast

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
)

const (
	maxWidth = 160
	// Narrow is the minimum width in columns of a chart with axes.
	Narrow      = 50
	chartHeight = 10
)

// Text draws the outlook as text and adds a verdict.
func (o *Outlook) Text(_, colours bool) string {
	width := min(o.Width, maxWidth)
	var b strings.Builder
	fmt.Fprintln(&b, o.title())
	if width < Narrow {
		o.blocks(&b, width)
	} else {
		o.chart(&b, width, colours)
	}
	fmt.Fprintln(&b, o.verdict())
	return b.String()
}

// verdict returns a sentence with the cheapest window.
func (o *Outlook) verdict() string {
	if !o.windowed() {
		return fmt.Sprintf("The forecast ends at %s, less than %s ahead, so there is no window to select.",
			o.Series.End().Format("Mon 2 Jan 15:04"), humanize.Rounded(o.Duration))
	}
	show := func(v float64) string { return cmdutil.ValueOf(v, o.Unit) }
	now, then := o.Series.Mean(o.Now, o.Now.Add(o.Duration)), o.Series.Mean(o.Window.Start, o.Window.End)
	line := fmt.Sprintf("Cheapest %s: %s–%s UTC, mean %s", humanize.Rounded(o.Duration),
		o.Window.Start.UTC().Format("Mon 2 Jan 15:04"), o.Window.End.UTC().Format("15:04"), show(then))
	if o.Low != nil {
		low, high := o.Low.Mean(o.Window.Start, o.Window.End), o.High.Mean(o.Window.Start, o.Window.End)
		line += fmt.Sprintf(" (80 %% interval %s to %s)", strings.TrimSuffix(show(low), " "+o.Unit),
			strings.TrimSuffix(show(high), " "+o.Unit))
	}
	if !o.Window.Start.After(o.Now) {
		return line + ", starting now."
	}
	line += "; mean if started now: " + show(now)
	if now > 0 {
		line += fmt.Sprintf(", a saving of %.0f %%", 100*(now-then)/now)
	}
	return line + "."
}

// sampled returns n values of the series at equal distances. The first one is off steps after the start.
func sampled(s *grid.Series, n int, off float64) []float64 {
	values := make([]float64, n)
	span := float64(s.End().Sub(s.Start()))
	for i := range values {
		values[i] = s.At(s.Start().Add(time.Duration((float64(i) + off) / float64(n) * span)))
	}
	return values
}

// edges returns the values at the edges of n columns, because asciigraph draws transitions between values in
// columns.
func edges(s *grid.Series, n int) []float64 {
	return append(sampled(s, n, 0), s.Value(s.Len()-1))
}

// most returns the maximum value of a series.
func most(s *grid.Series) float64 { return slices.Max(sampled(s, s.Len(), 0.5)) }

// column returns the column of n that contains the given time.
func (o *Outlook) column(t time.Time, n int) int {
	share := float64(t.Sub(o.Series.Start())) / float64(o.Series.End().Sub(o.Series.Start()))
	return min(n, max(0, int(math.Round(share*float64(n)))))
}

// blocks draws a single line of block characters for narrow terminals.
func (o *Outlook) blocks(b *strings.Builder, width int) {
	levels := []rune("▁▂▃▄▅▆▇█")
	values := sampled(o.Series, max(1, min(width, o.Series.Len())), 0.5)
	lo, hi := slices.Min(values), slices.Max(values)
	for _, v := range values {
		i := 0
		if hi > lo {
			i = int((v - lo) / (hi - lo) * float64(len(levels)-1))
		}
		b.WriteRune(levels[i])
	}
	fmt.Fprintf(b, "\n%s", o.marks(len(values)))
	fmt.Fprintf(b, "%s to %s\n%s to %s\n", cmdutil.ValueOf(lo, o.Unit), cmdutil.ValueOf(hi, o.Unit),
		o.Series.Start().Format("2 Jan 15:04"), o.Series.End().Format("2 Jan 15:04 UTC"))
}

// marks returns a line that marks the cheapest window below n columns, or "" if there is none.
func (o *Outlook) marks(n int) string {
	if !o.windowed() {
		return ""
	}
	from := min(o.column(o.Window.Start, n), n-1)
	to := max(o.column(o.Window.End, n), from+1)
	return strings.Repeat(" ", from) + strings.Repeat("▔", to-from) + "\n"
}

// chart draws lines with axes.
func (o *Outlook) chart(b *strings.Builder, width int, colours bool) {
	top := most(o.Series)
	if o.High != nil {
		top = max(top, most(o.High))
	}
	format := "%.0f"
	if o.Quantity == quantityPrice || top < 10 {
		format = "%.3f"
	}
	const axis = 3 // characters between a label and the first column in asciigraph
	label := len(fmt.Sprintf(format, top)) + 1
	n := width - label - axis - 1
	options := []asciigraph.Option{
		asciigraph.Height(chartHeight),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf(format, v) }),
	}
	var data [][]float64
	if o.Low != nil {
		dots := asciigraph.CreateCharSet("·")
		data = append(data, edges(o.Low, n), edges(o.High, n))
		options = append(options, asciigraph.SeriesChars(dots, dots))
	}
	data = append(data, edges(o.Series, n))
	if colours {
		palette := []asciigraph.AnsiColor{asciigraph.Default, asciigraph.Default, asciigraph.DodgerBlue}
		options = append(options, asciigraph.SeriesColors(palette[3-len(data):]...))
	}
	lines := strings.Split(asciigraph.PlotMany(data, options...), "\n")
	pad := 0
	for _, line := range lines {
		fmt.Fprintln(b, strings.TrimRight(line, " "))
		if at := strings.IndexAny(line, "┤┼"); at >= 0 {
			pad = len([]rune(line[:at])) + 1
		}
	}
	margin := strings.Repeat(" ", pad)
	if marks := o.marks(n); marks != "" {
		if colours {
			marks = strings.Replace(strings.TrimSuffix(marks, "\n"), "▔", "\x1b[32m▔", 1) + "\x1b[0m\n"
		}
		fmt.Fprint(b, margin, marks)
	}
	fmt.Fprintf(b, "%s%s\n", margin, o.hours(n))
}

// hours returns the time axis below n columns. Midnights are labeled with their date.
func (o *Outlook) hours(n int) string {
	line := []rune(strings.Repeat(" ", n+8))
	span := o.Series.End().Sub(o.Series.Start())
	step := 24 * time.Hour
	for _, finer := range []time.Duration{
		15 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	} {
		if float64(n)*float64(finer)/float64(span) >= 8 {
			step = finer
			break
		}
	}
	free := 0
	for at := o.Series.Start().Truncate(step); !at.After(o.Series.End()); at = at.Add(step) {
		if at.Before(o.Series.Start()) {
			continue
		}
		text := at.Format("15:04")
		if at.Equal(at.Truncate(24 * time.Hour)) {
			text = at.Format("2 Jan")
		}
		from := o.column(at, n)
		if from < free || from+len(text) > len(line) {
			continue
		}
		copy(line[from:], []rune(text))
		free = from + len(text) + 1
	}
	return strings.TrimRight(string(line), " ") + " UTC"
}
