package placement

import (
	"cmp"
	"hash/fnv"
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// ClusterRule returns the name of the site to which a job is sent. It returns false if the snapshot lacks the data
// that the rule requires.
type ClusterRule func(c *Costing) (site string, ok bool)

// SendTo returns a placement that sends a job to the site selected by the rule. The job waits for capacity at this
// site, and the default scheduler's scoring selects the node there. These placements model other multi-cluster
// schedulers, for comparison.
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

// Home implements the rule "home": the site where the job was submitted, meaning the first of its sites, or the
// first site of the snapshot.
func Home(c *Costing) (string, bool) {
	switch {
	case len(c.Job.Sites) > 0:
		return c.Job.Sites[0], true
	case len(c.Snapshot.Sites) > 0:
		return c.Snapshot.Sites[0].Name, true
	}
	return "", false
}

// LowestNow implements the rule "lowest-now": the site with the lowest current intensity among those with capacity.
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

// StaticWeights implements the rule "karmada-static": Karmada's division by static weights, which does not consider
// capacity.
func StaticWeights(c *Costing) (string, bool) {
	votes := map[string]int64{}
	for _, site := range c.Snapshot.Sites {
		if c.Job.MayRunAt(site) {
			votes[site.Name] = cmp.Or(site.Weight, 1)
		}
	}
	return winner(c.Job.ID, votes)
}

// AvailableReplicas implements the rule "karmada-dynamic": Karmada's dynamic weights, meaning the number of
// replicas of the job that fit into each cluster. Karmada uses the minimum of two estimates: its scheduler
// estimator counts node by node, and its general estimator uses the least free capacity of nodes of the same grade.
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

// maxPods is the kubelet's default limit of pods per node.
const maxPods = 110

// grades are Karmada's default models of nodes, by the minimum free capacity of each grade (ResourceModels in
// cluster.karmada.io/v1alpha1). They do not include GPUs.
var grades = func() (all []sched.Resources) {
	cpus, gibs := []int64{0, 1, 2, 4, 8, 16, 32, 64, 128}, []int64{0, 4, 16, 32, 64, 128, 256, 512, 1024}
	for i := range cpus {
		all = append(all, sched.Resources{MilliCPU: 1000 * cpus[i], Memory: gibs[i] << 30})
	}
	return all
}()

// gradeOf returns the free capacity that the general estimator assumes for a node.
func gradeOf(free sched.Resources) (least sched.Resources) {
	for _, g := range grades {
		if free.MilliCPU >= g.MilliCPU && free.Memory >= g.Memory {
			least = g
		}
	}
	least.GPU, least.MilliGPU = free.GPU, free.MilliGPU
	return least
}

// winner assigns one replica to one of several clusters like Karmada, by Webster's method: the cluster with the
// most votes wins. Among equals it is the first by name, or the last if the hash of the object's UID is odd. The ID
// of the job is used instead of the UID. It returns false if there is no cluster.
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
