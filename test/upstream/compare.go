package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// reruns is the number of times that a suspect test is repeated on both sides.
const reruns = 2

// maxSuspects is the maximum number of tests that are repeated. A larger number cannot be a coincidence.
const maxSuspects = 25

// suspects returns the tests that did not pass or have different outcomes. A test is omitted if one of its subtests
// is suspect, and [whole] is omitted if any other test is suspect.
func suspects(stock, ours outcomes) []string {
	var found []string
	for _, test := range slices.Sorted(maps.Keys(union(stock, ours))) {
		agree := stock[test] == ours[test] && (stock[test] == passed || stock[test] == skipped)
		if !agree {
			found = append(found, test)
		}
	}
	return slices.DeleteFunc(found, func(test string) bool {
		return slices.ContainsFunc(found, func(other string) bool { return within(other, test) && other != test })
	})
}

func union(a, b outcomes) outcomes {
	u := maps.Clone(a)
	maps.Copy(u, b)
	return u
}

// within reports whether test equals other or is one of its subtests.
func within(test, other string) bool {
	return other == whole || test == other || strings.HasPrefix(test, other+"/")
}

// verdict is the conclusion about a suspect test.
type verdict string

const (
	fails      verdict = "fails"       // passes without the plugins and fails with them
	excused    verdict = "excused"     // fails for a known reason
	flaky      verdict = "flaky"       // passes at least as often with the plugins as without them if run separately
	stockFails verdict = "stock fails" // also fails without the plugins
	asStock    verdict = "as stock"    // not run without the plugins, nor with them if run separately
)

// A suspect is a test with different outcomes and the outcomes of its repetitions.
type suspect struct {
	Test    string    `json:"test"`
	Stock   []outcome `json:"stock"` // in the complete suite, then separately
	Ours    []outcome `json:"ours"`
	Verdict verdict   `json:"verdict"`
	Why     string    `json:"why,omitempty"` // reason why it is excused
}

// judge determines the verdict. Tests are only excused if they are listed, and only considered flaky if they pass
// at least as often with the plugins as without them.
func (s *suspect) judge(suite string, mode enabled.Mode) {
	alone := func(all []outcome) int { return times(all[1:], passed) }
	switch {
	case times(s.Stock, passed) == 0 && times(s.Stock, failed, unfinished) > 0:
		s.Verdict = stockFails
	case times(s.Stock, passed) == 0 && len(s.Stock) > 1 && slices.Equal(s.Stock[1:], s.Ours[1:]):
		s.Verdict = asStock
	case times(s.Ours, passed) > 0 && alone(s.Ours) >= alone(s.Stock):
		s.Verdict = flaky
	default:
		s.Verdict = fails
		if why, ok := excuse(suite, mode, s.Test); ok {
			s.Verdict, s.Why = excused, why
		}
	}
}

func times(all []outcome, of ...outcome) (n int) {
	for _, o := range all {
		if slices.Contains(of, o) {
			n++
		}
	}
	return n
}
