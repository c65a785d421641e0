package budget

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/policy"
)

// Options are what an [Engine] is made of. All must be set but Webhook, Hosts and Identity.
type Options struct {
	Ledger Ledger
	Client client.Client // it may read from a cache
	Direct client.Reader // reads from the API server
	// MaySuspend reports whether anything may be suspended; see [HoldsEnabled].
	MaySuspend func(context.Context) (bool, error)
	// Ready reports whether [Engine.Saw] was told of all Jobs and pods that there are. Until it is, nothing is
	// resumed: the budget that suspends a Job may not be known yet.
	Ready      func() bool
	Webhook    string   // that Notify posts to where an action names none; administrators write it
	Hosts      []string // host or host:port of webhooks that may be at private addresses, and without TLS
	Identity   string   // of this process; "": random
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer

	deliver poster // of tests; nil: webhooks
}

const (
	every = 5 * time.Second // between two sweeps
	// A sweep that takes long must not keep the ledger busy.
	restFactor = 4
	maxRest    = 30 * time.Second
	minGap     = 250 * time.Millisecond // between two sweeps that bookings cause
	callTime   = 3 * time.Second        // of the API server; kubenergy release waits for longer
	parallel   = 16
)

// Engine keeps to budgets: it sweeps over all of them again and again. One query of the ledger answers many budgets,
// which is why it does not reconcile them one by one.
type Engine struct {
	o       Options
	marked  sync.Map // workloadKey of the Jobs and pods whose annotations may give them a budget
	tasks   *tasks
	full    sync.Map // UID of workloads with more budgets than they can remember
	metrics *instruments

	booked  chan struct{}
	near    bool   // a threshold may be reached soon: each booking causes a sweep
	refused string // the last error of the ledger, logged once
	grew    map[types.NamespacedName]growth
}

// New returns an engine that does nothing until it is run.
func New(o Options) (*Engine, error) {
	o.Identity = cmp.Or(o.Identity, rand.Text())
	if o.deliver == nil {
		hooks, err := newWebhooks(o.Hosts)
		if err != nil {
			return nil, err
		}
		o.deliver = hooks.post
	}
	e := &Engine{
		o: o, tasks: newTasks(), metrics: newInstruments(), booked: make(chan struct{}, 1),
		grew: map[types.NamespacedName]growth{},
	}
	if err := o.Registerer.Register(e.metrics); err != nil {
		return nil, fmt.Errorf("registering the metrics of budgets: %w", err)
	}
	return e, nil
}

// Run sweeps until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for l := range lanes {
		for range laneWorkers {
			running.Go(func() { e.work(ctx, l) })
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var hurried time.Time  // the last time that a booking was the reason
	var took time.Duration // for the last sweep
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-e.booked:
			// Where a threshold is near, sweep at once. Else sweeping may take a part of the time, so that use which
			// jumps from far below a threshold is seen soon too.
			gap := minGap
			if !e.near {
				gap = max(minGap, restFactor*took)
			}
			select {
			case <-ctx.Done():
			case <-time.After(gap - time.Since(hurried)):
			}
			hurried = time.Now()
		}
		began := time.Now()
		e.safely("sweeping over budgets", func() { e.sweep(ctx) })
		took = time.Since(began)
		timer.Reset(max(every-took, min(restFactor*took, maxRest)))
	}
}

// Booked says that the ledger has got something new, which is looked at soon: at once where a budget is nearly used up.
func (e *Engine) Booked() {
	select {
	case e.booked <- struct{}{}:
	default:
	}
}

// safely keeps a panic in one part from ending the process.
func (e *Engine) safely(what string, f func()) {
	defer func() {
		if r := recover(); r != nil {
			e.o.Log.Error("a part of the budgets panicked", "part", what, "panic", r)
		}
	}()
	f()
}

// budgetCase is a budget as one sweep sees it.
type budgetCase struct {
	budget *v1alpha1.EnergyBudget
	period period
	use    *use // nil: not known
	err    error
}

