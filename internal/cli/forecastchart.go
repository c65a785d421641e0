package cli

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/guptarohit/asciigraph"
	"golang.org/x/term"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/report"
)

// usualWidth is that of a terminal whose width is unknown.
const usualWidth = 80

const (
	maxWidth    = 160
	narrow      = 50 // columns below which a chart with axes has no room
	chartHeight = 10
)

// width is how many columns there are to write on.
func (t terminal) width() int {
	if f, ok := t.out.(*os.File); ok {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			return w
		}
	}
	if w, err := strconv.Atoi(t.getenv("COLUMNS")); err == nil && w > 0 {
		return w
	}
	return usualWidth
}

// Text draws the outlook with letters, and says what follows from it.
func (o *outlook) Text(_, colours bool) string {
	width := min(o.width, maxWidth)
	var b strings.Builder
	fmt.Fprintln(&b, o.title())
	if width < narrow {
		o.blocks(&b, width)
	} else {
		o.chart(&b, width, colours)
	}
	fmt.Fprintln(&b, o.verdict())
	return b.String()
}

// verdict is what to do with it.
func (o *outlook) verdict() string {
	if !o.windowed() {
		return fmt.Sprintf("Known until %s: less than %s ahead, so there is no window to choose.",
			o.series.End().Format("Mon 2 Jan 15:04"), report.Rounded(o.duration))
	}
	show := func(v float64) string { return valueOf(v, o.Unit) }
	now, then := o.series.Mean(o.now, o.now.Add(o.duration)), o.series.Mean(o.window.Start, o.window.End)
	line := fmt.Sprintf("Cheapest %s: %s–%s UTC, mean %s", report.Rounded(o.duration),
		o.window.Start.UTC().Format("Mon 2 Jan 15:04"), o.window.End.UTC().Format("15:04"), show(then))
	if o.low != nil {
		low, high := o.low.Mean(o.window.Start, o.window.End), o.high.Mean(o.window.Start, o.window.End)
		line += fmt.Sprintf(" (80 %% interval %s to %s)", strings.TrimSuffix(show(low), " "+o.Unit),
			strings.TrimSuffix(show(high), " "+o.Unit))
	}
	if !o.window.Start.After(o.now) {
		return line + ": now."
	}
	line += "; started now: " + show(now)
	if now > 0 {
		line += fmt.Sprintf(", that is %.0f %% less", 100*(now-then)/now)
	}
	return line + "."
}

// sampled is the series at n instants, the first one off steps after its start, where n steps are all of its time.
func sampled(s *grid.Series, n int, off float64) []float64 {
	values := make([]float64, n)
	span := float64(s.End().Sub(s.Start()))
	for i := range values {
		values[i] = s.At(s.Start().Add(time.Duration((float64(i) + off) / float64(n) * span)))
	}
	return values
}

// edges is the series at both ends of n columns: asciigraph draws in a column how one value becomes the next.
func edges(s *grid.Series, n int) []float64 {
	return append(sampled(s, n, 0), s.Value(s.Len()-1))
}

// most is the largest value of a series.
func most(s *grid.Series) float64 { return slices.Max(sampled(s, s.Len(), 0.5)) }

// column returns on which of n columns an instant lies.
func (o *outlook) column(t time.Time, n int) int {
	share := float64(t.Sub(o.series.Start())) / float64(o.series.End().Sub(o.series.Start()))
	return min(n, max(0, int(math.Round(share*float64(n)))))
}

// blocks is what fits on a narrow terminal: a line of blocks.
func (o *outlook) blocks(b *strings.Builder, width int) {
	levels := []rune("▁▂▃▄▅▆▇█")
	values := sampled(o.series, max(1, min(width, o.series.Len())), 0.5)
	lo, hi := slices.Min(values), slices.Max(values)
	for _, v := range values {
		i := 0
		if hi > lo {
			i = int((v - lo) / (hi - lo) * float64(len(levels)-1))
		}
		b.WriteRune(levels[i])
	}
	fmt.Fprintf(b, "\n%s", o.marks(len(values)))
	fmt.Fprintf(b, "%s to %s\n%s to %s\n", valueOf(lo, o.Unit), valueOf(hi, o.Unit),
		o.series.Start().Format("2 Jan 15:04"), o.series.End().Format("2 Jan 15:04 UTC"))
}

// marks is a line that marks the cheapest window below n columns, with its line end; "" where there is none.
func (o *outlook) marks(n int) string {
	if !o.windowed() {
		return ""
	}
	from := min(o.column(o.window.Start, n), n-1)
	to := max(o.column(o.window.End, n), from+1)
	return strings.Repeat(" ", from) + strings.Repeat("▔", to-from) + "\n"
}

// chart draws lines with axes.
func (o *outlook) chart(b *strings.Builder, width int, colours bool) {
	top := most(o.series)
	if o.high != nil {
		top = max(top, most(o.high))
	}
	format := "%.0f"
	if o.Quantity == quantityPrice || top < 10 {
		format = "%.3f"
	}
	const axis = 3 // what asciigraph puts between a label and the first column
	label := len(fmt.Sprintf(format, top)) + 1
	n := width - label - axis - 1
	options := []asciigraph.Option{
		asciigraph.Height(chartHeight),
		asciigraph.YAxisValueFormatter(func(v float64) string { return fmt.Sprintf(format, v) }),
	}
	var data [][]float64
	if o.low != nil {
		dots := asciigraph.CreateCharSet("·")
		data = append(data, edges(o.low, n), edges(o.high, n))
		options = append(options, asciigraph.SeriesChars(dots, dots))
	}
	data = append(data, edges(o.series, n))
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

// hours is a line of times below n columns; midnights are named by their day.
func (o *outlook) hours(n int) string {
	line := []rune(strings.Repeat(" ", n+8))
	span := o.series.End().Sub(o.series.Start())
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
	for at := o.series.Start().Truncate(step); !at.After(o.series.End()); at = at.Add(step) {
		if at.Before(o.series.Start()) {
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
