package placement

import "github.com/kubenergy/kubenergy/internal/sched"

// Random implements the placement "random", which selects any node with equal probability. The choice only depends
// on the policy's seed and the names of job and node, so that decisions can be replayed and do not depend on the
// other candidates.
func Random(c *Costing, n *sched.Node) (float64, bool) {
	return tieBreak(c.Snapshot.Policy.Seed, c.Job.ID, n.Name), true
}
