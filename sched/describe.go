package sched

// A line for people on every strategy.
var (
	whereSays = map[string]string{
		"balanced": "free shares of CPU and memory nearest to each other afterwards",
		"carbon": "least emissions over the run: energy × carbon intensity × PUE, with weighted terms for " +
			"price, wait and load",
		"ecsched-carbon":  "the whole queue in rounds of min-cost flow, by the cost of carbon",
		"ecsched-dp":      "the whole queue in rounds of min-cost flow, by dot product of request and room (ECSched)",
		"ecsched-energy":  "the whole queue in rounds of min-cost flow, by the cost of energy",
		"ecsched-k8s":     "the baseline of ECSched's authors: least requested of what is free, balanced",
		"ecsched-ml":      "the whole queue in rounds of min-cost flow, fullest nodes first (ECSched)",
		"energy":          "least additional energy at the meter, wake-up of an empty node included",
		"exec":            "most of what a node can draw left, by live watts (Escheduler)",
		"fcfs":            "the first node by name",
		"flow-carbon":     "the whole queue at once by prices of what is scarce, at the cost of carbon",
		"flow-dp":         "the whole queue at once by prices of what is scarce, by dot product of request and room",
		"flow-energy":     "the whole queue at once by prices of what is scarce, at the cost of energy",
		"flow-ml":         "the whole queue at once by prices of what is scarce, fullest nodes first",
		"hybrid":          "performance against efficiency, from benchmarks of the class of work and live watts",
		"hybrid-idle":     "the same from benchmarks alone, busy nodes last",
		"least-allocated": "as stock kube-scheduler scores: most room, balanced",
		"max-min":         "the whole queue, the job that ends last first, each where it ends soonest",
		"min-min":         "the whole queue, the job that ends first first, each where it ends soonest",
		"most-allocated":  "as stock kube-scheduler scores when it is told to fill nodes up",
		"peaks":           "least increase of power by an exponential model of the node (PEAKS)",
		"profile":         "performance against efficiency, from benchmarks of the class of work alone",
		"random":          "any node, by the seed",
		"round-robin":     "one node after the other",
	}
	whenSays = map[string]string{
		"now":           "at once",
		"threshold":     "when intensity or price keeps to a limit, absolute or a percentile of the next day",
		"window":        "the cheapest window of the expected length, weights as for the where",
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
)

// Describe returns a line on what a where or a when does, or on "cap", which [ByName] knows; "" for names that are
// none of these.
func Describe(name string) string {
	if name == "cap" {
		return "throttle what follows to so many cores, the fewer the higher intensity is in its range (CAP)"
	}
	if text, ok := whereSays[name]; ok {
		return text
	}
	return whenSays[name]
}
