package placement

import (
	"cmp"
	"hash/fnv"
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// ClusterRule returns the name of the site that a job is sent to. ok is false where the snapshot lacks what the rule
// goes by.
type ClusterRule func(c *Costing) (site string, ok bool)

// SendTo makes a where of a rule. The job waits for room at the site that the rule names, and the node there is the
// one that stock would take. Such wheres are what others do with several clusters, for ours to be compared with.
func SendTo(rule ClusterRule) NodeCost {
	return func(c *Costing, n *sched.Node) (float64, bool) {
		if !c.sent {
			c.cluster, c.hasCluster = rule(c)
			c.sent = true
		}
		if n.Site == nil || n.Site.Name != c.cluster {
			return math.Inf(1), c.hasCluster
		}
		cost, _ := LeastAllocated(c, n)
		return cost, c.hasCluster
	}
}

// Home is the rule of "home": where the job was submitted, which is the first of its sites, or the first of all.
func Home(c *Costing) (string, bool) {
	switch {
	case len(c.Job.Sites) > 0:
		return c.Job.Sites[0], true
	case len(c.Snapshot.Sites) > 0:
		return c.Snapshot.Sites[0].Name, true
	}
	return "", false
}

// LowestNow is the rule of "lowest-now": of the sites that have room, the one with the lowest intensity at present.
func LowestNow(c *Costing) (best string, ok bool) {
	least := math.Inf(1)
	for _, n := range c.Snapshot.Nodes {
		site := n.Site
		if site == nil || site.Name == best || !site.Carbon.Fresh(c.Snapshot.Now, c.Snapshot.Policy.MaxSignalAge) {
			continue
		}
		now := site.Carbon.Series.At(c.Snapshot.Now)
		if now < least || now == least && site.Name < best {
			best, least, ok = site.Name, now, true
		}
	}
	if !ok {
		c.Why = sched.NoFreshSignal
	}
	return best, ok
}

// StaticWeights is the rule of "karmada-static": Karmada's division by static weights, which asks for no room.
func StaticWeights(c *Costing) (string, bool) {
	votes := map[string]int64{}
	for _, site := range c.Snapshot.Sites {
		if c.Job.MayRunAt(site) {
			votes[site.Name] = cmp.Or(site.Weight, 1)
		}
	}
	return winner(c.Job.ID, votes)
}

// AvailableReplicas is the rule of "karmada-dynamic": Karmada's dynamic weights, which are how many replicas of the job
// each cluster has room for. Karmada takes the lesser of what its scheduler estimator counts, node by node, and of what
// its general estimator counts by the least that nodes of a grade have free.
func AvailableReplicas(c *Costing) (string, bool) {
	exact, graded := map[string]int64{}, map[string]int64{}
	for _, n := range c.Snapshot.Nodes {
		if n.Site != nil {
			nodes := int64(n.Multiplicity())
			exact[n.Site.Name] += nodes * min(int64(max(maxPods-n.Jobs, 0)), c.Job.Request.CountIn(n.Free))
			graded[n.Site.Name] += nodes * c.Job.Request.CountIn(gradeOf(n.Free))
		}
	}
	for name, most := range graded {
		exact[name] = min(exact[name], most)
	}
	return winner(c.Job.ID, exact)
}

// maxPods is how many pods a kubelet runs at most unless it is told otherwise.
const maxPods = 110

// grades are Karmada's default models of nodes, by the least that one of each grade has free (ResourceModels in
// cluster.karmada.io/v1alpha1). They know no GPUs.
var grades = func() (all []sched.Resources) {
	cpus, gibs := []int64{0, 1, 2, 4, 8, 16, 32, 64, 128}, []int64{0, 4, 16, 32, 64, 128, 256, 512, 1024}
	for i := range cpus {
		all = append(all, sched.Resources{MilliCPU: 1000 * cpus[i], Memory: gibs[i] << 30})
	}
	return all
}()

// gradeOf returns what the general estimator takes for free on a node.
func gradeOf(free sched.Resources) (least sched.Resources) {
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