// scene is what one sweep sees.
type scene struct {
	now    time.Time
	shared []*budgetCase
	each   []*v1alpha1.EnergyBudget // per workload
	own    []*allowance
	listed bool // own is all that there is
	marks  *suspensions
	// Whether anything may be suspended, and whether that is known.
	enabled, known bool
}

// sweep compares all budgets with what was used, and acts: it suspends first.
func (e *Engine) sweep(ctx context.Context) {
	s := &scene{now: e.o.Now(), marks: e.suspensions(ctx)}
	ready := e.o.Ready() // before anything is listed
	var list v1alpha1.EnergyBudgetList
	if err := e.o.Client.List(ctx, &list); err != nil {
		// Without the list it is not known what is in force: only what was to end by now ends.
		e.logOnce("listing EnergyBudgets", err)
		if ready {
			e.resumeAll(ctx, s)
		}
		return
	}
	s.sort(list.Items)
	e.logOnce("asking", e.askAll(ctx, s))
	var err error
	if s.enabled, err = e.o.MaySuspend(ctx); err != nil {
		e.o.Log.Warn("whether anything may be suspended is not known: nothing new is", "error", err)
	}
	s.known = err == nil
	s.enabled = s.enabled && s.known
	e.suspendAndClaim(ctx, s)
	if ready {
		e.resumeAll(ctx, s)
		e.perWorkload(ctx, s)
	}
	e.metrics.show(s.shared, s.own)
	e.near = slices.ContainsFunc(s.shared, e.nearlyDue) || slices.ContainsFunc(s.own, (*allowance).near)
	e.forget(list.Items, s.own)
}

// sort tells budgets that are shared from those per workload.
func (s *scene) sort(all []v1alpha1.EnergyBudget) {
	for i := range all {
		b := &all[i]
		switch p, err := periodOf(&b.Spec.Period, s.now); {
		case b.DeletionTimestamp != nil:
		case b.Spec.Per == v1alpha1.PerWorkload:
			s.each = append(s.each, b)
		default:
			s.shared = append(s.shared, &budgetCase{budget: b, period: p, err: err})
		}
	}
}

// askTime is for all questions of one sweep: what was suspended until now is not to wait for a ledger that hangs.
const askTime = time.Minute

func (e *Engine) askAll(ctx context.Context, s *scene) error {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	readable := make([]*budgetCase, 0, len(s.shared))
	for _, c := range s.shared {
		if c.err == nil {
			readable = append(readable, c)
		}
	}
	err := e.ask(asking, readable, s.now)
	var errOwn error
	s.own, s.listed, errOwn = e.allowances(ctx, asking, s)
	return cmp.Or(err, errOwn)
}

// suspendAndClaim brings statuses up to date, suspends, and leaves to the lanes all else that is to be done. What
// suspends comes first.
func (e *Engine) suspendAndClaim(ctx context.Context, s *scene) {
	var all []func()
	for _, c := range s.shared {
		all = append(all, func() { e.act(ctx, c, e.settle(ctx, c, s.now, s.marks.of(c.budget)), s.enabled) })
	}
	slices.SortStableFunc(s.own, func(a, b *allowance) int { return cmp.Compare(a.urgency(), b.urgency()) })
	for _, a := range s.own {
		all = append(all, func() { e.keep(ctx, a, s.now, s.enabled) })
	}
	inParallel(parallel, all, func(f func()) error {
		e.safely("a budget", f)
		return nil
	})
}

// inParallel does something with each of all, several at a time, and returns what failed, by place.
func inParallel[T any](limit int, all []T, do func(T) error) []error {
	failed := make([]error, len(all))
	work := errgroup.Group{}
	work.SetLimit(limit)
	for i, one := range all {
		work.Go(func() error {
			failed[i] = do(one)
			return nil
		})
	}
	_ = work.Wait() // what failed is in failed
	return failed
}

// summary returns the first of several errors and their count, without those that are tolerated.
func summary(doing string, failed []error, tolerated error) error {
	failed = slices.DeleteFunc(slices.Clone(failed), func(err error) bool {
		return err == nil || errors.Is(err, tolerated)
	})
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d failed, the first: %w", doing, len(failed), failed[0])
}

