package strategy

import "cmp"

var whenSays = map[string]string{
	"now":       "start immediately",
	"threshold": "start when the intensity or price is within a limit, either absolute or a percentile of the next day",
	"window":    "start in the cheapest window of the expected run time, with the weights of the placement",
	"plan": "plan all jobs jointly on the machines that are worth keeping awake, so that they share the " +
		"cleaner hours",
	"guarded": "like plan, but only if a grid varies enough within a day and capacity is not short, and ahead of the " +
		"latest start",
	"capacity":      "wait up to 15 minutes for capacity on an efficient machine that is awake, without signals",
	"price":         "start in the window with the lowest price",
	"lowest-slot":   "start in the slot with the lowest intensity (GAIA)",
	"lowest-window": "start in the window with the lowest emissions over the mean run time, checked every hour (GAIA)",
	"carbon-time":   "start with the highest saving per time until completion (GAIA)",
	"rolling": "decide in every slot: start unless a later start has a lower expected cost over all run times that " +
		"the job may have",
	"ecovisor": "run while the intensity is below the 30th percentile of the next day, or if no delay remains " +
		"(suspends)",
	"wait-awhile": "run in the cheapest slots, for a known run time (suspends)",
	"carbon-scaler": "elastic jobs: choose replicas and times by work done per emission; other jobs: as residual " +
		"(suspends)",
	"residual": "decide in every slot: run unless a pause is expected to save more than a restart costs, over " +
		"the residual run time (suspends)",
}

// Describe returns a one-line description of a placement, a start rule, or "cap" (see [ByName]). It returns an
// empty string for other names.
func Describe(name string) string {
	if name == "cap" {
		return "throttle the following strategy to a number of cores, fewer at a higher intensity in its range (CAP)"
	}
	return cmp.Or(matchers[name].description, placements[name].description, clusters[name].description, whenSays[name])
}
