package lemon

import (
	"math/rand/v2"

	"github.com/kubenergy/kubenergy/mincost"
)

// placement is an instance of jobs → nodes → sink: each job can go to some nodes, all of which have the same room, just
// enough for all jobs together where choices is 0, which means any node.
func placement(r *rand.Rand, jobs, nodes, choices int, costs int64) *instance {
	i := &instance{supply: make([]int64, jobs+nodes+1), jobs: jobs, choices: choices}
	if choices == 0 {
		i.choices = nodes
	}
	sink := jobs + nodes
	room := int64((jobs + nodes - 1) / nodes)
	for job := range jobs {
		i.supply[job] = 1
		if choices == 0 {
			for node := range nodes {
				i.arc(job, jobs+node, 1, r.Int64N(costs))
			}
			continue
		}
		for _, node := range r.Perm(nodes)[:choices] {
			i.arc(job, jobs+node, 1, r.Int64N(costs))
		}
	}
	if choices > 0 {
		room++
	}
	for node := range nodes {
		i.arc(jobs+node, sink, room, 0)
	}
	i.supply[sink] = -int64(jobs)
	return i
}

// energy returns what a unit of each shape costs on each node: its size times what the node draws, give or take a
// little. All shapes like the same nodes best, which is what placements by energy are like and what makes them hard.
func energy(r *rand.Rand, kinds, nodes int) []int64 {
	cost := make([]int64, kinds*nodes)
	draw := make([]int64, nodes)
	for node := range draw {
		draw[node] = 100 + r.Int64N(900)
	}
	for kind := range kinds {
		size := 1 + r.Int64N(1000)
		for node := range nodes {
			cost[kind*nodes+node] = size*draw[node] + r.Int64N(size*20)
		}
	}
	return cost
}

// byEnergy makes a placement's jobs cost what energy says, each of a size of its own.
func (i *instance) byEnergy(r *rand.Rand) *instance {
	nodes := len(i.supply) - i.jobs - 1
	cost := energy(r, i.jobs, nodes)
	for arc := range i.jobs * i.choices {
		i.cost[arc] = cost[int(i.ends[2*arc])*nodes+int(i.ends[2*arc+1])-i.jobs]
	}
	return i
}

// shapes is an instance of jobs of a few shapes on nodes that all differ: jobs of one shape cost the same everywhere.
// It is returned as one node for each job, as a transport with a row for each job, and as one with a row for each
// shape.
func shapes(r *rand.Rand, jobs, kinds, nodes int) (i *instance, t, counted *mincost.Transport) {
	cost := energy(r, kinds, nodes)
	i = &instance{supply: make([]int64, jobs+nodes+1)}
	t = &mincost.Transport{Count: make([]int64, jobs), Room: make([]int64, nodes), Cost: make([]int64, 0, jobs*nodes)}
	counted = &mincost.Transport{Count: make([]int64, kinds), Room: t.Room, Cost: cost}
	for job := range jobs {
		i.supply[job], t.Count[job] = 1, 1
		kind := r.IntN(kinds)
		counted.Count[kind]++
		for node, c := range cost[kind*nodes : (kind+1)*nodes] {
			i.arc(job, jobs+node, 1, c)
			t.Cost = append(t.Cost, c)
		}
	}
	room := int64((jobs+nodes-1)/nodes) + 1
	for node := range nodes {
		i.arc(jobs+node, jobs+nodes, room, 0)
		t.Room[node] = room
	}
	i.supply[jobs+nodes] = -int64(jobs)
	return i, t, counted
}

// pods is a transport of pods of a few shapes on nodes that all differ, with room for a fifth more.
func pods(r *rand.Rand, pods, kinds, nodes int) *mincost.Transport {
	t := &mincost.Transport{Count: make([]int64, kinds), Room: make([]int64, nodes), Cost: energy(r, kinds, nodes)}
	for range pods {
		t.Count[r.IntN(kinds)]++
	}
	for node := range t.Room {
		t.Room[node] = int64(pods*6/5/nodes) + r.Int64N(3)
	}
	return t
}

// aggregated is a transport as a network, which has room for all.
func aggregated(t *mincost.Transport) *instance {
	rows, cols := len(t.Count), len(t.Room)
	i := &instance{supply: make([]int64, rows+cols+1)}
	for cell, cost := range t.Cost {
		i.arc(cell/cols, rows+cell%cols, mincost.Unlimited, cost)
	}
	for col, room := range t.Room {
		i.arc(rows+col, rows+cols, room, 0)
	}
	for row, count := range t.Count {
		i.supply[row] = count
		i.supply[rows+cols] -= count
	}
	return i
}

// general is any network: connected or not, with supplies that it can carry or not, parallel arcs, arcs from a node to
// itself, and sometimes negative costs and arcs without a limit.
func general(r *rand.Rand) *instance {
	nodes := 2 + r.IntN(40)
	i := &instance{supply: make([]int64, nodes)}
	for range r.IntN(1 + nodes/2) {
		from, to, units := r.IntN(nodes), r.IntN(nodes), r.Int64N(10)
		i.supply[from] += units
		i.supply[to] -= units
	}
	span := []int64{1, 2, 100, 1 << 30}[r.IntN(4)]
	least := int64(0)
	if r.IntN(2) == 0 {
		least = -span / 4
	}
	unlimited := r.IntN(3) == 0 && least == 0
	for range r.IntN(nodes * 6) {
		capacity := r.Int64N(20)
		if unlimited && r.IntN(3) == 0 {
			capacity = mincost.Unlimited
		}
		i.arc(r.IntN(nodes), r.IntN(nodes), capacity, least+r.Int64N(span+1))
	}
	return i
}
