// Package placement implements the placements of all strategies, meaning the cost of a job on a node.
//
// A [NodeCost] returns the cost of one job on one node, and whether it has an opinion. [Costing] contains the data
// shared by the costs of one job on all nodes, such as the largest capacity and the fastest benchmark. The
// strategies that select the cheapest node are implemented in package strategy.
package placement
