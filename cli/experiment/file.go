// Package experiment compares schedulers in a living cluster: contestants take turns under the same load and the same
// disturbances, and what they needed and how well they served is measured.
package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/workload"
)

// File is an experiment as people write it.
type File struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Contestants []Contestant    `json:"contestants"`
	Baseline    string          `json:"baseline,omitempty"` // default: the first contestant
	Nodes       []Nodes         `json:"nodes,omitempty"`    // of the lab, all simulated
	Objects     string          `json:"objects,omitempty"`  // file of manifests for the lab, before all else
	Load        []Load          `json:"load"`
	Kill        *Disturbance    `json:"kill,omitempty"`
	Scale       *Disturbance    `json:"scale,omitempty"`
	WarmUp      metav1.Duration `json:"warmUp,omitzero"` // before each arm is measured
	Duration    metav1.Duration `json:"duration"`        // of each arm's measurement
	Rounds      int             `json:"rounds,omitempty"`
	Seed        uint64          `json:"seed,omitempty"`
	Image       string          `json:"image,omitempty"` // of the kubenergy program, outside the lab
	// Monitor writes what simulated nodes draw, by the model, where the hybrid scheduler's monitor writes it.
	Monitor bool `json:"monitor,omitempty"`

	path string
}

// Contestant is a scheduler: ours with a strategy, a program of this machine, or one that runs already. One of which
// nothing is said is stock: in the lab kube-scheduler's own profile, elsewhere the cluster's own scheduler.
type Contestant struct {
	Name          string   `json:"name"`
	Strategy      string   `json:"strategy,omitempty"`
	Binary        string   `json:"binary,omitempty"`
	Args          []string `json:"args,omitempty"`          // of a binary; $(KUBECONFIG) is a kubeconfig
	SchedulerName string   `json:"schedulerName,omitempty"` // that pods ask for
}

// Amounts of nodes or of a pod's requests.
type Amounts struct {
	CPU    resource.Quantity `json:"cpu,omitzero"`
	Memory resource.Quantity `json:"memory,omitzero"`
}

// Nodes are equal simulated nodes. Of the labels kubenergy.io/power-profile says what they draw.
type Nodes struct {
	Name  string `json:"name"`
	Count int    `json:"count,omitempty"`
	Amounts
	Labels map[string]string `json:"labels,omitempty"`
}

// Load is pods that the contestants schedule: services, which have replicas; stress, which has a utilisation; Jobs,
// which run for some time; or those of a trace.
type Load struct {
	Name  string `json:"name"`
	Count int    `json:"count,omitempty"` // of services, of stress's pods, of Jobs
	Amounts
	Replicas    int32           `json:"replicas,omitempty"`
	PerSecond   float64         `json:"requestsPerSecond,omitempty"` // to all of them together
	Work        metav1.Duration `json:"work,omitzero"`               // CPU time of a request, about
	Utilisation float64         `json:"utilisation,omitempty"`       // of the requested CPU
	Run         metav1.Duration `json:"run,omitzero"`                // on the fastest node, by its class
	Every       metav1.Duration `json:"every,omitzero"`
	After       string          `json:"after,omitempty"` // other Jobs: each begins when its own of them has ended
	Class       string          `json:"class,omitempty"` // of work
	Image       string          `json:"image,omitempty"` // of Jobs, outside the lab; default: kubenergy stress
	Args        []string        `json:"args,omitempty"`
	Trace       string          `json:"trace,omitempty"` // file; count is of jobs, evenly spaced
	Format      string          `json:"format,omitempty"`

	trace []sched.Job
}

// Disturbance happens every so often: ready pods are killed, or all services get their next number of replicas.
type Disturbance struct {
	Pods     int             `json:"pods,omitempty"`
	Replicas []int32         `json:"replicas,omitempty"`
	Every    metav1.Duration `json:"every"`
}

