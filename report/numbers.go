package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Few names so many of all, and says whether there are more.
func Few(most int, all []string) string {
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", …"
	}
	return strings.Join(all, ", ")
}

func percent(share float64) string {
	if v := 100 * share; v > 0 && v < 0.1 {
		return "<0.1 %"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}

// significant shows four digits, and no exponent for what people pay.
func significant(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	if a := max(v, -v); a > 0 && a < 0.1 {
		// A share of a minute of one node is a few millionths of a kilowatt-hour: 0.000 would say that it was nothing.
		const digits, most = 3, 9
		return strconv.FormatFloat(v, 'f', min(most, digits-1-int(math.Floor(math.Log10(a)))), 64)
	}
	return fmt.Sprintf("%.3f", v)
}

// span shows seconds with two units at most.
func span(seconds float64) string {
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
