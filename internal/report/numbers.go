package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// Plural counts things.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Each returns what of says of each of all.
func Each[T, V any](all []T, of func(T) V) []V {
	values := make([]V, len(all))
	for i := range all {
		values[i] = of(all[i])
	}
	return values
}

// Shortened is a text of at most so many characters.
func Shortened(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// Few names so many of all, and says whether there are more.
func Few(most int, all []string) string {
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// Listed joins words with commas, and the last one with a conjunction: "a, b or c". There must be at least one word.
func Listed(words []string, conjunction string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Distinct returns all without duplicates, in the order of the first occurrences.
func Distinct[T comparable](all []T) (distinct []T) {
	for _, v := range all {
		if !slices.Contains(distinct, v) {
			distinct = append(distinct, v)
		}
	}
	return distinct
}

// roundUp rounds v up to an element of nice, which is sorted, or 10, times a power of ten. The result may be below v by
// the fraction slip.
func roundUp(v, slip float64, nice ...float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range nice {
		if n*power >= v*(1-slip) {
			return n * power
		}
	}
	return 10 * power
}

func percent(share float64) string {
	if v := 100 * share; v > 0 && v < 0.1 {
		return "<0.1 %"
	}
	return fixed(100*share, 1) + " %"
}

// fixed shows a value with so many decimals. What rounds to nothing has no sign.
func fixed(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-")
	}
	return text
}

// Significant shows four digits, and no exponent for what people pay.
func Significant(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return fixed(v, 0)
	case a >= 100:
		return fixed(v, 1)
	case a >= 10:
		return fixed(v, 2)
	case a >= 1e-9 && a < 0.1:
		// A share of a minute of one node is a few millionths of a kilowatt-hour: 0.000 would say that it was nothing.
		const digits, most = 3, 9
		return fixed(v, min(most, digits-1-int(math.Floor(math.Log10(a)))))
	}
	return fixed(v, 3) // less than that is what is left of a sum of figures that cancel out
}

// Span shows seconds with two units at most.
func Span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Rounded shows a duration to two units at most.
func Rounded(d time.Duration) string {
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour:
		d = d.Round(time.Minute)
		if d%time.Hour == 0 {
			return fmt.Sprintf("%d h", int(d.Hours()))
		}
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}
