// Package strategy implements the scheduling strategies. A strategy is a combination of a placement and a start
// rule with a name such as "carbon+window".
//
// [New] returns a strategy by name, and [Greedy.Plan] decides on the jobs of a snapshot. Files with the prefix
// "batch" implement placements of a whole queue, and files with the prefix "plan" also choose the starts for the
// whole queue. [Cap] throttles another strategy.
package strategy
