package slurm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Options are the dependencies and settings of a [Driver].
type Options struct {
	Client *Client
	// Rules returns the effective policies by account, with the current signals. It returns false if they are not
	// available yet.
	Rules func() (*policy.Rules, bool)
	// Record is called for each decision with the input of the decision.
	Record func(ledger.Record, *sched.Snapshot)
	// Show is called after each pass with all jobs that wait for a BeginTime set by the driver, and with all jobs that
	// are not delayed because of the mode shadow or advise.
	Show func([]Held)
	// Seen is called in each pass with all nodes and jobs. It may be nil. Its errors are logged.
	Seen func(context.Context, []Node, []Job) error
	// RunNow reports whether a user has requested to start a job immediately.
	RunNow func(account, name string) bool

	Power      PowerOptions
	State      string        // state file with the BeginTimes set by the driver
	Every      time.Duration // interval between two passes
	Conf       string        // path of slurm.conf, to check whether waiting jobs age; empty disables the check
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Driver sets BeginTimes of jobs. It must be created with [New].
type Driver struct {
	o        Options
	memory   *memory
	accounts accounts
	metrics  *metrics
	reported map[string]string // last logged errors by subject
	sleepers map[string]*sleeper
	room     room
	beside   time.Duration // duration of Seen in the last pass
	answered bool          // Slurm has responded at least once
}

// New returns a driver. It reads the state file but does not connect to Slurm.
func New(o Options) *Driver {
	m, err := openMemory(o.State, o.Now())
	metrics := newMetrics(o.Registerer)
	if err != nil {
		metrics.fails.WithLabelValues(NoState).Inc()
		o.Log.Error("Failed to read the state file; BeginTimes of existing jobs will not be changed", "err", err)
	}
	return &Driver{
		o: o, memory: m, metrics: metrics, reported: map[string]string{}, sleepers: map[string]*sleeper{},
		room: m.room(),
		accounts: accounts{
			of: map[string]charged{}, vain: map[string]time.Time{},
			next: make(chan struct{}), asked: make(chan struct{}, 1), timeout: 5 * time.Second,
		},
	}
}

// settling is the maximum time to wait for policies after the start.
const settling = 10 * time.Second

// Run calls Look periodically until ctx is done. BeginTimes that have been set remain in effect.
func (d *Driver) Run(ctx context.Context) error {
	const (
		share = 9 // passes use at most a tenth of the time, to limit the load of slurmctld
		pause = 100 * time.Millisecond
	)
	for range settling / pause {
		if _, settled := d.o.Rules(); settled || ctx.Err() != nil {
			break
		}
		time.Sleep(pause)
	}
	for {
		began := time.Now()
		d.notify("slurm.conf", checkConf(d.o.Conf))
		d.notify("address of slurmrestd", d.o.Client.checkURL())
		daemon.Round(ctx, func() { d.notify("slurmrestd", d.Look(ctx)) })
		pause := share * (time.Since(began) - d.beside)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.accounts.asked:
		case <-time.After(d.o.Every - pause):
		}
	}
}

// notify logs an error when it occurs or changes, and once when it is resolved.
func (d *Driver) notify(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case d.reported[about] == text:
		return
	case err != nil:
		d.o.Log.Warn("Problem detected", "about", about, "error", err)
	default:
		d.o.Log.Info("Problem resolved", "about", about)
	}
	d.reported[about] = text
}

// Look performs a pass: it reads jobs and nodes from Slurm, makes decisions and sets BeginTimes. If it returns an
// error, some or all changes are missing.
func (d *Driver) Look(ctx context.Context) (err error) {
	defer func() { d.metrics.looked(err, d.o.Client.Version()) }()
	d.beside = 0
	l, err := d.see(ctx)
	if err != nil {
		return err
	}
	if !d.answered {
		d.answered = true
		d.o.Log.Info("Connected to Slurm", "version", d.o.Client.Version(), "nodes", len(l.nodes), "jobs", len(l.jobs))
	}
	d.memory.keepQueues(d.room)
	l.shadow()
	for _, j := range l.waiting {
		e := d.memory.entry(j)
		l.states[l.decide(j, e)]++
	}
	if err := d.memory.write(); err != nil {
		return err
	}
	failed := l.notifySlurm(ctx)
	d.forget(l.waiting)
	d.metrics.show(l.states)
	d.o.Show(l.held)
	d.notify("nodes that may sleep", d.power(ctx, l.nodes, l.jobs))
	if began := time.Now(); d.o.Seen != nil {
		err := d.o.Seen(ctx, l.nodes, l.jobs)
		d.notify("jobs of POST /ingest", err)
		if isKind(err, NoState) {
			d.metrics.fails.WithLabelValues(NoState).Inc()
		}
		d.beside = time.Since(began)
	}
	return errors.Join(failed, d.memory.write())
}

