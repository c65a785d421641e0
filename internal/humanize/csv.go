package humanize

import "strings"

// CSVCell returns text as the content of a CSV cell that spreadsheets do not evaluate as a formula. Each control
// character becomes a blank, so that a cell never spans several lines. A single quote is prepended if the first
// character that is not a blank starts a formula; full-width signs count, because spreadsheets normalize them.
func CSVCell(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	trimmed := strings.TrimLeft(text, " ")
	if trimmed != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(trimmed)[0]) {
		return "'" + text
	}
	return text
}
