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

// scene is what is known of a node at a tick.
type scene struct {
	books *books
	ready bool // what the node used may be booked
	node  string
	now   time.Time
	at    time.Duration
	cores float64
	bytes float64 // of memory
	gpus  int64
	power string // state of its machine, as kubenergy-power says; "": awake

	workers   []worker
	podsKnown bool
	usage     Usage

	// What look finds.
	used     float64 // cores, of the whole node
	measured bool    // metrics-server said so

	wall       []energy.Reading
	wallKnown  bool
	wallSource string
	profile    *energy.Profile // without memory that is told apart; nil: none is known
	memory     energy.Watts    // that all of it draws beyond idle
}

// model takes a profile; where it is known how much memory there is, what that draws is told apart.
func (s *scene) model(p *energy.Profile) {
	if s.profile = p; p != nil && p.Memory > 0 && s.bytes > 0 {
		s.profile, s.memory = new(p.Bare()), p.Memory
	}
}

// By what a node is estimated.
const (
	byWall = iota
	byModel
	byNothing
	byDefault // a model, of a node of which nothing is known
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

// A worker is a pod at a tick that runs, or has ended: what is needed of it, since a large cluster's pods as a whole
// take much memory where no node has an agent.
type worker struct {
	uid     types.UID
	pod     podName
	request int64 // thousandths of a core
	bytes   int64 // of memory, requested
	gpus    int64
	// class of GPU work, as power profiles name it
	gpuClass string
	running  bool
	ended    bool
	start    time.Time // zero: not known
	end      time.Time // of one that ended; zero: not known
	cores    float64   // what it uses
	known    bool      // cores is what was measured
}

// workersOf returns what there is to know of pods.
func workersOf(pods []v1.Pod, view *kube.View) []worker {
	all := make([]worker, 0, len(pods))
	for i := range pods {
		p := &pods[i]
		if p.UID == "" || batch.CheckConsumer(energy.ContainerID(string(p.UID), "")) != nil {
			continue
		}
		request := policy.PodRequest(p)
		w := worker{
			uid: p.UID, pod: podName{p.Namespace, p.Name}, request: max(request.MilliCPU, 0), gpus: max(request.GPU, 0),
			bytes:   max(request.Memory, 0),
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

// look decides what each pod and the whole node use. Where metrics-server says nothing of a pod, it uses what it
// requests, as far as the node as a whole uses it; a node that was not measured uses what its pods do, and no more than
// it has.
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
	if total > s.cores { // pods and nodes are not measured at one moment
		for i := range s.workers {
			s.workers[i].cores *= s.cores / total
		}
	}
	s.used = min(total, s.cores)
	if s.measured {
		s.used = most
	}
}

// A node cannot use more than it has; what says so by more than a half is wrong.
const overcommit = 1.5

// cpuPower is what the model says that a node draws by its CPUs and its own, and whether its machine is awake.
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

// memoryPower calls each with what the memory of each pod draws: what metrics-server says that it uses, else what it
// requests. It returns what the rest of the node's memory does that is in use.
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
	for _, known := range []bool{true, false} { // requests share what is not known to be used, in any order of pods
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

// gpuPower calls each with what the GPUs of each pod that holds some draw, and returns what the others do.
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
