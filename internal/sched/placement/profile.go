package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Profile implements the placement "profile", the first version of the hybrid score, which is based on benchmarks
// only.
//
//	score = w·rate/best rate + (1 − w)·(rate/loaded)/best (rate/loaded)
//	cost  = 1 − score
//
// Rate and power are measured for the job's class of work, each relative to the best candidate. The weight w of the
// job balances performance and efficiency. The current load and power of a node are ignored; the placements
// "hybrid" and "hybrid-idle" consider them and are otherwise identical.
func Profile(c *Costing, n *sched.Node) (float64, bool) { return c.benchmarked(n, (*sched.Node).Rated) }
