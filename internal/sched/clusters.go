package sched

import (
	"cmp"
	"hash/fnv"
	"maps"
	"math"
	"slices"
)

// clusterRule returns the name of the site that a job is sent to. ok is false where the snapshot lacks what the rule
// goes by.
type clusterRule func(c *costing) (site string, ok bool)

// sendTo makes a where of a rule. The job waits for room at the site that the rule names, and the node there is the
// one that stock would take. Such wheres are what others do with several clusters, for ours to be compared with.
func sendTo(rule clusterRule) nodeCost {
	return func(c *costing, n *Node) (float64, bool) {
		if !c.sent {
			c.cluster, c.hasCluster = rule(c)
			c.sent = true
		}
		if n.Site == nil || n.Site.Name != c.cluster {
			return math.Inf(1), c.hasCluster
		}
		cost, _ := leastAllocated(c, n)
		return cost, c.hasCluster
	}
}

// clusters are wheres of simulations alone: in one cluster there is nothing to choose.
var clusters = map[string]placing{
	"home": {
		sendTo(home), alike | relative | seeded,
		"the cluster where the job was submitted; in it as least-allocated",
	},
	"karmada-dynamic": {
		sendTo(availableReplicas), relative | seeded,
		"the cluster by Karmada's dynamic weights, most room for such jobs; in it as least-allocated",
	},
	"karmada-static": {
		sendTo(staticWeights), alike | relative | seeded,
		"the cluster by Karmada's static weights, with room or not; in it as least-allocated",
	},
	"lowest-now": {
		sendTo(lowestNow), alike | relative | seeded,
		"the cluster of lowest intensity now that has room; in it as least-allocated",
	},
}

// Clusters returns the names of wheres that [ByName] takes besides those of [New], sorted.
func Clusters() []string { return slices.Sorted(maps.Keys(clusters)) }

// bindings are the rules that ask for no room.
var bindings = map[string]clusterRule{"home": home, "karmada-static": staticWeights}

// Bound returns the names of the sites where g runs j at all, whatever room there is; none: every site.
func (g *Greedy) Bound(s *Snapshot, j *Job) []string {
	left, _, _ := parts(g.name)
	if rule := bindings[left]; rule != nil {
		if site, ok := rule(&costing{snapshot: s, job: j}); ok {
			return []string{site}
		}
	}
	return j.Sites
}

// home is the rule of "home": where the job was submitted, which is the first of its sites, or the first of all.
func home(c *costing) (string, bool) {
	switch {
	case len(c.job.Sites) > 0:
		return c.job.Sites[0], true
	case len(c.snapshot.Sites) > 0:
		return c.snapshot.Sites[0].Name, true
	}
	return "", false
}

// lowestNow is the rule of "lowest-now": of the sites that have room, the one with the lowest intensity at present.
func lowestNow(c *costing) (best string, ok bool) {
	least := math.Inf(1)
	for _, n := range c.snapshot.Nodes {
		site := n.Site
		if site == nil || site.Name == best || !site.Carbon.Fresh(c.snapshot.Now, c.snapshot.Policy.MaxSignalAge) {
			continue
		}
		now := site.Carbon.Series.At(c.snapshot.Now)
		if now < least || now == least && site.Name < best {
			best, least, ok = site.Name, now, true
		}
	}
	if !ok {
		c.why = NoFreshSignal
	}
	return best, ok
}

// staticWeights is the rule of "karmada-static": Karmada's division by static weights, which asks for no room.
func staticWeights(c *costing) (string, bool) {
	votes := map[string]int64{}
	for _, site := range c.snapshot.Sites {
		if c.job.MayRunAt(site) {
			votes[site.Name] = cmp.Or(site.Weight, 1)
		}
	}
	return winner(c.job.ID, votes)
}

// availableReplicas is the rule of "karmada-dynamic": Karmada's dynamic weights, which are how many replicas of the job
// each cluster has room for. Karmada takes the lesser of what its scheduler estimator counts, node by node, and of what
// its general estimator counts by the least that nodes of a grade have free.
func availableReplicas(c *costing) (string, bool) {
	exact, graded := map[string]int64{}, map[string]int64{}
	for _, n := range c.snapshot.Nodes {
		if n.Site != nil {
			nodes := int64(n.count())
			exact[n.Site.Name] += nodes * min(int64(max(maxPods-n.Jobs, 0)), c.job.Request.CountIn(n.Free))
			graded[n.Site.Name] += nodes * c.job.Request.CountIn(gradeOf(n.Free))
		}
	}
	for name, most := range graded {
		exact[name] = min(exact[name], most)
	}
	return winner(c.job.ID, exact)
}

// maxPods is how many pods a kubelet runs at most unless it is told otherwise.
const maxPods = 110

// grades are Karmada's default models of nodes, by the least that one of each grade has free (ResourceModels in
// cluster.karmada.io/v1alpha1). They know no GPUs.
var grades = func() (all []Resources) {
	cpus, gibs := []int64{0, 1, 2, 4, 8, 16, 32, 64, 128}, []int64{0, 4, 16, 32, 64, 128, 256, 512, 1024}
	for i := range cpus {
		all = append(all, Resources{MilliCPU: 1000 * cpus[i], Memory: gibs[i] << 30})
	}
	return all
}()

// gradeOf returns what the general estimator takes for free on a node.
func gradeOf(free Resources) (least Resources) {
	for _, g := range grades {
		if free.MilliCPU >= g.MilliCPU && free.Memory >= g.Memory {
			least = g
		}
	}
	least.GPU = free.GPU
	return least
}

// winner gives one replica to one of several clusters as Karmada does, by Webster's method: to the one of most
// votes. Of equals it is the first by name, or the last where the hash of the object's UID is odd; a job's ID stands in
// for that. ok is false where there is no cluster.
func winner(job string, votes map[string]int64) (best string, ok bool) {
	h := fnv.New32a()
	h.Write([]byte(job))
	last := h.Sum32()&1 == 1
	for name, v := range votes {
		if most := votes[best]; !ok || v > most || v == most && (name > best) == last {
			best, ok = name, true
		}
	}
	return best, ok
}
