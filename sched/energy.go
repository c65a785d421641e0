package sched

// leastEnergy is the where "energy": the marginal energy of the job at the site's meter, from the power curve of the
// node at its present load, with the wake-up of an empty node. It needs no signal.
func leastEnergy(s *Snapshot, j *Job, n *Node) (float64, bool) {
	if n.Profile == nil {
		return 0, false
	}
	power, wakeUp := n.marginal(j.Request)
	return n.Site.pue() * float64(power.For(n.Runtime(j))+wakeUp), true
}
