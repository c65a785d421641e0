package estimate

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const milli = 1000

// scene is the state of a node at a tick.
type scene struct {
	books *books
	ready bool // the energy of the node may be recorded
	node  string
	now   time.Time
	at    time.Duration
	cores float64
	bytes float64 // memory capacity
	gpus  float64 // devices, including partitions
	power string  // power state of the machine from its label; empty if awake

	workers   []worker
	podsKnown bool
	usage     Usage

	// Set by look.
	used     float64 // cores used by the whole node
	measured bool    // used is from metrics-server

	wall       []energy.Reading
	wallKnown  bool
	wallSource string
	profile    *energy.Profile // without memory if memory is set; nil if unknown
	memory     energy.Watts    // dynamic power of the whole memory
}

// model sets the power profile. If the memory capacity is known, the power of the memory is modeled separately.
func (s *scene) model(p *energy.Profile) {
	if s.profile = p; p != nil && p.Memory > 0 && s.bytes > 0 {
		s.profile, s.memory = new(p.Bare()), p.Memory
	}
}

// Sources of the energy of a node.
const (
	byWall = iota
	byModel
	byNothing
	byDefault // a model of a node with unknown hardware
	sources
)

func (s *scene) kind() int {
	switch {
	case s.wallKnown:
		return byWall
	case s.profile != nil:
		return byModel
	}
	return byNothing
}

// A worker is a running or finished pod at a tick. It contains only the required fields, because the pods of a
// large cluster without agents would use too much memory.
type worker struct {
	uid     types.UID
	pod     podName
	request int64 // CPU request in millicores
	bytes   int64 // memory request
	gpus    float64
	// class of GPU work, a key of the classes in power profiles
	gpuClass string
	running  bool
	ended    bool
	start    time.Time // zero if unknown
	end      time.Time // end of a finished pod; zero if unknown
	cores    float64   // CPU usage
	known    bool      // cores was measured
}

// workersOf returns the workers of a list of pods.
func workersOf(pods []v1.Pod, view *kube.View) []worker {
	all := make([]worker, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.UID == "" || batch.CheckConsumer(energy.ContainerID(string(p.UID), "")) != nil {
			continue
		}
		request := policy.PodRequest(p)
		w := worker{
			uid: p.UID, pod: podName{p.Namespace, p.Name}, request: max(request.MilliCPU, 0),
			gpus: max(request.Devices(), 0), bytes: max(request.Memory, 0),
			running: p.Status.Phase == v1.PodRunning, ended: over(p),
		}
		if w.gpus > 0 {
			job, _ := concerned(view, p)
			w.gpuClass = job.GPUClass
		}
		if p.Status.StartTime != nil {
			w.start = p.Status.StartTime.Time
		}
		if w.ended {
			w.end = ran(p, time.Time{}).End
		}
		all = append(all, w)
	}
	return all
}

// look sets the CPU usage of each pod and of the whole node. If the usage of a pod is unknown, its CPU request is
// used, scaled to the usage of the node. If the usage of the node is unknown, it is the sum of its pods, limited by
// its capacity.
func (s *scene) look() {
	var known, asked float64
	for i := range s.workers {
		w := &s.workers[i]
		if used, ok := s.usage[w.pod]; ok && !w.ended {
			w.cores, w.known = min(used.Cores, s.cores), true
			known += w.cores
		} else if w.running {
			asked += float64(w.request) / milli
		}
	}
	whole, measured := s.usage[podName{"", s.node}]
	s.measured = measured && whole.Cores <= overcommit*s.cores
	most := s.cores
	if s.measured {
		most = min(whole.Cores, s.cores)
	}
	share := 0.0
	if asked > 0 {
		share = min(max(most-known, 0)/asked, 1)
	}
	total := 0.0
	for i := range s.workers {
		w := &s.workers[i]
		if !w.known && w.running {
			w.cores = share * float64(w.request) / milli
		}
		total += w.cores
	}
	if total > s.cores { // pods and nodes are not measured at the same time
		for i := range s.workers {
			s.workers[i].cores *= s.cores / total
		}
	}
	s.used = min(total, s.cores)
	if s.measured {
		s.used = most
	}
}

// overcommit is the maximum plausible ratio of a node's CPU usage to its capacity. Higher values are invalid.
const overcommit = 1.5

// cpuPower returns the modeled power of the node without GPUs and memory, and whether the machine is awake.
func (s *scene) cpuPower() (power energy.Watts, awake bool) {
	switch s.power {
	case v1alpha1.PowerAsleep:
		return s.profile.Sleep, false
	case v1alpha1.PowerBooting:
		return s.profile.Booting(), false
	}
	u := 0.0
	if s.cores > 0 {
		u = s.used / s.cores
	}
	return s.profile.Power(u), true
}

// memoryPower calls each with the memory power of every running pod, based on its memory usage from metrics-server
// or otherwise on its memory request. It returns the power of the remaining memory in use on the node.
func (s *scene) memoryPower(each func(types.UID, energy.Watts)) (others energy.Watts) {
	if s.memory <= 0 {
		return 0
	}
	bytesOf := func(w *worker) (bytes float64, known bool) {
		if used := s.usage[w.pod].Bytes; used > 0 {
			return used, true
		}
		return float64(w.bytes), false
	}
	sums := map[bool]float64{}
	for i := range s.workers {
		if w := &s.workers[i]; w.running {
			bytes, known := bytesOf(w)
			sums[known] += bytes
		}
	}
	left := s.bytes
	shares := map[bool]float64{}
	for _, known := range []bool{true, false} { // requests share the memory that remains after the measured usage
		taken := min(sums[known], left)
		left -= taken
		if taken > 0 {
			shares[known] = taken / sums[known]
		}
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.running {
			bytes, known := bytesOf(w)
			each(w.uid, s.memory*energy.Watts(shares[known]*bytes/s.bytes))
		}
	}
	rest := s.usage[podName{"", s.node}].Bytes - (s.bytes - left)
	return s.memory * energy.Watts(min(max(rest, 0), left)/s.bytes)
}

// gpuPower calls each with the GPU power of every running pod with GPUs, and returns the power of the unused GPUs.
func (s *scene) gpuPower(each func(types.UID, energy.Watts)) (free energy.Watts) {
	left := s.gpus
	for i := range s.workers {
		if w := &s.workers[i]; w.running && w.gpus > 0 && left > 0 {
			held := min(w.gpus, left)
			left -= held
			each(w.uid, s.profile.GPUPower(w.gpuClass)*energy.Watts(held))
		}
	}
	return s.profile.GPUIdle * energy.Watts(left)
}
