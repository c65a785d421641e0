package slurm

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// PowerOptions configures the power management of nodes.
type PowerOptions struct {
	Program string // called with suspend or resume, and node names; if empty, no node sleeps
	Policy  sleep.Policy
	// Profile returns the power profile of a node, or nil if it is unknown.
	Profile func(*Node) *energy.Profile
	// Record is called with each plan and its input, which must not be retained. It may be nil.
	Record func(*sleep.Snapshot, *sleep.Plan)
}

// MaySleep is the Feature of nodes that may be suspended.
const MaySleep = "may_sleep"

// sleeper is the state of a node between passes.
type sleeper struct {
	state sleep.State
	busy  bool
	since time.Time
	down  []time.Time // times of suspensions within the last day
	woken time.Time   // time of the last order to wake up
	user  string      // owner of the job that needed the node
}

// power suspends and resumes nodes as decided by package sleep. Slurm itself also resumes nodes to which it
// allocates jobs.
func (d *Driver) power(ctx context.Context, nodes []Node, jobs []Job) error {
	o := &d.o.Power
	if o.Program == "" {
		return nil
	}
	s := d.snapshot(nodes, jobs, d.o.Now().UTC())
	plan := sleep.Decide(s)
	if o.Record != nil {
		o.Record(s, &plan)
	}
	names, owners := map[sleep.Verb][]string{}, map[string]string{}
	for i, v := range plan.Verdicts {
		owners[s.Machines[i].Name] = v.Owner
		names[v.Do] = append(names[v.Do], s.Machines[i].Name)
	}
	err := d.switchNodes(ctx, s.Now, "resume", names[sleep.Wake], func(name string) {
		d.sleepers[name].woken, d.sleepers[name].user = s.Now, owners[name]
	})
	if err != nil {
		return err
	}
	return d.switchNodes(ctx, s.Now, "suspend", names[sleep.Sleep], func(name string) {
		d.sleepers[name].down = append(d.sleepers[name].down, s.Now)
	})
}

// maxNames is the maximum number of nodes per call of the program. With 255 bytes each, the names fit into the 128
// KiB that Linux allows for an argument.
const maxNames = 500

// switching is the maximum time after a decision for starting further batches, so that a pass ends long before
// daemon.MaxRound. The next pass decides again about the remaining nodes.
const switching = time.Minute

// switchNodes runs the program for batches of nodes, and calls done for each node of a successful batch. It starts
// no batch later than switching after at, which is the time of the decision.
func (d *Driver) switchNodes(ctx context.Context, at time.Time, word string, names []string, done func(string)) error {
	const timeout = 30 * time.Second
	for batch := range slices.Chunk(names, maxNames) {
		if d.o.Now().Sub(at) > switching {
			d.o.Log.Info("Postponed nodes to the next pass", "do", word)
			break
		}
		list := strings.Join(batch, ",")
		limited, cancel := context.WithTimeout(ctx, timeout)
		program := exec.CommandContext(limited, d.o.Power.Program, word, list)
		program.WaitDelay = time.Second // for child processes that keep its output open
		said, err := program.CombinedOutput()
		cancel()
		if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
			return fmt.Errorf("%s %s %.500s: %w: %s", d.o.Power.Program, word, list, err, bytes.TrimSpace(said))
		}
		d.o.Log.Info("Ran power program", "do", word, "names", batch)
		for _, name := range batch {
			done(name)
		}
	}
	return nil
}

