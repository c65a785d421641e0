package sched

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// unknown says what is wrong with a name that [New] does not know, and the name that was meant where one is near. The
// wheres of also are known too.
func unknown(name string, whereIsKnown bool, also ...string) error {
	left, right, last := parts(name)
	wheres, whens := Names()
	wheres = slices.Sorted(slices.Values(append(wheres, also...)))
	rest := name[len(left):]
	switch {
	case slices.Contains(whens, left) && rest == "":
		return fmt.Errorf("unknown strategy %q: %s is a when: write energy+%s", name, left, left)
	case !whereIsKnown:
		if plain, order, ordered := strings.Cut(left, "/"); ordered && slices.Contains(wheres, plain) &&
			slices.Contains(Orders(), order) {
			return orderWithoutWhen(name, plain, order)
		}
		return fmt.Errorf("unknown strategy %q%s: want one of %s, which may be followed by + and when",
			name, meant("", Nearest(left, wheres), rest), strings.Join(wheres, ", "))
	case !slices.Contains(whens, right):
		_, order, ordered := strings.Cut(rest, "/")
		if ordered {
			order = "/" + order
		}
		return fmt.Errorf("unknown strategy %q%s: after the + want one of %s",
			name, meant(left+"+", Nearest(right, whens), order), strings.Join(whens, ", "))
	default:
		return fmt.Errorf("unknown strategy %q%s: after the / want one of %s",
			name, meant(left+"+"+right+"/", Nearest(last, Orders()), ""), strings.Join(Orders(), ", "))
	}
}

func orderWithoutWhen(name, left, order string) error {
	if _, matches := matchers[left]; matches {
		return unordered(name, left)
	}
	return fmt.Errorf("unknown strategy %q: an order follows a when: want %s+now/%s", name, left, order)
}

// unordered refuses an order of what has none.
func unordered(name, part string) error {
	return fmt.Errorf("unknown strategy %q: %s decides on the whole queue at once, so it has no order", name, part)
}

// meant asks for the one part of a name that was guessed, between those that stand; without a guess it is silent.
func meant(before, guess, after string) string {
	if guess == "" {
		return ""
	}
	text := strconv.Quote(before + guess + after) // what stands beside the guess may be any bytes
	return fmt.Sprintf(" (did you mean %s?)", text[1:len(text)-1])
}

// DidYouMean asks for the name that a mistyped one is meant to be, as " (did you mean carbon?)"; "" if none is near.
func DidYouMean(text string, names []string) string { return meant("", Nearest(text, names), "") }

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
