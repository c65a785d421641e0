package hold

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Config configures a [Loop].
type Config struct {
	Client    kubernetes.Interface // used only by the loop, see the package documentation
	View      func() *kube.View
	Namespace string // of the Lease; defaults to kube-system
	// MaxPods is the maximum number of held bare pods, which are kept in memory and written to the API
	// server. It defaults to 2000.
	MaxPods int
	// ReleaseRate is the max number of releases per second, not counting releases at deadlines. Zero means no limit
	// other than the rate at which the cluster starts work.
	ReleaseRate float64
	// MaxRamp limits how fast the expected power of released work may rise, in watts per second, not counting
	// releases at deadlines. Zero means no limit.
	MaxRamp energy.Watts
	// Record, if set, is called for each hold after its owner was notified, and for each release. It is called from
	// the goroutine of Run, must not block, and must copy everything that it retains.
	Record func(*record.Entry)
	// RecordPlan, if set, is called with the rule of each joint plan, its snapshot, and the number of times that the
	// planner had checked the clock when it was stopped (0 if it was not stopped). It is called outside the
	// goroutine of Run for one plan at a time, must not retain its arguments, and delays the next plan until it
	// returns.
	RecordPlan func(rule string, s *sched.Snapshot, plan sched.Plan, looks int)

	// Pauses enables pausing running Jobs that are interruptible, see [pauser].
	Pauses bool

	// Sites, if set, returns the names of the sites where the object with the given ID, namespace/name, may run. An
	// empty list means any site. If known is false, the loop waits briefly before it plans the object.
	Sites func(id string) (sites []string, known bool)

	// Stuck, if set, is called once if the loop has not started an iteration for two minutes. It should terminate
	// the process.
	Stuck func()

	opinion opinion // defaults to the decision of the view
}

const (
	defaultMaxPods  = 2000
	callTimeout     = 5 * time.Second
	parallelCalls   = 32 // max concurrent release requests
	parallelLookups = 4  // max concurrent reads of CronJobs
	planChunk       = 500
	// max planning time per iteration; the remaining holds are planned in the next one
	planTime = 5 * time.Millisecond
	// max number of released Jobs with a known deadline
	maxRemembered = 1 << 15
)

// opinion decides when a job should start.
type opinion func(view *kube.View, now time.Time, job sched.Job, s policy.Settings) sched.Decision

// Loop holds and releases Jobs and pods. Use [New] to create one.
type Loop struct {
	c        Config
	identity string // of this replica, set by Run
	clock    *kube.ServerClock
	gate     gate

	mail eventQueue // events from other goroutines to the goroutine of Run

	podCache  atomic.Pointer[podCache]
	activator atomic.Pointer[func(map[string]*v1.Pod)]
	events    atomic.Int64 // number of written events; makes the names of simultaneous events unique
	starts    sync.Map     // types.UID → *start of released objects; modified only by the goroutine of Run
	latest    *lru.Cache   // deadlines of released Jobs by UID

	born time.Time    // start time by the local monotonic clock, which is never adjusted
	beat atomic.Int64 // start of the last iteration, as a duration since born

	calls   calls
	lookups chan struct{}

	notes, releaseEvents chan note

	// The remaining fields are only accessed by the goroutine of Run.
	goes          func(func(context.Context)) // starts a goroutine that Run waits for
	leads         bool
	opinions      opinions
	together      together
	pendingNotes  map[*hold]struct{}
	notesInOrder  []*hold // keys of pendingNotes, oldest first
	jobs, pods    *queue
	startsChecked time.Time
	swept         time.Time
	unactivated   map[string]*v1.Pod // released by the gate, but not yet activated because the activator panicked
	turned        time.Time          // start of the last iteration
}

// New returns a loop that can hold pods immediately. Jobs are held once Run has been called.
func New(c Config) *Loop {
	limits := newLimits(c.ReleaseRate, c.MaxRamp) // both queues draw from the same power limit
	c.Namespace, c.MaxPods = cmp.Or(c.Namespace, "kube-system"), cmp.Or(c.MaxPods, defaultMaxPods)
	if c.opinion == nil {
		c.opinion = (*kube.View).Decide
	}
	l := &Loop{
		c:        c,
		together: together{record: c.RecordPlan, most: maxPlanned},
		mail:     eventQueue{ready: make(chan struct{}, 1)},
		latest:   lru.New(maxRemembered),
		lookups:  make(chan struct{}, parallelLookups),
		notes:    make(chan note, maxNotes), releaseEvents: make(chan note, maxReleaseEvents),
		pendingNotes: map[*hold]struct{}{},
		jobs:         newQueue(kindJob, newJobPace(), newJobCongestion(), limits),
		pods:         newQueue(kindPod, newPodPace(), newPodCongestion(), limits),
	}
	l.clock = kube.NewServerClock(time.Now, c.Client)
	l.jobs.watts, l.pods.watts = l.draw, l.draw
	l.gate.clock, l.gate.view, l.gate.max = l.clock, l.known, int64(c.MaxPods)
	return l
}

