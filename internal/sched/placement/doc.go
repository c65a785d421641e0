// Package placement has the where of every strategy: what a job costs on a node.
//
// A [NodeCost] returns the cost of one job on one node, and whether it has an opinion. [Costing] holds what the costs
// of one job on all nodes have in common, such as the largest capacity and the fastest benchmark. The strategies that
// choose the cheapest node are in package strategy.
package placement
