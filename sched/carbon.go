package sched

// carbon is the where "carbon" (CIaware): energy × intensity × PUE over the window in which the job would run, plus the
// policy's weighted terms for time to finish, price and utilisation, all in grams.
//
// The original normalises each term over the candidate nodes, which makes a node's cost depend on its rivals and
// different windows incomparable; fixed exchange rates in grams keep the sum meaningful.
func carbon(s *Snapshot, j *Job, n *Node) (float64, bool) {
	if n.Profile == nil || !n.Site.Carbon.Fresh(s.Now, s.Policy.MaxSignalAge) {
		return 0, false
	}
	window := Window{s.Now, s.Now.Add(n.Runtime(j))}
	return s.Policy.Weights.orDefault().cost(s.Estimate(j, n, window), j.Submitted, n.Utilisation(j.Request)), true
}
