package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/internal/workload"
)

const day = 24 * time.Hour

// Power modes: what happens to empty machines.
const (
	StayOn     = "stay on"
	Sleep      = "sleep"
	Autoscaled = "autoscaled"
)

// Utilization contains the utilizations of instances.
var Utilization = []float64{0.15, 0.4, 0.7}

// The values of an instance are drawn from these.
var (
	fleetSizes = []int{3, 3, 3, 6, 6, 6, 12, 12, 12, 24, 24, 24, 50, 100, 300, 1000}
	powerModes = []string{Sleep, Sleep, StayOn, Autoscaled}
	delays     = []time.Duration{1, 2, 4, 6, 12, 24} // hours
)

// MinJobs is the minimum number of jobs of an instance that is worth running. Some traces have too few jobs that fit
// on small machines.
const MinJobs = 100

const (
	urgentShare = 1. / 3 // of the jobs; they must start immediately
	maxJobs     = 600    // per day
	maxScale    = 16
	maxLength   = 12 * time.Hour
	enoughJobs  = 1000
	maxDays     = 14
	tail        = 2 * day   // after the last day of jobs
	lag         = time.Hour // delay after which providers publish the intensity of an hour
)

// An Instance contains days of jobs on a fleet and a grid.
type Instance struct {
	ID     int           `json:"id"`
	Zone   string        `json:"zone"`
	Start  time.Time     `json:"start"`
	Trace  string        `json:"trace"`
	Fleet  int           `json:"fleet"`
	Mixed  bool          `json:"mixed"`
	Target float64       `json:"target"` // utilization
	Power  string        `json:"power"`
	Delay  time.Duration `json:"delay"` // allowed delay of the jobs that may wait

	// Derived from the inputs.
	Swing float64 `json:"swing"` // of the carbon intensity within 24 hours, relative to its maximum
	Use   float64 `json:"use"`   // offered work relative to the capacity over 24 hours
	Days  int     `json:"days"`  // days of jobs
	Scale int     `json:"scale"` // factor of the requests
	Jobs  int     `json:"jobs"`
	May   int     `json:"may"` // jobs that may wait

	Scenario sim.Scenario  `json:"-"`
	offset   time.Duration // of local time from UTC
	from     grid.Signal   // complete
}