// known returns the current view. If the view source panics, known returns the unsettled view, so that deadlines
// are still met.
func (l *Loop) known() (view *kube.View) {
	if l.c.View == nil {
		return &nothing
	}
	panics.Caught("view", func() { view = l.c.View() })
	return cmp.Or(view, kube.Unsettled())
}

var nothing kube.View // the view of a loop without a view source

// draw returns the expected power of a hold once it runs, summed over all pods of a Job. It is called on the
// deadline path, so if the estimate panics, draw returns 0 W.
func (l *Loop) draw(h *hold) (watts energy.Watts) {
	panics.Caught("watts", func() {
		if job, _ := h.question(l.known()); job.HasExpected {
			watts = max(job.Expected, 0)
		} else {
			watts = job.Nominal()
		}
	})
	return watts
}

// Hold reports whether the pod must be kept out of the scheduler's queue, and until when at most. It is meant to be
// called by PreEnqueue. It neither blocks nor sends requests, and it admits the pod if in doubt. A pod with an
// expired deadline is always admitted, even if the loop is no longer running.
func (l *Loop) Hold(pod *v1.Pod) (until time.Time, held bool) {
	defer func() {
		if r := recover(); r != nil {
			panics.Count("gate")
			klog.Background().Error(nil, "Gate panicked, so the pod was admitted", "pod", klog.KObj(pod), "panic", r)
			until, held = time.Time{}, false
		}
	}()
	if panics.Open() {
		return time.Time{}, false
	}
	until, held, first, no := l.gate.ask(pod)
	if first {
		l.followPods()
		l.post(func() { l.sawPod(pod, no) })
	}
	return until, held
}

// Holds reports whether a pod is currently held. It has no side effects.
func (l *Loop) Holds(uid types.UID) bool {
	t, ok := l.gate.ticket(uid)
	return ok && !t.released.Load() && l.gate.clock.Now().UnixNano() < t.latest.Load()
}

// LatestStart returns the latest start of a Job that was held and released.
func (l *Loop) LatestStart(job types.UID) (latest time.Time, known bool) {
	if found, ok := l.latest.Get(job); ok {
		return found.(time.Time), true
	}
	return time.Time{}, false
}

// SetActivator sets the function that moves pods into the scheduler's queue. The keys of its argument are
// namespace/name. SetActivator is safe for concurrent use and may be called more than once.
func (l *Loop) SetActivator(activate func(map[string]*v1.Pod)) {
	l.activator.Store(&activate)
}

// Now returns the current time of the API server, by which deadlines are evaluated.
func (l *Loop) Now() time.Time { return l.clock.Now() }

// Run plans and releases until ctx is done. It returns an error only if it cannot start.
func (l *Loop) Run(ctx context.Context) error {
	metrics.Register()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logger := klog.FromContext(ctx).WithName("hold")
	ctx = klog.NewContext(ctx, logger)
	// A panic aborts only the current work of a goroutine, which is then restarted.
	l.goes = func(f func(context.Context)) {
		wg.Go(func() {
			for !safely(logger, func() { f(ctx) }) && ctx.Err() == nil {
				kube.Pause(ctx, afterPanic)
			}
		})
	}

	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading the host name: %w", err)
	}
	l.identity, l.born = host+"_"+string(uuid.NewUUID()), time.Now()
	l.goes(l.campaign)
	l.goes(l.watchJobs)
	l.goes(l.keepTime)
	l.goes(l.watchBeat)
	l.startWriters()
	l.serve(ctx, logger)
	return nil
}

// afterPanic is the time after which a background goroutine is restarted if it has panicked.
const afterPanic = time.Second

const (
	stuckAfter = 2 * time.Minute // an iteration starts at least every five seconds
	beatEvery  = 10 * time.Second
)

// watchBeat exports the time since the last iteration started, and calls Stuck if it is too long.
func (l *Loop) watchBeat(ctx context.Context) {
	for kube.Pause(ctx, beatEvery) {
		age := time.Since(l.born) - time.Duration(l.beat.Load())
		turnAge.WithLabelValues().Set(age.Seconds())
		if age > stuckAfter {
			klog.FromContext(ctx).Error(nil, "Hold loop is stuck", "since", age)
			if l.c.Stuck != nil {
				l.c.Stuck()
			}
			return
		}
	}
}

// serve runs the loop. All changes to holds are made here.
func (l *Loop) serve(ctx context.Context, logger klog.Logger) {
	wake := time.NewTimer(0)
	defer wake.Stop()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.mail.ready:
		case <-wake.C:
		}
		if rest := time.Until(rested); rest > 0 && !kube.Pause(ctx, rest) {
			return
		}
		began := time.Now()
		l.beat.Store(int64(began.Sub(l.born)))
		pause := maxPause
		safely(logger, func() { pause = l.iterate(logger) })
		least := min(max(minPause, 9*time.Since(began)), maxPause)
		rested = time.Now().Add(least)
		wake.Reset(max(pause, least))
	}
}

