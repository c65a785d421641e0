package main

import "github.com/kubenergy/kubenergy/test/upstream/enabled"

// excuses contains the tests that pass without the plugins and are expected to fail with them, by mode, suite and
// name, with the reason. An entry also applies to subtests.
var excuses = map[enabled.Mode]map[string]map[string]string{
	enabled.Scored: {
		"batch": {
			"TestBatchScenarios/two_consecutive_batches":                  affinity,
			"TestBatchScenarios/multiple_pods_per_node_means_no_batching": affinity,
		},
		"scoring": {
			"TestNodeResourcesScoring/with_least_allocated_strategy,_take_existing_sidecars_into_consideration": spreading,
		},
	},
}

const (
	affinity = "its pods do not prefer the nodes with the lowest cost, and in the released profile the lowest " +
		"cost outweighs a preference"
	spreading = "it expects the least allocated node, but a running node costs less than a sleeping one"
)

// podless maps the suites that do not schedule pods to the subject of their tests.
var podless = map[string]string{
	"serving":            "HTTP endpoints of the scheduler",
	"podgroup/admission": "admission in the API server",
}

// excuse returns the reason why a test may fail.
func excuse(suite string, mode enabled.Mode, test string) (why string, ok bool) {
	for name, why := range excuses[mode][suite] {
		if within(test, name) {
			return why, true
		}
	}
	return "", false
}
