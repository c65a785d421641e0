// Package spelling suggests the name that was probably meant by a misspelled one.
package spelling

import (
	"fmt"
	"strconv"
	"strings"
)

// Suggest asks for the one part of a name that was guessed, between those that stand; without a guess it is silent.
func Suggest(before, guess, after string) string {
	if guess == "" {
		return ""
	}
	text := strconv.Quote(before + guess + after) // what stands beside the guess may be any bytes
	return fmt.Sprintf(" (did you mean %s?)", text[1:len(text)-1])
}

// DidYouMean asks for the name that a mistyped one is meant to be, as " (did you mean carbon?)"; "" if none is near.
func DidYouMean(text string, names []string) string { return Suggest("", Nearest(text, names), "") }

// Nearest returns the name that a mistyped one is meant to be: that of other case, else the only one of the least
// distance, with at most two mistakes, and fewer than half of its letters. "" if there is none: a wrong guess is worse
// than a list.
func Nearest(text string, names []string) (name string) {
	const most = 2
	least := most + 1
	for _, n := range names {
		switch d := distance(text, n); {
		case strings.EqualFold(text, n):
			return n
		case 2*d >= len(n):
		case d < least:
			name, least = n, d
		case d == least:
			name = ""
		}
	}
	return name
}

// distance is Levenshtein's: how many letters are to be changed, added or taken away to make one text of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a's letters so far to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