// look contains the data of a pass.
type look struct {
	*Driver
	rules   *policy.Rules
	now     time.Time
	nodes   []Node
	jobs    []Job
	waiting []*Job // jobs with annotations or a BeginTime of the driver, oldest first
	calls   []call
	held    []Held
	states  map[string]int
}

// call is a change of a BeginTime. done is called after Slurm has accepted it.
type call struct {
	job   *Job
	begin time.Time
	why   string
	done  func()
}

// see reads the jobs, nodes and rules for a pass.
func (d *Driver) see(ctx context.Context) (*look, error) {
	jobs, err := d.o.Client.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	d.accounts.saw(jobs, d.o.Now())
	rules, settled := d.o.Rules()
	if !settled {
		return nil, newFault("rules", "policies are not available yet: jobs are not delayed")
	}
	nodes, err := d.o.Client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	l := &look{
		Driver: d, rules: rules, now: d.o.Now().UTC(), states: map[string]int{}, nodes: nodes, jobs: jobs,
	}
	d.room.see(nodes, jobs, l.now, l.asks)
	slices.SortFunc(jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), cmp.Compare(a.ID, b.ID))
	})
	for i := range jobs {
		j := &jobs[i]
		e := d.memory.entry(j)
		if !j.State.has("PENDING") || marksOf(j.Comment) == nil && e.Ours == 0 {
			continue
		}
		l.waiting = append(l.waiting, j)
		if begin := j.Eligible.time(); e.Final == "" && e.Ours != 0 && begin.After(l.now) {
			job, _, _ := l.question(j)
			l.room.occupy(j, begin, begin.Add(job.Duration))
		}
	}
	return l, nil
}

// changing is the maximum duration of setting BeginTimes in a pass. The next pass decides again about the remaining
// jobs.
const changing = 15 * time.Second

// notifySlurm sets the BeginTimes of this pass, which have already been written to the state file. Releases come
// first. It stops after the first timeout, because further changes would probably time out too. It returns the last
// error.
func (l *look) notifySlurm(ctx context.Context) error {
	slices.SortStableFunc(l.calls, func(a, b call) int {
		return cmp.Compare(max(a.begin.Compare(l.now), 0), max(b.begin.Compare(l.now), 0))
	})
	var failed []string
	var last error
	began := time.Now()
	for i, c := range l.calls {
		if time.Since(began) > changing || Unreachable(last) {
			l.o.Log.Info("Postponed BeginTimes to the next pass", "count", len(l.calls)-i)
			break
		}
		if err := l.o.Client.SetBegin(ctx, int64(c.job.ID), c.begin); err != nil {
			failed, last = append(failed, c.job.name()), err
			continue
		}
		c.job.Eligible = number(c.begin.Unix())
		l.metrics.begins.Inc()
		l.o.Log.Info("Set BeginTime", "job", c.job.name(), "account", c.job.Account, "begin", c.begin, "why", c.why)
		c.done()
	}
	if last == nil {
		return nil
	}
	return fmt.Errorf("setting the BeginTime of %.300s: %w", strings.Join(failed, ", "), last)
}

// forget removes the state of jobs that are no longer waiting.
func (d *Driver) forget(waiting []*Job) {
	waits, names := map[int64]bool{}, map[string]bool{}
	for _, j := range waiting {
		waits[int64(j.ID)], names[j.name()] = true, true
	}
	maps.DeleteFunc(d.reported, func(about, _ string) bool {
		return strings.HasPrefix(about, "slurm-") && !names[about]
	})
	d.memory.forget(waits)
}

// name returns the name of the job as an owner in the ledger.
func (j *Job) name() string { return "slurm-" + strconv.FormatInt(int64(j.ID), 10) }

