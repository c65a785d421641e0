package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Profile is the where "profile": the score of the hybrid thesis in its first version, from benchmarks alone.
//
//	score = w·rate/best rate + (1 − w)·(rate/loaded)/best (rate/loaded)
//	cost  = 1 − score
//
// Rate and watts are those of the job's class of work, each relative to the best of the candidates; w is the job's
// weight of performance against efficiency. What runs on a node, and what it draws now, does not count: for that
// there are "hybrid" and "hybrid-idle", which share all the rest.
func Profile(c *Costing, n *sched.Node) (float64, bool) { return c.benchmarked(n, (*sched.Node).Rated) }
