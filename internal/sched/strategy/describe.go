package strategy

import "cmp"

var whenSays = map[string]string{
	"now":       "at once",
	"threshold": "when intensity or price keeps to a limit, absolute or a percentile of the next day",
	"window":    "the cheapest window of the expected length, weights as for the where",
	"plan": "all jobs together, on machines that are worth being awake for them, so that they share the " +
		"cleaner hours",
	"price":         "the cheapest window by price alone",
	"lowest-slot":   "the slot of lowest intensity (GAIA)",
	"lowest-window": "the window of lowest emissions over the mean length, tried every hour (GAIA)",
	"carbon-time":   "the start that saves most per time until completion (GAIA)",
	"rolling": "every slot anew: start unless a later start is expected to cost less over all lengths that " +
		"the job may have",
	"ecovisor": "run while intensity is below the 30th percentile of the next day, or no delay is left " +
		"(suspends)",
	"wait-awhile": "the cheapest slots, for a length that is told (suspends)",
	"carbon-scaler": "elastic jobs: replicas and times by work done per emission; all others as residual " +
		"(suspends)",
	"residual": "every slot anew: run unless a pause is expected to save more than a restart costs, over " +
		"the residual life (suspends)",
}

// Describe returns a one-line description of a placement, a start rule, or "cap" (see [ByName]). It returns an
// empty string for other names.
func Describe(name string) string {
	if name == "cap" {
		return "throttle what follows to so many cores, the fewer the higher intensity is in its range (CAP)"
	}
	return cmp.Or(matchers[name].description, placements[name].description, clusters[name].description, whenSays[name])
}