// Draw returns an instance. It depends only on the sources, the seed and the number. It is not safe for concurrent
// use.
func (s *Sources) Draw(seed uint64, id int) (*Instance, error) {
	r := rand.New(rand.NewPCG(seed, uint64(id)))
	zone, trace := pick(r, s.grids), pick(r, s.traces)
	signal, err := s.grid(zone)
	if err != nil {
		return nil, err
	}
	jobs, err := s.trace(trace)
	if err != nil {
		return nil, err
	}
	in := &Instance{
		ID: id, Zone: zone.name, Trace: trace.name, Fleet: pick(r, fleetSizes), Mixed: r.IntN(2) == 0,
		Target: pick(r, Utilization), Power: pick(r, powerModes), Delay: pick(r, delays) * time.Hour,
		offset: zone.offset, from: signal,
	}
	first := signal.Series.Start().Add(forecast.MinHistory).Truncate(day).Add(day)
	starts := int(signal.Series.End().Sub(first)/day) - maxDays - 5
	if starts < 1 {
		return nil, fmt.Errorf("%s has less than %v of data", zone.path, forecast.MinHistory+(maxDays+6)*day)
	}
	in.Start = first.Add(time.Duration(r.IntN(starts)) * day)
	site := &sched.Site{Name: "site", Zone: grid.Zone(zone.name), PUE: 1.2, Carbon: signal}
	in.Scenario = sim.Scenario{Name: fmt.Sprint(id), Start: in.Start, Sites: []*sched.Site{site}}
	in.Scenario.Sleep.Policy = sleep.DefaultPolicy()
	if in.Power == Autoscaled { // the defaults of the cluster autoscaler
		in.Scenario.Sleep.Policy = sleep.Policy{After: 10 * time.Minute}
	}
	if err := in.fleet(r, site); err != nil {
		return nil, err
	}
	in.fill(r, jobs)
	if in.Days > 0 { // otherwise no job of the trace fits
		in.swing()
	}
	return in, nil
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// fleet creates the machines: of one kind, or one of the bundled kinds for each.
func (in *Instance) fleet(r *rand.Rand, site *sched.Site) error {
	nodes, err := workload.Nodes("demo24", r.Uint64(), site)
	if err != nil {
		return err
	}
	kinds := nodes
	if !in.Mixed {
		kinds = []sched.Node{pick(r, nodes)}
	}
	profiles := map[*energy.Profile]*energy.Profile{}
	for i := range in.Fleet {
		n := pick(r, kinds)
		n.Name = fmt.Sprintf("n%04d", i)
		if profiles[n.Profile] == nil {
			profiles[n.Profile] = in.profile(n.Profile)
		}
		n.Profile = profiles[n.Profile]
		in.Scenario.Nodes = append(in.Scenario.Nodes, n)
	}
	return nil
}

// profile returns the profile of a machine for the power mode.
func (in *Instance) profile(of *energy.Profile) *energy.Profile {
	p := *of
	switch in.Power {
	case StayOn:
		p.Sleep, p.WakeUp, p.BootSeconds = p.Idle, 0, 0
	case Autoscaled: // a virtual machine that is deleted draws no power
		p.Sleep, p.BootSeconds = 0, 180
	}
	return &p
}

// fill draws the jobs of several days from the trace. It keeps their order and time of day.
func (in *Instance) fill(r *rand.Rand, trace []sched.Job) {
	var largest, all sched.Resources
	for _, n := range in.Scenario.Nodes {
		largest, all = largest.Max(n.Capacity), all.Add(n.Capacity)
	}
	wanted := in.Target * float64(all.MilliCPU) * day.Seconds() // per day
	usable := slices.DeleteFunc(slices.Clone(trace), func(j sched.Job) bool {
		return j.Request.MilliCPU <= 0 || j.Request.MilliCPU > largest.MilliCPU || j.Duration > maxLength
	})
	if len(usable) == 0 {
		return
	}
	at := r.IntN(len(usable))
	next := func() sched.Job {
		j := usable[at%len(usable)]
		j.Request = sched.Resources{MilliCPU: min(j.Request.MilliCPU*int64(in.Scale), largest.MilliCPU)}
		at++
		return j
	}
	first := at
	for in.Scale = 1; in.Scale < maxScale; in.Scale++ {
		work := 0.0
		for range maxJobs {
			j := next()
			work += workOf(&j)
		}
		if at = first; work >= wanted {
			break
		}
	}
	for in.Days < maxDays && len(in.Scenario.Jobs) < enoughJobs {
		start := in.Start.Add(time.Duration(in.Days) * day)
		var jobs []sched.Job
		var work float64
		for work < wanted && len(jobs) < maxJobs {
			j := next()
			j.ID = fmt.Sprintf("%d-%04d", in.Days, len(jobs))
			j.Submitted = start.Add((j.Submitted.Sub(epoch)%day + 2*day - in.offset) % day) // traces have local times
			if j.AllowedDelay = 0; r.Float64() > urgentShare {
				j.AllowedDelay = in.Delay
			}
			work += workOf(&j)
			jobs = append(jobs, j)
		}
		slices.SortStableFunc(jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
		in.Scenario.Jobs = append(in.Scenario.Jobs, jobs...)
		in.Use += work
		in.Days++
	}
	in.Use /= float64(all.MilliCPU) * day.Seconds() * float64(in.Days)
	in.Jobs = len(in.Scenario.Jobs)
	for i := range in.Scenario.Jobs {
		if in.Scenario.Jobs[i].AllowedDelay > 0 {
			in.May++
		}
	}
}

// workOf returns the work of a job in millicore-seconds.
func workOf(j *sched.Job) float64 { return float64(j.Request.MilliCPU) * j.Duration.Seconds() }

// Until returns the end of the accounted period. It is the same for all arms.
func (in *Instance) Until() time.Time { return in.Start.Add(time.Duration(in.Days)*day + tail) }

// swing sets the range of the carbon intensity on the day of the instance.
func (in *Instance) swing() {
	part := in.from.Series.Between(in.Start, in.Start.Add(time.Duration(in.Days)*day))
	values := part.Values(0, part.Len())
	for of := range slices.Chunk(values, 24) {
		if most := slices.Max(of); most > 0 {
			in.Swing += (1 - slices.Min(of)/most) / float64(in.Days)
		}
	}
}

// Knowledge of the strategies.
const (
	Perfect   = "perfect"   // the true intensities and run times
	Installed = "installed" // as in a cluster with default settings: the forecast "best", and an hour for each job
)

// Limit sets the minimum savings of the chart, and removes the information from the scenario that is not available.
func (in *Instance) Limit(ctx context.Context, knowledge string) error {
	settings := policy.BuiltIn()
	in.Scenario.Policy.MinSaving, in.Scenario.Policy.MinSavingPerHour = settings.MinSaving, settings.MinSavingPerHour
	switch knowledge {
	case Perfect:
		return nil
	case Installed:
	default:
		return fmt.Errorf("knowledge is %q: want %s or %s", knowledge, Perfect, Installed)
	}
	in.Scenario.Learner = func() predict.Learner { return anHour{predict.NewMean()} }
	until := timeutil.Earlier(in.Until().Add(4*day), in.from.Series.End())
	since := timeutil.Later(in.from.Series.Start(), in.Start.Add(-180*day))
	issued, err := forecast.Issue(ctx, forecast.Issuance{
		History: in.from.Series.Between(since, in.from.Series.End()), Model: forecast.Chosen, From: in.Start,
		Until: until, Lag: lag, Refit: -1, Seed: 1,
	})
	in.Scenario.Foresight = []sim.Foresight{issued}
	return err
}

// anHour is the default of the annotation kubenergy.io/expected-duration.
type anHour struct{ predict.Learner }

// Expect implements [predict.Learner].
func (anHour) Expect(j *sched.Job) { j.Duration, j.Runtimes = time.Hour, nil }

// AtNight returns the jobs with a later submission: the next 22:00 local time if the allowed delay includes it, for
// jobs that are submitted between 06:00 and 22:00.
func (in *Instance) AtNight() []sched.Job {
	jobs := slices.Clone(in.Scenario.Jobs)
	for i := range jobs {
		j := &jobs[i]
		local := j.Submitted.Add(in.offset)
		night := local.Truncate(day).Add(22 * time.Hour)
		if wait := night.Sub(local); wait > 0 && wait <= min(16*time.Hour, j.AllowedDelay) {
			j.Submitted, j.AllowedDelay = j.Submitted.Add(wait), j.AllowedDelay-wait
		}
	}
	return jobs
}
