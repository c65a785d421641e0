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

// Options are what a [Driver] is made of.
type Options struct {
	Client *Client
	// Rules returns who may wait for what, by account, and on which signals; false: that is not known yet.
	Rules func() (*policy.Rules, bool)
	// Record takes decisions, and what each was made on.
	Record func(ledger.Record, *sched.Snapshot)
	// Show is told of all jobs that wait for the time that we gave them, after each look.
	Show func([]Held)
	// Seen is told what each look has seen; nil: nothing is. What it returns is logged.
	Seen func(context.Context, []Node, []Job) error
	// RunNow reports whether a user of ours asked that a job is to wait no longer.
	RunNow func(account, name string) bool

	Power      PowerOptions
	State      string        // file in which it is remembered which BeginTimes are ours
	Every      time.Duration // between two looks
	Conf       string        // slurm.conf, to see whether age counts while a job waits; "": it is not looked at
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Held is a job that waits.
type Held struct {
	Namespace, Name, User    string
	Marks                    map[string]string // as annotations
	Submitted, Begin, Latest time.Time
	Reason                   string
	Request                  sched.Resources
	Duration                 time.Duration // as far as that is known
}

// Driver gives BeginTimes. Make it with [New].
type Driver struct {
	o        Options
	memory   *memory
	accounts accounts
	metrics  *metrics
	reported map[string]string // what was logged last, by what it is about
	sleepers map[string]*sleeper
	room     room
	beside   time.Duration // of the last look, what Seen took
	answered bool          // Slurm has, since the start
}

// New returns a driver that has not looked yet.
func New(o Options) *Driver {
	m, err := openMemory(o.State, o.Now())
	metrics := newMetrics(o.Registerer)
	if err != nil {
		metrics.fails.WithLabelValues(NoState).Inc()
		o.Log.Error("Failed to read which BeginTimes are ours; jobs submitted before now keep theirs", "err", err)
	}
	return &Driver{
		o: o, memory: m, metrics: metrics, reported: map[string]string{}, sleepers: map[string]*sleeper{},
		room: m.room(),
		accounts: accounts{
			of: map[int64]charged{}, vain: map[string]time.Time{},
			next: make(chan struct{}), asked: make(chan struct{}, 1), timeout: 5 * time.Second,
		},
	}
}

// settling is how long policies are waited for at the start.
const settling = 10 * time.Second

// Run looks again and again until ctx ends. The BeginTimes that were given stay.
func (d *Driver) Run(ctx context.Context) error {
	const (
		share = 9 // of the time is slurmctld's own
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
		d.notify("the address of slurmrestd", d.o.Client.checkURL())
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

// notify logs what is wrong once, and once that it is mended.
func (d *Driver) notify(about string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	switch {
	case d.reported[about] == text:
		return
	case err != nil:
		d.o.Log.Warn("not as it should be", "about", about, "error", err)
	default:
		d.o.Log.Info("as it should be again", "about", about)
	}
	d.reported[about] = text
}

// Look asks Slurm what waits, and gives BeginTimes. An error says why nothing was done, or not all.
func (d *Driver) Look(ctx context.Context) (err error) {
	defer func() { d.metrics.looked(err, d.o.Client.Version()) }()
	d.beside = 0
	l, err := d.see(ctx)
	if err != nil {
		return err
	}
	if !d.answered {
		d.answered = true
		d.o.Log.Info("Slurm answers", "version", d.o.Client.Version(), "nodes", len(l.nodes), "jobs", len(l.jobs))
	}
	d.memory.keepQueues(d.room)
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

// look is one look at all jobs.
type look struct {
	*Driver
	rules   *policy.Rules
	now     time.Time
	nodes   []Node
	jobs    []Job
	waiting []*Job // that speak to us, or did, the oldest first
	calls   []call
	held    []Held
	states  map[string]int
}

// call is a BeginTime that Slurm is to be told of, and what to do once it knows.
type call struct {
	job   *Job
	begin time.Time
	why   string
	done  func()
}

// see reads what there is.
func (d *Driver) see(ctx context.Context) (*look, error) {
	jobs, err := d.o.Client.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	d.accounts.saw(jobs, d.o.Now())
	rules, settled := d.o.Rules()
	if !settled {
		return nil, newFault("rules", "policies are not known yet: nothing is put off")
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

// changing is how long one look gives BeginTimes; the next look decides about the others again.
const changing = 15 * time.Second

// notifySlurm gives the BeginTimes that were decided, which are remembered as ours by now, first to jobs that are to
// wait no longer. It stops at the first timeout, because each further change could take as long. An error is the last
// one.
func (l *look) notifySlurm(ctx context.Context) error {
	slices.SortStableFunc(l.calls, func(a, b call) int {
		return cmp.Compare(max(a.begin.Compare(l.now), 0), max(b.begin.Compare(l.now), 0))
	})
	var failed []string
	var last error
	began := time.Now()
	for i, c := range l.calls {
		if time.Since(began) > changing || Unreachable(last) {
			l.o.Log.Info("BeginTimes left for the next look", "count", len(l.calls)-i)
			break
		}
		if err := l.o.Client.SetBegin(ctx, int64(c.job.ID), c.begin); err != nil {
			failed, last = append(failed, c.job.name()), err
			continue
		}
		c.job.Eligible = number(c.begin.Unix())
		l.metrics.begins.Inc()
		l.o.Log.Info("BeginTime given", "job", c.job.name(), "account", c.job.Account, "begin", c.begin, "why", c.why)
		c.done()
	}
	if last == nil {
		return nil
	}
	return fmt.Errorf("giving a BeginTime to %.300s: %w", strings.Join(failed, ", "), last)
}

// forget drops what is known of jobs that wait no longer.
func (d *Driver) forget(waiting []*Job) {
	waits, names := map[int64]bool{}, map[string]bool{}
	for _, j := range waiting {
		waits[int64(j.ID)], names[j.name()] = true, true
	}
	maps.DeleteFunc(d.reported, func(about, _ string) bool {
		return strings.HasPrefix(about,
			"slurm-") && !names[about]
	})
	d.memory.forget(waits)
}

// name is what a job is called as the owner of what it uses.
func (j *Job) name() string { return "slurm-" + strconv.FormatInt(int64(j.ID), 10) }

// work reads what a job says of itself.
func (j *Job) work() (policy.Work, error) {
	namespace := namespaceOf(j.Account)
	return policy.ReadBatch(policy.Work{
		Namespace: namespace, Name: j.name(), Submitted: j.Submit.time(), Scheduler: "slurm",
		Owners: policy.Owners{Owner: "Job/" + j.name(), Team: j.User},
	}, j.request(), marksOf(j.Comment))
}

func (j *Job) request() sched.Resources {
	return sched.Resources{
		MilliCPU: milli * j.atOnce(), Memory: tres(j.Tres, "mem"), GPU: tres(j.Tres, gpus),
	}
}

// question returns the job as the core sees it, and the settings that hold for it. It runs for no longer than Slurm
// lets it, and begins in time for its --deadline: by its time limit, or without one by what it is expected to take.
// Slurm cancels a job that cannot end in time any more, so there is some left to find room.
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

// asks reports whether a job may wait.
func (l *look) asks(j *Job) bool {
	if marksOf(j.Comment) == nil {
		return false
	}
	job, _, err := l.question(j)
	return err == nil && job.AllowedDelay > 0 && !job.Released
}

// Why a job is left alone, as the metric names it.
const (
	isHeld     = "held"
	isReleased = "released"
	isTheirs   = "theirs"    // its user, or an administrator, has said otherwise
	isOff      = "not-acted" // in another mode than enforce
	isWrong    = "malformed"
	isEligible = "eligible"
)

// decide decides what is to be done about one job that waits, and returns what it is.
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
		return l.let(j, e, isWrong, "its comment does not ask to wait")
	case s.Mode != v1alpha1.ModeEnforce || !s.Ours:
		return l.let(j, e, isOff, "the mode here is "+string(s.Mode))
	}
	return l.plan(j, e, job, s)
}

// plan decides when a job is to begin.
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
	case !stands || !blind(d.Reason.Kind): // signals that vanish leave the plan as it is
		why := d.Reason.String()
		if q := l.room.of(j.partition()).Queue; q.Rushed() && len(job.Openings) > 0 {
			why = fmt.Sprintf("others have waited for room: for %.0f %% of the CPUs in the mean of the last %v",
				100*q.Share, q.Over.Round(time.Minute))
		}
		return l.let(j, e, isReleased, why)
	}
	l.hold(j, e, &job)
	return isHeld
}

// untouched returns why a job is left alone, by what Slurm says of it; "": it is not.
func (l *look) untouched(j *Job, e *entry) string {
	begin := j.Eligible.time()
	ours, others := e.whose(j)
	switch {
	case j.Reservation != "", j.HetJob != 0, j.Flags.has("cron_job"):
		return isTheirs // a reservation and a crontab have their time, and parts of one job begin together
	case strings.HasPrefix(j.Reason, "JobHeld"):
		return "job-held"
	case others, !ours && begin.After(l.now) && !graced(j):
		return isTheirs
	case ours && !begin.After(l.now):
		return isReleased
	}
	return ""
}

// grace is how long job_submit.lua puts off what may wait, so that it does not start before we have looked.
const grace = 60

// graced reports whether the BeginTime of a job is that of job_submit.lua.
func graced(j *Job) bool {
	return strings.HasPrefix(j.AdminComment, "kubenergy:") && j.Eligible >= j.Submit+grace-same &&
		j.Eligible <= j.Submit+grace+same
}

// blind reports whether a decision fell for want of signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// A plan that only a forecast changes is changed at most once in minHold, and for a gain of minGain.
const (
	minHold   = 5 * time.Minute
	minGain   = 0.01
	sameStart = time.Minute // starts that differ by less are the same
)

// steady reports whether a job keeps the BeginTime that it has, though a decision may name another.
func (l *look) steady(j *Job, e *entry, q *sched.Snapshot, d *sched.Decision, s *policy.Settings) bool {
	current := j.Eligible.time()
	if d.Window.Start.Sub(current).Abs() < sameStart || l.now.Sub(time.Unix(e.Moved, 0)) < minHold {
		return true
	}
	saving, _, known := q.Saving(&q.Queue[0], current)
	return d.Reason.Kind == sched.CheaperLater && known && d.Reason.Saving-saving < max(minGain, s.MinSaving)
}

// give is to give a job the BeginTime that was decided.
func (l *look) give(j *Job, e *entry, q *sched.Snapshot, d *sched.Decision, s *policy.Settings) {
	begin := timeutil.Earlier(d.Window.Start, q.Queue[0].LatestStart()).Truncate(time.Second)
	l.room.occupy(j, begin, begin.Add(q.Queue[0].Duration))
	r := l.record(j, "hold", s.Strategy(), d.Reason.Kind.String(), begin)
	r.Message, r.Saving, r.Saved = d.Reason.String(), d.Reason.Saving, d.Reason.Carbon
	l.set(j, e, begin, r.Message, func() { l.o.Record(r, q) })
}

// set remembers a BeginTime as ours, which Slurm is then told.
func (l *look) set(j *Job, e *entry, begin time.Time, why string, done func()) {
	e.Before, _ = e.whose(j)
	e.Was, e.Ours, e.Reason, e.Moved = int64(j.Eligible), begin.Unix(), why, l.now.Unix()
	l.memory.keep(j, e)
	l.calls = append(l.calls, call{j, begin, why, done})
}

// let is to let a job go that waits for a BeginTime of ours, or of the script; others are as they should be.
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

// finish leaves a job alone from now on.
func (l *look) finish(j *Job, e *entry, state, why string) {
	if e.Final = state; e.Ours != 0 {
		_, s, _ := l.question(j)
		r := l.record(j, "release", s.Strategy(), "Released", l.now)
		r.Message = why
		l.o.Record(r, nil)
	}
	l.memory.keep(j, e)
	if state == isTheirs {
		l.o.Log.Info("left to its user", "job", j.name(), "account", j.Account, "begin", j.Eligible.time())
	}
}

func (l *look) record(j *Job, action, strategy, reason string, start time.Time) ledger.Record {
	return ledger.Record{
		Action: action, At: l.now, Namespace: namespaceOf(j.Account), OwnerKind: "Job", Owner: j.name(),
		UID: fmt.Sprintf("%s-%d", j.name(), j.Submit), Strategy: strategy, Reason: reason, Start: start,
	}
}

// hold shows a job that waits.
func (l *look) hold(j *Job, e *entry, job *sched.Job) {
	begin := j.Eligible.time()
	if n := len(l.calls); n > 0 && l.calls[n-1].job == j {
		begin = l.calls[n-1].begin
	}
	l.held = append(l.held, Held{
		Namespace: namespaceOf(j.Account), Name: j.name(), User: j.User, Marks: marksOf(j.Comment),
		Submitted: job.Submitted, Begin: begin, Latest: job.LatestStart(), Reason: e.Reason, Request: job.Request,
		Duration: job.Duration,
	})
}
