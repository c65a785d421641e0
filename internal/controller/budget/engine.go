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

// Options configures an [Engine]. Webhook, Key, Hosts and Identity are optional.
type Options struct {
	Ledger Ledger
	Client client.Client // may read from a cache; requires the index [cached.AllowanceIndex]
	Direct client.Reader // reads from the API server
	// MaySuspend returns nil if Jobs may be suspended and [ErrHoldsOff] if not. See [HoldsEnabled].
	MaySuspend func(context.Context) error
	// Ready reports whether the caches of Client are synced. No Job is resumed before that, because the budget that
	// suspends it may not be in the cache yet.
	Ready func() bool
	// TeamOf returns the team that is charged for a workload, given its namespace and the team in its labels.
	TeamOf     func(namespace, named string) string
	Webhook    string         // default webhook of Notify actions, set by administrators
	Key        []byte         // signs webhook messages; nil disables signing
	Hosts      []string       // host or host:port of permitted webhooks, including private and http ones
	URLs       dial.KeyReader // URLs of webhooks in the format secret:NAME
	Cluster    string         // name of this cluster in a federation
	Identity   string         // identity of this process; random if empty
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer

	deliver poster // for testing only; defaults to webhooks
}

const (
	every = 5 * time.Second // interval between sweeps
	// Slow sweeps are run less often, to limit the load of the ledger.
	restFactor = 4
	maxRest    = 30 * time.Second
	minGap     = 250 * time.Millisecond // minimum interval between sweeps triggered by new records
	callTime   = 3 * time.Second        // timeout of API server requests; shorter than the wait of kubenergy release
	parallel   = 16
	actTime    = time.Minute // maximum duration of a batch of requests; the rest follows in the next sweep
)

// Engine enforces budgets with periodic sweeps over all of them. It does not reconcile budgets individually,
// because a single ledger query can evaluate many budgets.
type Engine struct {
	o       Options
	tasks   *tasks
	full    *cache.LRUExpireCache // UIDs of workloads with too many actions for their annotation
	metrics *instruments

	booked  chan struct{}
	refused error // last logged error of the ledger
}

// New returns an Engine. It is inactive until Run is called.
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
		return nil, fmt.Errorf("registering the budget metrics: %w", err)
	}
	return &Engine{
		o: o, tasks: newTasks(), full: cache.NewLRUExpireCache(maxFull), metrics: metrics,
		booked: make(chan struct{}, 1),
	}, nil
}

// Run sweeps over all budgets periodically until ctx is done.
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
	var hurried time.Time  // time of the last sweep triggered by a record
	var took time.Duration // duration of the last sweep
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
		e.safely("budget sweep", func() { daemon.Round(ctx, func() { e.sweep(ctx) }) })
		took = time.Since(began)
		timer.Reset(max(every-took, min(restFactor*took, maxRest)))
	}
}

// Booked triggers a sweep after new records were committed to the ledger.
func (e *Engine) Booked() {
	daemon.Poke(e.booked)
}

// safely calls f and recovers from a panic.
func (e *Engine) safely(what string, f func()) {
	panics.Survive(e.o.Log, "budget", what, f)
}

// budgetCase is the state of a budget in a sweep.
type budgetCase struct {
	account
	budget *v1alpha1.EnergyBudget
	period period
	err    error
}

// scene is the state of a sweep.
type scene struct {
	now    time.Time
	shared []*budgetCase
	each   []*v1alpha1.EnergyBudget // per workload
	own    []*allowance
	listed bool // own is complete
	marks  *suspensions
	// enabled reports whether Jobs may be suspended. It is valid only if known is true.
	enabled, known bool
}

// sweep evaluates all budgets and starts their actions. Jobs are suspended first.
func (e *Engine) sweep(ctx context.Context) {
	s := &scene{now: e.o.Now(), marks: e.suspensions(ctx)}
	ready := e.o.Ready() // must be read before the lists
	var list v1alpha1.EnergyBudgetList
	if err := e.o.Client.List(ctx, &list); err != nil {
		// Without the budgets, resume only Jobs with an expired suspension.
		e.logOnce("listing EnergyBudgets", err)
		if ready {
			e.resumeAll(ctx, s)
		}
		return
	}
	s.sort(list.Items)
	e.logOnce("querying usage", e.askAll(ctx, s))
	err := e.o.MaySuspend(ctx)
	s.enabled, s.known = err == nil, err == nil || errors.Is(err, ErrHoldsOff)
	if !s.known {
		e.o.Log.Warn("Failed to check whether Jobs may be suspended", "error", err)
	}
	e.suspendAndClaim(ctx, s)
	if ready {
		e.resumeAll(ctx, s)
		e.perWorkload(ctx, s)
	}
	e.metrics.show(s.shared, s.own)
}

// sort separates shared budgets from budgets per workload.
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

// askTime limits the duration of all queries of a sweep, so that Jobs are resumed on time even if the ledger hangs.
const askTime = time.Minute

func (e *Engine) askAll(ctx context.Context, s *scene) error {
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err := e.ask(asking, s.shared, s.now)
	var errOwn error
	s.own, s.listed, errOwn = e.allowances(ctx, asking, s)
	return cmp.Or(err, errOwn)
}

// suspendAndClaim updates statuses, suspends Jobs and adds all other actions to the lanes. Allowances that suspend
// Jobs are processed before other allowances.
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

// inParallel calls do for each element with limited concurrency. It returns the elements that succeeded and the
// errors of the others. It makes no calls after actTime, so that an API server that hangs does not block the
// sweeps.
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
			errs[i] = panics.Try(log, "budget", "object of a batch", func() error { return do(one) })
			return nil
		})
	}
	_ = work.Wait() // errors are in errs
	for i, err := range errs {
		if err == nil {
			done = append(done, all[i])
		} else {
			failed = append(failed, err)
		}
	}
	return done, failed
}

// summary returns an error with the first of several errors and their count. It ignores errors that match
// tolerated.
func summary(doing string, failed []error, tolerated error) error {
	failed = slices.DeleteFunc(failed, func(err error) bool { return errors.Is(err, tolerated) })
	if len(failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d failed, first error: %w", doing, len(failed), failed[0])
}

// logOnce logs an error if it differs from the previous one.
func (e *Engine) logOnce(part string, err error) {
	if err != nil && (e.refused == nil || err.Error() != e.refused.Error()) {
		e.o.Log.Error("Failed to evaluate budgets, retrying", "part", part, "error", err)
	}
	e.refused = err
}

// suspensions contains the Jobs that are suspended by budgets.
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
		e.o.Log.Warn("Failed to list Jobs suspended by budgets, retrying", "error", err)
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
