// Package experiment compares schedulers in a live cluster. Contestants take turns with the same load and the same
// disturbances, and their consumption and performance are measured.
package experiment

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// File is an experiment file.
type File struct {
	APIVersion  string          `json:"apiVersion"`
	Kind        string          `json:"kind"`
	Name        string          `json:"name"`
	Contestants []Contestant    `json:"contestants"`       // the first one is the baseline
	Nodes       []Nodes         `json:"nodes,omitempty"`   // simulated nodes of the lab
	Objects     string          `json:"objects,omitempty"` // file of manifests to apply in the lab first
	Load        []Load          `json:"load"`
	Kill        Disturbance     `json:"kill,omitzero"`
	Scale       Disturbance     `json:"scale,omitzero"`
	WarmUp      metav1.Duration `json:"warmUp,omitzero"` // before the measurement of each arm
	Duration    metav1.Duration `json:"duration"`        // of the measurement of each arm
	Rounds      int             `json:"rounds,omitempty"`
	Seed        uint64          `json:"seed,omitempty"`
	Image       string          `json:"image,omitempty"` // image of the kubenergy program, outside the lab
	// Monitor writes the modelled power of simulated nodes to the annotations that the monitor of the hybrid
	// scheduler uses.
	Monitor bool `json:"monitor,omitempty"`

	path, target string
	names        []string // names in use
	err          error    // validation errors
}

// Contestant is a scheduler: kubenergy-scheduler with a strategy, a program on this machine, an image to run in the
// cluster, or a scheduler that is already running. Without any of these, it is the default profile of
// kube-scheduler in the lab, and the default scheduler of a cluster.
type Contestant struct {
	Name          string   `json:"name"`
	Strategy      string   `json:"strategy,omitempty"`
	Binary        string   `json:"binary,omitempty"`
	Image         string   `json:"image,omitempty"`         // for clusters; kubenergy-scheduler if with a strategy
	Args          []string `json:"args,omitempty"`          // $(KUBECONFIG) is replaced for binaries
	SchedulerName string   `json:"schedulerName,omitempty"` // in the spec of its pods
}

// Nodes is a group of equal simulated nodes. The label kubenergy.io/power-profile selects their power profile.
type Nodes struct {
	Name   string            `json:"name"`
	Count  int               `json:"count,omitempty"`
	CPU    resource.Quantity `json:"cpu"`
	Memory resource.Quantity `json:"memory"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Load is a group of pods that contestants schedule: services with replicas, stress with a utilisation, Jobs with a
// run time, or the jobs of a trace.
type Load struct {
	Name        string            `json:"name"`
	Count       int               `json:"count,omitempty"` // number of services, of stress pods, or of Jobs
	CPU         resource.Quantity `json:"cpu,omitzero"`    // requested by each pod
	Memory      resource.Quantity `json:"memory,omitzero"`
	Replicas    int32             `json:"replicas,omitempty"`
	PerSecond   float64           `json:"requestsPerSecond,omitempty"` // total of all services
	Work        metav1.Duration   `json:"work,omitzero"`               // approximate CPU time of a request
	Utilisation float64           `json:"utilisation,omitempty"`       // of the requested CPU
	Run         metav1.Duration   `json:"run,omitzero"`                // on the fastest node for its class
	Every       metav1.Duration   `json:"every,omitzero"`
	After       string            `json:"after,omitempty"` // other Jobs; each starts after the one with its index
	Class       string            `json:"class,omitempty"` // workload class
	Image       string            `json:"image,omitempty"` // of Jobs, outside the lab; kubenergy stress by default
	Args        []string          `json:"args,omitempty"`
	Trace       string            `json:"trace,omitempty"` // file; jobs after the end of an arm are ignored
	Format      string            `json:"format,omitempty"`

	jobs []sched.Job // submission times are relative to the Unix epoch
}

// Disturbance is a periodic event. It kills ready pods, or scales all services to the next number of replicas.
type Disturbance struct {
	Pods     int             `json:"pods,omitempty"`
	Replicas []int32         `json:"replicas,omitempty"`
	Every    metav1.Duration `json:"every,omitzero"`
}

// Read reads an experiment file and rejects unknown fields. It divides all times by faster, but not the rates of
// requests.
func Read(path, target string, faster float64) (*File, error) {
	f := &File{target: target, Rounds: report.MinRounds}
	if err := document.Read(path, "Experiment", f); err != nil {
		return nil, err
	}
	f.path, _ = filepath.Abs(path)
	times := []*metav1.Duration{&f.Duration, &f.WarmUp, &f.Kill.Every, &f.Scale.Every}
	for i := range f.Load {
		times = append(times, &f.Load[i].Run, &f.Load[i].Every)
	}
	for _, d := range times {
		d.Duration = time.Duration(float64(d.Duration) / faster)
	}
	f.check()
	f.checkTarget()
	for i := range f.Contestants {
		f.checkContestant(&f.Contestants[i])
	}
	for i := range f.Load {
		f.checkLoad(&f.Load[i], f.Load[:i])
		err := f.Load[i].plan(f, faster)
		f.refuse(err != nil, "%w", err)
	}
	if f.err != nil {
		return nil, fmt.Errorf("%s: %w", path, f.err)
	}
	return f, nil
}

// refuse adds a validation error if wrong is true.
func (f *File) refuse(wrong bool, format string, args ...any) {
	err := fmt.Errorf(format, args...)
	switch {
	case wrong && f.err == nil:
		f.err = err
	case wrong:
		f.err = fmt.Errorf("%w; %w", f.err, err)
	}
}

var nameForm = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$`)

