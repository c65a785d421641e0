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
	affinity = "the nodes that its pods prefer are not those that cost least, and in the shipped profile the least " +
		"cost outweighs a preference"
	spreading = "it wants the least allocated node, and a node that runs already costs less than one that sleeps"
)

// podless maps the suites that do not schedule pods to the subject of their tests.
var podless = map[string]string{
	"serving":            "the pages that the scheduler serves",
	"podgroup/admission": "what the API server admits",
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
