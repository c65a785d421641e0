package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

func TestSuspects(t *testing.T) {
	fine := outcomes{
		whole: passed, leaks: passed, "TestA": passed, "TestA/x": passed, "TestA/xy": passed, "TestB": skipped,
	}
	for _, c := range []struct {
		name        string
		stock, ours outcomes
		want        []string
	}{
		{"they agree", fine, fine, nil},
		{
			"a subtest fails, and so all above it", fine,
			union(fine, outcomes{whole: failed, "TestA": failed, "TestA/x": failed}),
			[]string{"TestA/x"},
		},
		{
			"a test fails though no subtest does", fine, union(fine, outcomes{whole: failed, "TestA": failed}),
			[]string{"TestA"},
		},
		{"a goroutine remains", fine, union(fine, outcomes{whole: failed, leaks: failed}), []string{leaks}},
		{
			"a goroutine remains, and a test fails", fine,
			union(fine, outcomes{whole: failed, leaks: failed, "TestB": failed}),
			[]string{leaks, "TestB"},
		},
		{"the process alone fails", fine, union(fine, outcomes{whole: failed}), []string{whole}},
		{"stock passes, ours skips", union(fine, outcomes{"TestB": passed}), fine, []string{"TestB"}},
		{"ours does not run a test", fine, outcomes{
			whole: passed, leaks: passed, "TestA": passed, "TestA/x": passed, "TestB": skipped,
		}, []string{"TestA/xy"}},
		{"both fail", outcomes{"TestA": failed}, outcomes{"TestA": failed}, []string{"TestA"}},
		{"stock's process ended", outcomes{"TestA": unfinished}, outcomes{"TestA": passed}, []string{"TestA"}},
	} {
		if diff := cmp.Diff(c.want, suspects(c.stock, c.ours)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestJudge(t *testing.T) {
	const p, f, s, none = passed, failed, skipped, outcome("")
	for _, c := range []struct {
		name        string
		stock, ours []outcome
		want        verdict
	}{
		{"ours never passes", []outcome{p, p, p}, []outcome{f, f, f}, fails},
		{"ours passes less often alone", []outcome{p, p, p}, []outcome{f, p, f}, fails},
		{"ours passes alone", []outcome{p, p, p}, []outcome{f, p, p}, flaky},
		{"both are lucky once alone", []outcome{p, p, f}, []outcome{f, f, p}, flaky},
		{"stock failed once", []outcome{f, p, p}, []outcome{p, p, p}, flaky},
		{"stock failed once, ours always", []outcome{f, p, p}, []outcome{f, f, f}, fails},
		{"stock passed once, ours never", []outcome{p, f, f}, []outcome{f, f, f}, fails},
		{"both fail", []outcome{f, f, f}, []outcome{f, f, f}, stockFails},
		{"stock fails, ours passes", []outcome{f, f, f}, []outcome{p, p, p}, stockFails},
		{"ours skips", []outcome{p, p, p}, []outcome{s, s, s}, fails},
		{"stock skips, ours fails", []outcome{s, s, s}, []outcome{f, f, f}, fails},
		{"stock skips, ours failed once", []outcome{s, s, s}, []outcome{f, s, s}, asStock},
		{"ours does not run it", []outcome{p, p, p}, []outcome{none, none, none}, fails},
		{"ours alone has it, and it fails", []outcome{none, none, none}, []outcome{f, none, f}, fails},
		{"too many to run again", []outcome{p}, []outcome{f}, fails},
		{"too many to run again, stock skips", []outcome{s}, []outcome{f}, fails},
	} {
		got := suspect{Test: "TestOfNobody", Stock: c.stock, Ours: c.ours}
		if got.judge("suite", enabled.Marked); got.Verdict != c.want {
			t.Errorf("%s: verdict = %s, want %s", c.name, got.Verdict, c.want)
		}
	}
}

// TestNothingIsExcusedWhereNothingMayDiffer verifies that only the mode in which all pods are scored has excuses.
// In this mode, tests of the default scores may fail.
func TestNothingIsExcusedWhereNothingMayDiffer(t *testing.T) {
	for mode, suites := range excuses {
		if mode != enabled.Scored {
			t.Errorf("mode %s has unexpected excuses %v", mode, suites)
		}
		for suite, tests := range suites {
			for test, why := range tests {
				if len(why) < 20 {
					t.Errorf("excuse for %s, %s has no reason", suite, test)
				}
				if got, ok := excuse(suite, mode, test+"/a_subtest"); !ok || got != why {
					t.Errorf("subtests of %s, %s are not excused", suite, test)
				}
				if _, ok := excuse(suite, mode, test+"Too"); ok {
					t.Errorf("excuse for %s, %s also applies to a test with a longer name", suite, test)
				}
			}
		}
	}
}