// checkName rejects invalid and duplicate names.
func (f *File) checkName(of, name string) {
	f.refuse(!nameForm.MatchString(name) || slices.Contains(f.names, of+name),
		"%s: name %q is invalid or duplicate: want at most 30 lower-case letters, digits and -, with a letter first "+
			"and no - at the end", of, name)
	f.names = append(f.names, of+name)
}

func (f *File) check() {
	f.refuse(len(f.Contestants) < 2, "contestants: want two or more")
	f.refuse(len(f.Load) == 0, "load is missing: want services, stress, Jobs or a trace")
	f.refuse(f.Duration.Duration < time.Second, "want a duration of at least 1s after applying --faster")
	f.refuse(f.WarmUp.Duration < 0 || f.Rounds < 1, "want rounds of 1 or more, and warmUp of 0s or more")
	k, s := &f.Kill, &f.Scale
	f.refuse(k.Pods < 0 || k.Every.Duration < 0 || (k.Pods > 0) != (k.Every.Duration > 0),
		"kill: want pods of 1 or more, and every of more than 0s")
	f.refuse(s.Every.Duration < 0 || (len(s.Replicas) > 0) != (s.Every.Duration > 0) ||
		slices.ContainsFunc(s.Replicas, func(n int32) bool { return n < 0 }),
		"scale: want replicas of 0 or more each, and every of more than 0s")
	for i := range f.Nodes {
		n := &f.Nodes[i]
		n.Count = max(n.Count, 1)
		f.checkName("nodes", n.Name)
		f.refuse(n.CPU.Sign() <= 0 || n.Memory.Sign() <= 0, "nodes: %s: want cpu and memory, as 4 and 16Gi", n.Name)
	}
}

// checkTarget rejects fields that the target would ignore, because the experiment would be a different one.
func (f *File) checkTarget() {
	if f.target == TargetCluster {
		f.refuse(f.Image == "", "image is missing: want an image of the kubenergy program for the cluster")
		f.refuse(len(f.Nodes) > 0 || f.Objects != "" || f.Monitor,
			"nodes, objects and monitor only apply to the lab: remove them, or omit --target cluster")
		return
	}
	f.refuse(f.target == TargetLab && len(f.Nodes) == 0, "nodes are missing: want nodes to simulate in the lab")
	f.refuse(f.Image != "", "image: the lab does not run images: remove it, or set --target cluster")
	if f.Objects != "" {
		_, err := os.Stat(f.beside(f.Objects))
		f.refuse(err != nil, "objects: %w", err)
	}
}

func (f *File) checkContestant(c *Contestant) {
	f.checkName("contestants", c.Name)
	where, _, waits := strings.Cut(c.Strategy, "+")
	f.refuse(waits, "contestants: %s: want strategy %q without +, as start rules are not compared", c.Name, where)
	_, err := strategy.New(cmp.Or(where, "energy"))
	f.refuse(err != nil, "contestants: %s: %w", c.Name, err)
	theirs := c.Strategy == "" && c.Binary+c.Image != ""
	f.refuse(c.Binary != "" && c.Strategy+c.Image != "", "contestants: %s: a binary excludes a strategy or image",
		c.Name)
	f.refuse(c.Image != "" && f.target == TargetLab,
		"contestants: %s: image: the lab does not run images: set binary, or --target cluster", c.Name)
	f.refuse(theirs && c.SchedulerName == "",
		"contestants: %s: schedulerName is missing: want the schedulerName of its pods", c.Name)
	f.refuse(!theirs && len(c.Args) > 0, "contestants: %s: args require a binary, or an image without a strategy",
		c.Name)
	f.refuse(c.SchedulerName != "" && c.Strategy != "", "contestants: %s: a strategy excludes schedulerName", c.Name)
	f.refuse(c.SchedulerName != "" && c.Strategy == "" && !theirs && f.target == TargetLab,
		"contestants: %s: a schedulerName without binary or image requires --target cluster", c.Name)
	if c.Binary != "" {
		_, err := exec.LookPath(f.beside(c.Binary))
		f.refuse(err != nil, "contestants: %s: binary: %w", c.Name, err)
	}
}

