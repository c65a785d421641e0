package server

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// printable reports whether a text of a stranger can be logged, kept and shown.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsControl(r) ||
			r == utf8.RuneError
	})
}
