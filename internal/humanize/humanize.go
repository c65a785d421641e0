// Package humanize formats numbers, durations and times for display to users.
package humanize

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Plural returns n followed by the singular or plural form of a noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Shortened returns text truncated to at most the given number of characters. Truncated text ends with an ellipsis.
func Shortened(text string, most int) string {
	if all := []rune(text); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return text
}

// Truncated returns text truncated to at most limit bytes. Truncated text ends with an ellipsis.
func Truncated(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}

// Few joins at most the given number of elements with commas, and appends an ellipsis if there are more.
func Few(most int, all []string) string {
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

// Listed joins words with commas and the last word with a conjunction, as in "a, b or c". There must be at least
// one word.
func Listed(words []string, conjunction string) string {
	last := len(words) - 1
	if last == 0 {
		return words[0]
	}
	return strings.Join(words[:last], ", ") + " " + conjunction + " " + words[last]
}

// Fixed formats v with the given number of decimals. Values that round to zero have no sign.
func Fixed(v float64, decimals int) string {
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Trim(text, "-0.") == "" {
		return strings.TrimPrefix(text, "-")
	}
	return text
}

// Significant formats v with three or four significant digits and without an exponent. Integer digits are not
// rounded.
func Significant(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return Fixed(v, 0)
	case a >= 100:
		return Fixed(v, 1)
	case a >= 10:
		return Fixed(v, 2)
	case a >= 1e-9 && a < 0.1:
		// One pod may use only a few millionths of a kilowatt-hour, which must not be displayed as 0.000.
		const digits, most = 3, 9
		return Fixed(v, min(most, digits-1-int(math.Floor(math.Log10(a)))))
	}
	return Fixed(v, 3) // smaller values are rounding errors of sums
}

// Span formats a number of seconds with at most two units.
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

// Rounded formats a duration with at most two units.
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

// Count returns a number with its noun, in the plural unless n is 1.
func Count(n int, thing string) string {
	return Plural(n, thing, thing+"s")
}