// The pause between two iterations is at least minPause and nine times the duration of an iteration, so that the
// loop uses at most a tenth of a core regardless of the number of holds. It is at most maxPause, after which the
// view is checked again. A loop without holds and awaited starts pauses for idlePause, because waking up would cost
// more than the work itself.
const (
	minPause  = 10 * time.Millisecond
	maxPause  = 500 * time.Millisecond
	idlePause = 5 * time.Second
)

// iterate performs all work that is due and returns the time until the next iteration. A panic in one step only
// aborts that step until the next iteration, so objects that cannot be planned are still released at their
// deadlines.
func (l *Loop) iterate(logger klog.Logger) (pause time.Duration) {
	for _, read := range l.mail.drain() {
		safely(logger, read)
	}
	now := l.clock.Now()
	if now.Before(l.turned) {
		safely(logger, func() { l.setBack(now) })
	}
	l.turned = now
	more := false
	safely(logger, func() { more = l.planAll(logger, now) })
	safely(logger, func() { l.replan(now) })
	safely(logger, func() { l.giveUpStarts(now) })
	safely(logger, func() { l.releaseDuePods(logger, now) })
	safely(logger, func() { l.releaseDueJobs(logger, now) })
	safely(logger, l.flushNotes)
	safely(logger, func() { l.sweep(now) })
	l.jobs.measure()
	l.pods.measure()
	notesWaiting.WithLabelValues().Set(float64(len(l.notes) + len(l.releaseEvents) + len(l.pendingNotes)))
	switch {
	case more:
		return minPause
	case l.idle():
		return idlePause
	}
	pause = maxPause
	now = l.clock.Now()
	for _, at := range [2]time.Time{l.jobs.next(now, l.leads), l.pods.next(now, true)} {
		if !at.IsZero() {
			pause = min(pause, at.Sub(now))
		}
	}
	return max(pause, minPause)
}

// idle reports whether there are no holds, no awaited starts and no pending notes.
func (l *Loop) idle() bool {
	for range l.starts.Range {
		return false
	}
	return len(l.jobs.byUID)+len(l.pods.byUID)+len(l.notes)+len(l.releaseEvents)+len(l.pendingNotes) == 0
}

// setBack handles a clock that was set back. It moves all recorded times that would otherwise be in the future.
func (l *Loop) setBack(now time.Time) {
	l.swept = timeutil.Earlier(l.swept, now)
	l.startsChecked = timeutil.Earlier(l.startsChecked, now)
	for _, st := range l.starts.Range {
		st.(*start).at = timeutil.Earlier(st.(*start).at, now)
	}
	for _, q := range [2]*queue{l.pods, l.jobs} {
		q.congestion.setBack(now)
	}
}

// safely calls f and recovers from its panics, so that they do not abort other work. It reports whether f returned
// without a panic.
func safely(logger klog.Logger, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if times := panics.Count("hold"); panics.Worth(times) {
				logger.Error(nil, "Step of the hold loop panicked", "times", times, "panic", r, "stack",
					string(debug.Stack()))
			}
		}
	}()
	f()
	return true
}

// planAll plans the holds that have not been planned with the current view, in chunks. It reports whether some of
// them remain for the next iteration.
func (l *Loop) planAll(logger klog.Logger, now time.Time) (more bool) {
	view := l.known()
	if !view.Settled() {
		return false // the policies are not loaded yet; deadlines are enforced regardless
	}
	began := time.Now()
	for _, q := range [2]*queue{l.pods, l.jobs} {
		for chunk := planChunk; chunk > 0; chunk -= planStep {
			some, rest := q.outdated(view, now, planStep)
			for _, h := range some {
				if !safely(logger, func() { l.planOne(logger, h, view, now) }) && h.basis == unplanned {
					q.free(h, "planning panicked")
				}
			}
			if !rest {
				break
			}
			if time.Since(began) > planTime || chunk <= planStep {
				more = true
				break
			}
		}
	}
	return more
}

// planStep is the number of holds that are planned between two checks of the elapsed time.
const planStep = 20

func (l *Loop) planOne(logger klog.Logger, h *hold, view *kube.View, now time.Time) {
	// A new view may change the plan or, once the window has opened, the deadline.
	if h.seen == view || h.state != waiting && h.state != opened {
		return
	}
	l.evaluate(h, view)
	switch h.state {
	case opened:
		h.seen = view
	case waiting:
		l.plan(logger, h, view, now)
		l.explain(h)
	}
}

func (l *Loop) post(f func()) { l.mail.post(f) }

// eventQueue passes work to the loop without blocking the sender.
type eventQueue struct {
	mu    sync.Mutex
	mail  []func()
	ready chan struct{}
}

func (m *eventQueue) post(f func()) {
	m.mu.Lock()
	m.mail = append(m.mail, f)
	m.mu.Unlock()
	daemon.Poke(m.ready)
}

func (m *eventQueue) drain() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mail
	m.mail = nil
	return mail
}
