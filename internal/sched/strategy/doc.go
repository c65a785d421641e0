// Package strategy has the strategies: a placement and a start rule, combined by name, as in "carbon+window".
//
// [New] builds a strategy from its name, [Greedy.Plan] decides on the jobs of a snapshot. Files that begin with batch
// place a whole queue at once, files that begin with plan also choose starts for all of it. [Cap] throttles another
// strategy.
package strategy