// nearly is the share of a threshold from which on each booking is looked at.
const nearly = 0.9

// growth is by how many percent the use of a budget has grown when it last did.
type growth struct{ percent, step float64 }

// nearlyDue reports whether the next booking, or the one after that, may reach a threshold.
func (e *Engine) nearlyDue(c *budgetCase) bool {
	s, key := &c.budget.Status, client.ObjectKeyFromObject(c.budget)
	g := e.grew[key]
	if s.Percent > g.percent {
		g.step = s.Percent - g.percent
	}
	g.percent = s.Percent
	e.grew[key] = g
	const ahead = 2
	return slices.ContainsFunc(c.budget.Spec.Actions, func(a v1alpha1.BudgetAction) bool {
		at := float64(threshold(&a))
		return (s.Percent >= nearly*at || s.Percent+ahead*g.step >= at) &&
			!slices.ContainsFunc(s.Actions, func(t v1alpha1.BudgetActionTaken) bool { return is(&a, &t) })
	})
}

func (a *allowance) near() bool {
	percent := a.percent()
	return percent < whole && slices.ContainsFunc(a.actions, func(x v1alpha1.BudgetAction) bool {
		return percent >= nearly*float64(threshold(&x)) && percent < float64(threshold(&x))
	})
}

// logOnce logs an error when it is another one than before.
func (e *Engine) logOnce(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == e.refused {
		return
	}
	e.refused = text
	if err != nil {
		e.o.Log.Error("budgets are not kept to: trying again", "part", part, "error", err)
	}
}

// suspensions are the Jobs that budgets have suspended.
type suspensions struct {
	jobs   []*batchv1.Job
	counts map[[2]string]int32
	err    error
}

func (s *suspensions) of(b *v1alpha1.EnergyBudget) int32 {
	return s.counts[[2]string{b.Namespace, policy.BudgetLabel(b.Name)}]
}

func (e *Engine) suspensions(ctx context.Context) *suspensions {
	s := &suspensions{counts: map[[2]string]int32{}}
	var jobs batchv1.JobList
	if s.err = e.o.Client.List(ctx, &jobs, client.HasLabels{v1alpha1.LabelBudgetSuspended}); s.err != nil {
		e.o.Log.Warn("listing Jobs that are suspended for budgets: trying again", "error", s.err)
		return s
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		s.jobs = append(s.jobs, j)
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			s.counts[[2]string{j.Namespace, j.Labels[v1alpha1.LabelBudgetSuspended]}]++
		}
	}
	return s
}

// forget drops what is remembered of budgets, and of workloads, that are gone.
func (e *Engine) forget(all []v1alpha1.EnergyBudget, own []*allowance) {
	there := map[any]bool{}
	for i := range all {
		there[client.ObjectKeyFromObject(&all[i])] = true
	}
	for _, a := range own {
		there[a.object.GetUID()] = true
	}
	maps.DeleteFunc(e.grew, func(key types.NamespacedName, _ growth) bool { return !there[key] })
	e.full.Range(func(uid, _ any) bool {
		if !there[uid] {
			e.full.Delete(uid)
		}
		return true
	})
}

// workloadKey names a Job or a pod.
type workloadKey struct {
	job bool
	types.NamespacedName
}

func keyOf(o client.Object) workloadKey {
	_, job := o.(*batchv1.Job)
	return workloadKey{job, client.ObjectKeyFromObject(o)}
}

// Saw is told of every pod and Job, and of what changes on them.
func (e *Engine) Saw(o client.Object) {
	has := policy.MayHaveAllowance(o.GetAnnotations())
	switch o := o.(type) {
	case *batchv1.Job:
		has = has || policy.MayHaveAllowance(o.Spec.Template.Annotations)
	case *v1.Pod:
		has = has && !runByJob(o)
	}
	if has {
		e.marked.Store(keyOf(o), nil)
	} else {
		e.marked.Delete(keyOf(o))
	}
}

// Lost is told of every pod and Job that is gone.
func (e *Engine) Lost(o client.Object) { e.marked.Delete(keyOf(o)) }