// Read reads an experiment file strictly. All its times are made so many times shorter; rates of requests stay.
func Read(path string, faster float64) (*File, error) {
	f := &File{path: path}
	if err := sim.ReadDocument(path, "Experiment", f); err != nil {
		return nil, err
	}
	f.Rounds = cmp.Or(f.Rounds, report.LeastRounds)
	times := []*metav1.Duration{&f.Duration, &f.WarmUp}
	for i := range f.Load {
		times = append(times, &f.Load[i].Run, &f.Load[i].Every)
	}
	for _, d := range []*Disturbance{f.Kill, f.Scale} {
		if d != nil {
			times = append(times, &d.Every)
		}
	}
	for _, d := range times {
		d.Duration = time.Duration(float64(d.Duration) / faster)
	}
	err := cmp.Or(f.checkContestants(), f.check())
	for i := range f.Load {
		err = cmp.Or(err, f.Load[i].check(f, i, faster))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,28}[a-z0-9])?$`)

func (f *File) checkContestants() error {
	for i := range f.Contestants {
		c := &f.Contestants[i]
		switch {
		case !nameForm.MatchString(c.Name) || slices.Contains(f.Names()[:i], c.Name):
			return fmt.Errorf("contestants: the name %q comes twice, or is none: want letters, digits and -", c.Name)
		case c.Strategy != "" && c.Binary != "":
			return fmt.Errorf("contestants: %s: want a strategy or a binary", c.Name)
		case c.Binary != "" && c.SchedulerName == "":
			return fmt.Errorf("contestants: %s: schedulerName is missing: which pods does it schedule?", c.Name)
		}
		if _, err := sched.New(cmp.Or(c.Strategy, "energy")); err != nil {
			return fmt.Errorf("contestants: %s: %w", c.Name, err)
		}
	}
	if len(f.Contestants) < 2 {
		return errors.New("contestants: want two or more")
	}
	if len(f.Load) == 0 {
		return errors.New("load is missing: want services, stress, Jobs or a trace")
	}
	f.Baseline = cmp.Or(f.Baseline, f.Contestants[0].Name)
	if !slices.Contains(f.Names(), f.Baseline) {
		return fmt.Errorf("baseline: there is no contestant %q%s", f.Baseline, sched.DidYouMean(f.Baseline, f.Names()))
	}
	return nil
}

func (f *File) check() error {
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Count = max(n.Count, 1)
		if !nameForm.MatchString(n.Name) || n.CPU.Sign() <= 0 || n.Memory.Sign() <= 0 {
			return fmt.Errorf("nodes: %q: want a name of letters, digits and -, cpu and memory", n.Name)
		}
	}
	switch k, s := f.Kill, f.Scale; {
	case f.Duration.Duration < time.Second || f.WarmUp.Duration < 0 || f.Rounds < 1:
		return errors.New("want a duration of a second or more, rounds, 1 or more, and warmUp, 0s or more")
	case k != nil && (k.Pods < 1 || k.Every.Duration <= 0):
		return errors.New("kill: want pods, 1 or more, and every, more than 0s")
	case s != nil && (len(s.Replicas) == 0 || slices.Min(s.Replicas) < 0 || s.Every.Duration <= 0):
		return errors.New("scale: want replicas, 0 or more each, and every, more than 0s")
	}
	return nil
}

// check finds what is wrong with an entry, and reads its trace.
func (l *Load) check(f *File, i int, faster float64) (err error) {
	kinds := 0
	for _, is := range []bool{l.Replicas > 0, l.Utilisation > 0, l.Run.Duration > 0, l.Trace != ""} {
		if is {
			kinds++
		}
	}
	named := func(name string) func(Load) bool { return func(o Load) bool { return o.Name == name } }
	switch {
	case !nameForm.MatchString(l.Name) || slices.ContainsFunc(f.Load[:i], named(l.Name)):
		return fmt.Errorf("load: the name %q comes twice, or is none: want letters, digits and -", l.Name)
	case kinds != 1:
		return fmt.Errorf("load: %s: want one of replicas, utilisation, run and trace", l.Name)
	case l.Trace == "" && l.CPU.Sign() <= 0 || !(l.PerSecond >= 0) || l.Work.Duration < 0:
		return fmt.Errorf("load: %s: want cpu, as 250m, and requestsPerSecond and work, 0 or more", l.Name)
	case l.After != "" && !slices.ContainsFunc(f.Load[:i], named(l.After)):
		return fmt.Errorf("load: %s: there is nothing called %q before it", l.Name, l.After)
	}
	if l.Memory.IsZero() {
		l.Memory = resource.MustParse("64Mi")
	}
	if l.Trace != "" {
		l.trace, err = l.read(f, faster)
	}
	l.Count = max(l.Count, 1)
	return err
}

// read returns the jobs of the trace that come within an arm.
func (l *Load) read(f *File, faster float64) (jobs []sched.Job, err error) {
	trace, err := workload.Load(f.beside(l.Trace), l.Format, time.Unix(0, 0).UTC())
	if err != nil {
		return nil, err
	}
	for i := range trace.Jobs {
		j, first := &trace.Jobs[i], trace.Jobs[0].Submitted
		j.Duration = time.Duration(float64(j.Duration) / faster)
		if float64(j.Submitted.Sub(first))/faster < float64(f.Duration.Duration) {
			jobs = append(jobs, *j)
		}
	}
	if n := len(jobs); l.Count > 0 && l.Count < n {
		for i := range l.Count {
			jobs[i] = jobs[i*n/l.Count]
		}
		jobs = jobs[:l.Count]
	}
	for i := range slices.Backward(jobs) {
		jobs[i].Submitted = time.Unix(0, int64(float64(jobs[i].Submitted.Sub(jobs[0].Submitted))/faster))
	}
	return jobs, nil
}

// beside returns a file that the experiment names.
func (f *File) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(f.path), name)
}

// Names returns the contestants' names.
func (f *File) Names() (names []string) {
	for i := range f.Contestants {
		names = append(names, f.Contestants[i].Name)
	}
	return names
}

// order is whose turn it is, by their numbers: in each round all contestants, as the seed shuffles them.
func (f *File) order() (arms []int) {
	r := rand.New(rand.NewPCG(f.Seed, 0))
	for range f.Rounds {
		arms = append(arms, r.Perm(len(f.Contestants))...)
	}
	return arms
}

// Takes is about how long the experiment takes.
func (f *File) Takes() time.Duration {
	const around = 20 * time.Second // of each arm
	return time.Minute + time.Duration(f.Rounds*len(f.Contestants))*(f.Duration.Duration+f.WarmUp.Duration+around)
}
