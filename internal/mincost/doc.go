// Package mincost solves minimum-cost flows exactly, in integers.
//
// It has the assignment problem: rows are matched with columns, one to one, at least total cost. [Assign] solves it
// for matrices of any shape in which edges may be missing. Tests check its answers against their dual, which shares no
// code with it.
//
// Where bins have several resources no flow says what fits: [Pack] places items at little cost and proves how much
// less it might be, by prices of the resources. It is the one part that does not claim the optimum.
package mincost
