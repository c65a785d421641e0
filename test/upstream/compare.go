package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// reruns is how often a suspect test runs again, alone, on both sides.
const reruns = 2

// maxSuspects is how many tests run again. More than that is no coincidence.
const maxSuspects = 25

// suspects returns the tests that did not pass, or do not agree. Where subtests say it, their test is none, nor is the
// [whole] where anything else is.
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

// within reports whether a test is another one or one of its subtests.
func within(test, other string) bool {
	return other == whole || test == other || strings.HasPrefix(test, other+"/")
}

// verdict says what a suspect test shows.
type verdict string

const (
	fails      verdict = "fails"       // stock passes it and ours does not
	excused    verdict = "excused"     // it fails for a reason that the list names
	flaky      verdict = "flaky"       // alone, ours passes it no less often than stock
	stockFails verdict = "stock fails" // and so does not judge us
	asStock    verdict = "as stock"    // stock does not run it, and alone neither does ours
)

// A suspect is a test that did not agree, and what came of running it again.
type suspect struct {
	Test    string    `json:"test"`
	Stock   []outcome `json:"stock"` // in the whole suite, then alone
	Ours    []outcome `json:"ours"`
	Verdict verdict   `json:"verdict"`
	Why     string    `json:"why,omitempty"` // it is excused
}

// judge settles the verdict. Nothing is excused that is not on the list, and nothing is called flaky that passes less
// often with our plugins than without.
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
