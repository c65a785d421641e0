package budget

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Options are what an [Engine] is made of. All must be set but Webhook, Key, Hosts and Identity.
type Options struct {
	Ledger Ledger
	Client client.Client // it may read from a cache, and has the index [cached.AllowanceIndex]
	Direct client.Reader // reads from the API server
	// MaySuspend returns nil if anything may be suspended, [ErrHoldsOff] if not; see [HoldsEnabled].
	MaySuspend func(context.Context) error
	// Ready reports whether Client knows all Jobs and pods that there are. Until it does, nothing is resumed: the
	// budget that suspends a Job may not be known yet.
	Ready func() bool
	// TeamOf returns which team is charged with what runs in a namespace and names a team.
	TeamOf     func(namespace, named string) string
	Webhook    string         // that Notify posts to where an action names none; administrators write it
	Key        []byte         // signs what webhooks are told; nil: it is not signed
	Hosts      []string       // host or host:port of webhooks that budgets may name, also inside and without TLS
	URLs       dial.KeyReader // of webhooks that budgets name as secret:NAME
	Cluster    string         // this one's name in a federation
	Identity   string         // of this process; "": random
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
	actTime    = time.Minute // of all calls about many objects; the next sweep goes on
)

// Engine keeps to budgets: it sweeps over all of them again and again. One query of the ledger answers many budgets,
// which is why it does not reconcile them one by one.
type Engine struct {
	o       Options
	tasks   *tasks
	full    *cache.LRUExpireCache // UID of workloads with more budgets than they can remember
	metrics *instruments

	booked  chan struct{}
	refused string // the last error of the ledger, logged once
}

// New returns an engine that does nothing until it is run.
func New(o Options) (*Engine, error) {
	o.Identity = cmp.Or(o.Identity, rand.Text())
	if o.deliver == nil {
		hooks, err := newWebhooks(o.Webhook, o.Key, o.Hosts, o.URLs)
		if err != nil {
			return nil, err
		}
		o.deliver = hooks.post
	}
	metrics, err := newInstruments(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of budgets: %w", err)
	}
	return &Engine{
		o: o, tasks: newTasks(), full: cache.NewLRUExpireCache(maxFull), metrics: metrics,
		booked: make(chan struct{}, 1),
	}, nil
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
			kube.Pause(ctx, max(minGap, min(restFactor*took, every))-time.Since(hurried))
			hurried = time.Now()
		}
		began := time.Now()
		e.safely("sweeping over budgets", func() { daemon.Round(ctx, func() { e.sweep(ctx) }) })
		took = time.Since(began)
		timer.Reset(max(every-took, min(restFactor*took, maxRest)))
	}
}

// Booked says that the ledger has got something new, which is looked at soon.
func (e *Engine) Booked() {
	kube.Poke(e.booked)
}

// safely keeps a panic in one part from ending the process.
func (e *Engine) safely(what string, f func()) {
	panics.Survive(e.o.Log, "budget", what, f)
}

// budgetCase is a budget as one sweep sees it.
type budgetCase struct {
	account
	budget *v1alpha1.EnergyBudget
	period period
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
	err := e.o.MaySuspend(ctx)
	s.enabled, s.known = err == nil, err == nil || errors.Is(err, ErrHoldsOff)
	if !s.known {
		e.o.Log.Warn("nothing new is suspended", "error", err)
	}
	e.suspendAndClaim(ctx, s)
	if ready {
		e.resumeAll(ctx, s)
		e.perWorkload(ctx, s)
	}
	e.metrics.show(s.shared, s.own)
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
			s.shared = append(s.shared, &budgetCase{accountOf(b), b, p, err})
		}
	}
}

// askTime is for all questions of one sweep: what was suspended until now is not to wait for a ledger that hangs.
const askTime = time.Minute

func (e *Engine) askAll(ctx context.Context, s *scene) error {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := e.ask(asking, s.shared, s.now)
	var errOwn error
	s.own, s.listed, errOwn = e.allowances(ctx, asking, s)
	return cmp.Or(err, errOwn)
}

// suspendAndClaim brings statuses up to date, suspends, and leaves to the lanes all else that is to be done. What
// suspends comes first.
func (e *Engine) suspendAndClaim(ctx context.Context, s *scene) {
	var all []func()
	for _, c := range s.shared {
		all = append(all, func() { e.act(ctx, c, e.updateStatus(ctx, c, s.now, s.marks.of(c.budget)), s.enabled) })
	}
	slices.SortStableFunc(s.own, func(a, b *allowance) int { return cmp.Compare(a.urgency(), b.urgency()) })
	for _, a := range s.own {
		all = append(all, func() { e.keep(ctx, a, s.now, s.enabled) })
	}
	inParallel(e.o.Log, parallel, all, func(f func()) error {
		f()
		return nil
	})
}

var errPanicked = errors.New("that panicked")

// inParallel does something with each of all, several at a time, and returns with which it was done, and what failed.
// It begins nothing after actTime, so that an API server that hangs does not stop the sweeps.
func inParallel[T any](log *slog.Logger, limit int, all []T, do func(T) error) (done []T, failed []error) {
	errs := make([]error, len(all))
	work := errgroup.Group{}
	work.SetLimit(limit)
	began := time.Now()
	for i, one := range all {
		work.Go(func() error {
			if errs[i] = context.DeadlineExceeded; time.Since(began) > actTime {
				return nil
			}
			errs[i] = errPanicked
			panics.Survive(log, "budget", "one of many", func() { errs[i] = do(one) })
			return nil
		})
	}
	_ = work.Wait() // what failed is in errs
	for i, err := range errs {
		if err == nil {
			done = append(done, all[i])
		} else {
			failed = append(failed, err)
		}
	}
	return done, failed
}

// summary returns the first of several errors and their count, without those that are tolerated.
func summary(doing string, failed []error, tolerated error) error {
	failed = slices.DeleteFunc(failed, func(err error) bool { return errors.Is(err, tolerated) })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d failed, the first: %w", doing, len(failed), failed[0])
}

// logOnce logs an error when it is another one than before.
func (e *Engine) logOnce(part string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != e.refused {
		e.o.Log.Error("budgets cannot be evaluated: trying again", "part", part, "error", err)
	}
	e.refused = text
}

// suspensions are the Jobs that budgets have suspended.
type suspensions struct {
	jobs   []*batchv1.Job
	counts map[string]int32
}

func (s *suspensions) of(b *v1alpha1.EnergyBudget) int32 {
	return s.counts[b.Namespace+"/"+policy.BudgetLabel(b.Name)]
}

func (e *Engine) suspensions(ctx context.Context) *suspensions {
	s := &suspensions{counts: map[string]int32{}}
	var jobs batchv1.JobList
	if err := e.o.Client.List(ctx, &jobs, client.HasLabels{v1alpha1.LabelBudgetSuspended}); err != nil {
		e.o.Log.Warn("listing Jobs that are suspended for budgets: trying again", "error", err)
		return s
	}
	for i := range jobs.Items {
		j := &jobs.Items[i]
		s.jobs = append(s.jobs, j)
		if j.Spec.Suspend != nil && *j.Spec.Suspend {
			s.counts[j.Namespace+"/"+j.Labels[v1alpha1.LabelBudgetSuspended]]++
		}
	}
	return s
}
