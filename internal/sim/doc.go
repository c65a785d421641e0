// Package sim runs a [Scenario] in virtual time. Jobs arrive, strategies make decisions, a model of a cluster
// applies the decisions, and an accountant integrates the power of every node over the grid signals exactly.
//
// The simulator is one of several drivers of the strategies, which cannot distinguish it from a real cluster.
// Simulated energy has the quality "estimated". By default, forecasts are perfect and run times are known; see
// [Foresight] and [Scenario].
package sim