// work parses the annotations of a job.
func (j *Job) work() (policy.Work, error) {
	namespace := namespaceOf(j.Account)
	return policy.ReadBatch(policy.Work{
		Namespace: namespace, Name: j.name(), Submitted: j.Submit.time(), Scheduler: policy.Slurm,
		Owners: policy.Owners{Owner: "Job/" + j.name(), Team: j.User},
	}, j.request(), marksOf(j.Comment))
}

func (j *Job) request() sched.Resources {
	return sched.Resources{
		MilliCPU: milli * j.atOnce(), Memory: tres(j.Tres, "mem"), GPU: tres(j.Tres, gpus),
	}
}

// question returns the input for a decision about a job and its effective settings. The duration is limited by the
// time limit of the job. If the job has a --deadline, it must start early enough for its time limit or, without
// one, for its expected duration. As Slurm cancels jobs that cannot finish by their deadline, some spare time is
// added.
func (l *look) question(j *Job) (sched.Job, policy.Settings, error) {
	const spare = 5 * time.Minute
	work, err := j.work()
	job, s := l.rules.Settle(&work)
	limit := time.Duration(j.TimeLimit) * time.Minute
	if limit > 0 {
		job.Duration = min(job.Duration, limit)
	}
	if by := j.Deadline.time(); !by.IsZero() {
		job.AllowedDelay = max(0, min(job.AllowedDelay, by.Add(-cmp.Or(limit, job.Duration)-spare).Sub(job.Submitted)))
	}
	job.Released = job.Released || l.o.RunNow(work.Namespace, work.Name)
	return job, s, err
}

// asks reports whether a job may be delayed.
func (l *look) asks(j *Job) bool {
	if marksOf(j.Comment) == nil {
		return false
	}
	job, _, err := l.question(j)
	return err == nil && job.AllowedDelay > 0 && !job.Released
}

// States of a job, which are label values in the metrics.
const (
	isHeld     = "held"
	isReleased = "released"
	isTheirs   = "theirs"    // changed by its user or an administrator
	isOff      = "not-acted" // the mode is not enforce
	isWrong    = "malformed"
	isEligible = "eligible"
)

// decide makes a decision about a waiting job and returns the state of the job.
func (l *look) decide(j *Job, e *entry) (state string) {
	if e.Final != "" {
		return e.Final
	}
	if why := l.untouched(j, e); why != "" {
		if why == isTheirs || why == isReleased {
			l.finish(j, e, why, "")
		}
		return why
	}
	job, s, err := l.question(j)
	l.notify(j.name(), err)
	switch {
	case err != nil || marksOf(j.Comment) == nil:
		return l.let(j, e, isWrong, "its comment does not allow a delay")
	case s.Mode != v1alpha1.ModeEnforce || !s.Ours:
		return l.let(j, e, isOff, "the mode of the namespace is "+string(s.Mode))
	}
	return l.plan(j, e, job, s)
}

// plan determines the start of a job that may be delayed.
func (l *look) plan(j *Job, e *entry, job sched.Job, s policy.Settings) (state string) {
	job.Openings = l.room.of(j.partition()).Openings(int64(j.ID), &job, l.now)
	q, d := l.rules.Question(l.now, job, s), l.rules.Decide(l.now, job, s)
	ours, _ := e.whose(j)
	stands := ours && !job.Released && !j.Eligible.time().After(job.LatestStart())
	switch {
	case d.Held(l.now):
		if !stands || !l.steady(j, e, q, &d, &s) {
			l.give(j, e, q, &d, &s)
		}
	case !stands || !blind(d.Reason.Kind): // without signals, an existing plan is not changed
		why := d.Reason.String()
		if q := l.room.of(j.partition()).Queue; q.Rushed() && len(job.Openings) > 0 {
			why = fmt.Sprintf("other jobs have waited for %.0f %% of the CPUs on average over the last %v",
				100*q.Share, q.Over.Round(time.Minute))
		}
		return l.let(j, e, isReleased, why)
	}
	l.hold(j, e, &job)
	return isHeld
}