// snapshot returns the input of a decision about nodes.
func (d *Driver) snapshot(nodes []Node, jobs []Job, now time.Time) *sleep.Snapshot {
	s := &sleep.Snapshot{Now: now, Policy: d.o.Power.Policy}
	in := map[string][]string{} // node names by partition
	for i := range nodes {
		n := &nodes[i]
		s.Machines = append(s.Machines, d.machine(n, now))
		for _, p := range n.Partitions {
			in[p] = append(in[p], n.Name)
		}
	}
	slices.SortFunc(s.Machines, func(a, b sleep.Machine) int { return cmp.Compare(a.Name, b.Name) })
	for _, names := range in {
		slices.Sort(names)
	}
	for i := range jobs {
		j := &jobs[i]
		one := j.onNode()
		if recent := now.Sub(j.Submit.time()) < time.Hour; recent {
			s.Largest = s.Largest.Max(one)
		}
		if !j.State.has("PENDING") || strings.HasPrefix(j.Reason, "JobHeld") || j.Reason == "Dependency" {
			continue
		}
		need := sleep.Need{
			Job: j.name(), Owner: j.User, At: j.Eligible.time(), Request: one, Machines: in[j.partition()],
			Duration: time.Duration(j.TimeLimit) * time.Minute,
		}
		if !need.At.After(now) {
			need.At = time.Time{}
		}
		const maxNeeds = 256
		for range min(max(int64(j.Nodes), 1), int64(maxNeeds-len(s.Needs))) {
			s.Needs = append(s.Needs, need)
		}
	}
	return s
}

// onNode returns the resources that a job uses on each of its nodes.
func (j *Job) onNode() sched.Resources {
	r, on := j.request(), max(int64(j.Nodes), 1)
	return sched.Resources{MilliCPU: r.MilliCPU / on, Memory: r.Memory / on, GPU: r.GPU / on}
}

// machine converts a node to a machine of package sleep.
func (d *Driver) machine(n *Node, now time.Time) sleep.Machine {
	current, m := n.power(), d.sleepers[n.Name]
	if m == nil || m.state != current || m.busy || n.AllocCPUs > 0 {
		m = cmp.Or(m, &sleeper{})
		m.state, m.busy, m.since = current, n.AllocCPUs > 0, now
		d.sleepers[n.Name] = m
	}
	m.down = slices.DeleteFunc(m.down, func(at time.Time) bool { return now.Sub(at) > 24*time.Hour })
	all, free := n.Resources()
	machine := sleep.Machine{
		Name: n.Name, Capacity: all, Free: free, Jobs: n.Busy(), Profile: d.o.Power.Profile(n),
		State: current, Since: m.since, Sleeps: len(m.down), Closed: !n.Usable(), Woken: m.woken, WokenFor: m.user,
	}
	switch {
	case machine.Profile == nil || machine.Profile.BootSeconds == 0:
		machine.Keep = "its power profile has no bootSeconds"
		machine.Profile = cmp.Or(machine.Profile, &energy.Profile{Name: "unknown", Idle: 1, Max: 1})
	case !slices.Contains(n.FeatureNames(), MaySleep):
		machine.Keep = "it does not have the Feature " + MaySleep
	case machine.Closed:
		machine.Keep = "it does not accept jobs"
	}
	return machine
}

// Resources returns the total and the free resources of a node.
func (n *Node) Resources() (all, free sched.Resources) {
	const mebi = 1 << 20
	all = sched.Resources{MilliCPU: milli * int64(n.CPUs), Memory: mebi * int64(n.Memory), GPU: tres(n.Tres, gpus)}
	return all, all.Sub(sched.Resources{
		MilliCPU: milli * int64(n.AllocCPUs), Memory: mebi * int64(n.AllocMemory), GPU: tres(n.TresUsed, gpus),
	})
}

// Busy returns 1 if the node has allocated CPUs, otherwise 0.
func (n *Node) Busy() int { return min(int(n.AllocCPUs), 1) }

// FeatureNames returns the Features of a node. Old versions return them as a single string.
func (n *Node) FeatureNames() []string { return strings.Split(strings.Join(n.Features, ","), ",") }

// power returns the power state of a node.
func (n *Node) power() sleep.State {
	current := slices.Concat(n.State, n.StateFlags)
	switch {
	case current.has("POWERING_UP", "POWER_UP"):
		return sleep.Booting
	case current.has("POWERING_DOWN", "POWER_DOWN"):
		return sleep.Stopping
	case current.has("POWERED_DOWN"):
		return sleep.Asleep
	}
	return sleep.Awake
}
