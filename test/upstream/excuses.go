package main

import "github.com/kubenergy/kubenergy/test/upstream/enabled"

// excuses are the tests that stock passes and that must fail with our plugins, by mode, suite and name, each with the reason.
// One excuses its subtests too.
var excuses = map[enabled.Mode]map[string]map[string]string{}

// excuse returns why a test may fail.
func excuse(suite string, mode enabled.Mode, test string) (why string, ok bool) {
	for name, why := range excuses[mode][suite] {
		if within(test, name) {
			return why, true
		}
	}
	return "", false
}