// untouched returns the reason for not changing a job because of its state in Slurm, or an empty string.
func (l *look) untouched(j *Job, e *entry) string {
	begin := j.Eligible.time()
	ours, others := e.whose(j)
	switch {
	case j.Reservation != "", j.HetJob != 0, j.Flags.has("cron_job"):
		return isTheirs // their start is determined by a reservation, a crontab or another component
	case strings.HasPrefix(j.Reason, "JobHeld"):
		return "job-held"
	case others, !ours && begin.After(l.now) && !graced(j):
		return isTheirs
	case ours && !begin.After(l.now):
		return isReleased
	}
	return ""
}

// grace is the delay in seconds that job_submit.lua adds to delayable jobs, so that they do not start before the
// next pass.
const grace = 60

// graced reports whether the BeginTime of a job was set by job_submit.lua.
func graced(j *Job) bool {
	return strings.HasPrefix(j.AdminComment, "kubenergy:") && j.Eligible >= j.Submit+grace-same &&
		j.Eligible <= j.Submit+grace+same
}

// blind reports whether a decision was made without signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// If only the forecast has changed, a plan is changed at most once per minHold and only for a gain of at least
// minGain.
const (
	minHold   = 5 * time.Minute
	minGain   = 0.01
	sameStart = time.Minute // smaller differences are ignored
)

// steady reports whether a job should keep its current BeginTime despite a different decision.
func (l *look) steady(j *Job, e *entry, q *sched.Snapshot, d *sched.Decision, s *policy.Settings) bool {
	current := j.Eligible.time()
	if d.Window.Start.Sub(current).Abs() < sameStart || l.now.Sub(time.Unix(e.Moved, 0)) < minHold {
		return true
	}
	saving, _, known := q.Saving(&q.Queue[0], current)
	return d.Reason.Kind == sched.CheaperLater && known && d.Reason.Saving-saving < max(minGain, s.MinSaving)
}

// give schedules setting the BeginTime of a decision.
func (l *look) give(j *Job, e *entry, q *sched.Snapshot, d *sched.Decision, s *policy.Settings) {
	begin := timeutil.Earlier(d.Window.Start, q.Queue[0].LatestStart()).Truncate(time.Second)
	l.room.occupy(j, begin, begin.Add(q.Queue[0].Duration))
	r := l.record(j, "hold", s.Strategy(), d.Reason.Kind.String(), begin)
	r.Message, r.Saving, r.Saved = d.Reason.String(), d.Reason.Saving, d.Reason.Carbon
	l.set(j, e, begin, r.Message, func() { l.o.Record(r, q) })
}

// set stores a BeginTime in the state and schedules the change in Slurm.
func (l *look) set(j *Job, e *entry, begin time.Time, why string, done func()) {
	e.Before, _ = e.whose(j)
	e.Was, e.Ours, e.Reason, e.Moved = int64(j.Eligible), begin.Unix(), why, l.now.Unix()
	l.memory.keep(j, e)
	l.calls = append(l.calls, call{j, begin, why, done})
}

// let schedules the release of a job that waits for a BeginTime set by the driver or by job_submit.lua. Other jobs
// are not changed.
func (l *look) let(j *Job, e *entry, state, why string) string {
	if ours, _ := e.whose(j); !ours && !graced(j) || !j.Eligible.time().After(l.now) {
		if state == isReleased {
			return isEligible
		}
		return state
	}
	l.set(j, e, l.now, why, func() { l.finish(j, e, isReleased, why) })
	return state
}

// finish marks a job as final, so that it is not changed again.
func (l *look) finish(j *Job, e *entry, state, why string) {
	if e.Final = state; e.Ours != 0 {
		_, s, _ := l.question(j)
		r := l.record(j, "release", s.Strategy(), "Released", l.now)
		r.Message = why
		l.o.Record(r, nil)
	}
	l.memory.keep(j, e)
	if state == isTheirs {
		l.o.Log.Info("Job was changed by its user", "job", j.name(), "account", j.Account, "begin", j.Eligible.time())
	}
}

func (l *look) record(j *Job, action, strategy, reason string, start time.Time) ledger.Record {
	return ledger.Record{
		Action: action, At: l.now, Namespace: namespaceOf(j.Account), OwnerKind: "Job", Owner: j.name(),
		UID: fmt.Sprintf("%s-%d", j.name(), j.Submit), Strategy: strategy, Reason: reason, Start: start,
	}
}
