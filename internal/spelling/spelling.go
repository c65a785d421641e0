// Package spelling suggests corrections for misspelled names.
package spelling

import (
	"fmt"
	"strconv"
	"strings"
)

// Suggest returns a suggestion like " (did you mean carbon?)", with before and after added to the guess. It returns
// an empty string if the guess is empty.
func Suggest(before, guess, after string) string {
	if guess == "" {
		return ""
	}
	text := strconv.Quote(before + guess + after) // before and after may contain arbitrary bytes
	return fmt.Sprintf(" (did you mean %s?)", text[1:len(text)-1])
}

// DidYouMean returns a suggestion like " (did you mean carbon?)" for a misspelled name. It returns an empty string
// if no name is similar.
func DidYouMean(text string, names []string) string { return Suggest("", Nearest(text, names), "") }

// Nearest returns the name that is most similar to text. A name that differs only in case is preferred. Otherwise,
// Nearest returns the only name with the smallest edit distance, which must be at most two and less than half of
// its length. It returns an empty string if there is no such name, because a wrong suggestion is worse than none.
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

// distance returns the Levenshtein distance of two texts: the minimum number of bytes to change, insert or delete.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // distances between the processed prefix of a and the prefixes of b
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
