package chart

import (
	"fmt"
	"regexp"
	"slices"
)

var (
	metricName = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b|\bup\b`)
	quoted     = regexp.MustCompile(`"[^"]*"`)
	suffixes   = regexp.MustCompile(`_(bucket|sum|count)$`)
	functions  = []string{"label_replace", "histogram_quantile", "group_left"}
	lists      = regexp.MustCompile(`\b(by|on|without|ignoring) *\([^)]*\)`)
)

// Metrics returns the names of the metrics that a PromQL expression reads.
func Metrics(expr string) []string {
	plain := lists.ReplaceAllString(quoted.ReplaceAllString(expr, `""`), "")
	plain = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(plain, "")
	var names []string
	for _, name := range metricName.FindAllString(plain, -1) {
		if !slices.Contains(functions, name) {
			names = append(names, suffixes.ReplaceAllString(name, ""))
		}
	}
	return names
}

// Balanced checks that all brackets of an expression are closed.
func Balanced(expr string) error {
	var open []rune
	closes := map[rune]rune{')': '(', '}': '{', ']': '['}
	for _, c := range quoted.ReplaceAllString(expr, `""`) {
		switch c {
		case '(', '{', '[':
			open = append(open, c)
		case ')', '}', ']':
			if len(open) == 0 || open[len(open)-1] != closes[c] {
				return fmt.Errorf("unexpected closing %c", c)
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("unclosed %c", open[len(open)-1])
	}
	return nil
}
