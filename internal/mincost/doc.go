// Package mincost solves minimum-cost flow problems exactly, with integer costs.
//
// [Assign] solves the assignment problem: it matches rows with columns, one to one, at the minimum total cost.
// Matrices may have any shape and missing edges. Tests verify the results with the dual problem, which shares no
// code with the solver.
//
// With several resources per bin, feasibility cannot be expressed as a flow. [Pack] places items at a low cost and
// returns a lower bound on the cost, computed from prices of the resources. Only Pack does not guarantee the
// optimum.
package mincost
