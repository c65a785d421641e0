// Package sim runs a [Scenario] in virtual time: jobs arrive, strategies of package strategy decide, a model of a
// cluster carries the decisions out, and an accountant integrates the power of every node over the grid's signals,
// exactly.
//
// It is one driver of the core among several; the strategies cannot tell it from a real cluster. The result states
// what it knows better than reality: energy is modelled (quality estimated), and unless the scenario says otherwise,
// forecasts are perfect and run times known; see [Foresight] and [Scenario].
package sim