// checkLoad validates an entry. before contains the preceding entries.
func (f *File) checkLoad(l *Load, before []Load) {
	kinds := 0
	for _, ok := range []bool{l.Replicas > 0, l.Utilisation > 0, l.Run.Duration > 0, l.Trace != ""} {
		if ok {
			kinds++
		}
	}
	l.Count = max(l.Count, 1)
	f.checkName("load", l.Name)
	f.refuse(l.Name == probe, "load: the name %s is reserved for a pod that starts each arm", probe)
	f.refuse(kinds != 1, "load: %s: want one of replicas, utilisation, run and trace", l.Name)
	f.refuse(l.Trace == "" && l.CPU.Sign() <= 0, "load: %s: want cpu, for example 250m", l.Name)
	f.refuse(l.PerSecond < 0 || l.Work.Duration < 0 || l.PerSecond > 0 && l.Replicas == 0 || l.Utilisation > 1,
		"load: %s: want requestsPerSecond (of services) and work of 0 or more, and a utilisation of at most 1", l.Name)
	f.refuse(l.Run.Duration <= 0 && (l.Every.Duration != 0 || l.Class+l.After+l.Image != ""),
		"load: %s: every, class, after and image only apply to Jobs, which require run", l.Name)
	f.refuse(l.Image != "" && f.target == TargetLab,
		"load: %s: image: the lab does not run images: remove it, or set --target cluster", l.Name)
	f.refuse(l.Image == "" && len(l.Args) > 0, "load: %s: args require an image", l.Name)
	f.refuse(l.After != "" && !slices.ContainsFunc(before, func(o Load) bool {
		return o.Name == l.After && l.Run.Duration > 0 && len(o.jobs) >= l.Count
	}), "load: %s: want at least as many Jobs in the preceding entry %q", l.Name, l.After)
}

// plan computes the submission times of Jobs. It omits jobs of a trace after the end of an arm.
func (l *Load) plan(f *File, faster float64) error {
	if l.Memory.IsZero() {
		l.Memory = resource.MustParse("64Mi")
	}
	for i := 0; l.Run.Duration > 0 && i < l.Count; i++ {
		l.jobs = append(l.jobs, sched.Job{
			Submitted: time.Unix(0, int64(i)*int64(l.Every.Duration)), Duration: l.Run.Duration,
			Request: sched.Resources{MilliCPU: l.CPU.MilliValue(), Memory: l.Memory.Value()}, Class: l.Class,
		})
	}
	if l.Trace == "" {
		return nil
	}
	trace, err := workload.Load(f.beside(l.Trace), l.Format, time.Unix(0, 0).UTC())
	if err != nil {
		return err
	}
	sooner := func(d time.Duration) time.Duration { return time.Duration(float64(d) / faster) }
	began := trace.Jobs[0].Submitted
	for _, j := range trace.Jobs {
		j.Duration, j.Submitted = sooner(j.Duration), time.Unix(0, int64(sooner(j.Submitted.Sub(began))))
		if j.Submitted.Before(time.Unix(0, int64(f.Duration.Duration))) {
			l.jobs = append(l.jobs, j)
		}
	}
	return nil
}

// beside resolves a file name relative to the experiment file.
func (f *File) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(f.path), name)
}

// Allow returns an error if a contestant is a program or image that is not in allowed. The file may come from an
// untrusted source, and its programs run with the permissions of the user or of a cluster administrator.
func (f *File) Allow(allowed []string) error {
	for _, c := range f.Contestants {
		if name := c.Binary + c.Image; name != "" && !slices.Contains(allowed, name) {
			return fmt.Errorf("%s: contestants: %s: it would run %q with your permissions: if you trust it, set "+
				"--allow-program=%s", f.path, c.Name, name, name)
		}
	}
	return nil
}

// Programs returns an error if a required program of KubEnergy is missing.
func (f *File) Programs() (err error) {
	if f.target == TargetLab {
		_, err = program("kubenergy-lab")
	}
	for _, c := range f.Contestants {
		if err == nil && c.Binary+c.Image == "" && (c.Strategy != "" || f.target == TargetLab) {
			_, err = program("kubenergy-scheduler")
		}
	}
	return err
}

// Names returns the names of the contestants.
func (f *File) Names() []string {
	return sliceutil.Map(f.Contestants, func(c Contestant) string { return c.Name })
}

// order returns the contestant of each arm. Each round contains all contestants in an order that depends on the
// seed.
func (f *File) order() (turns []*Contestant) {
	r := rand.New(rand.NewPCG(f.Seed, 0))
	for range f.Rounds {
		for _, k := range r.Perm(len(f.Contestants)) {
			turns = append(turns, &f.Contestants[k])
		}
	}
	return turns
}

// Takes returns the approximate duration of the experiment.
func (f *File) Takes() time.Duration {
	const around = 20 * time.Second // overhead of each arm
	return time.Minute + time.Duration(f.Rounds*len(f.Contestants))*(f.Duration.Duration+f.WarmUp.Duration+around)
}
