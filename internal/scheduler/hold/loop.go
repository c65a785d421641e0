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

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Config is what a [Loop] is made of.
type Config struct {
	Client    kubernetes.Interface // of its own, see the package documentation
	View      func() *kube.View
	Namespace string // of the Lease; "" reads as kube-system
	MaxPods   int    // bare pods held at once; 0 reads as 2,000: each is kept in memory, and written to the API server
	// ReleaseRate is how many are let go in a second at most, deadlines not counted; 0: as many as the cluster keeps
	// up with.
	ReleaseRate float64
	// MaxRamp is by how many watts in a second the expected power of what is let go may rise, deadlines not counted;
	// 0: by any.
	MaxRamp energy.Watts
	// Record, if set, takes holds that owners were told of, and releases. It is called by the goroutine of Run, must
	// not wait, and copies what it keeps.
	Record func(*record.Entry)
	// RecordPlan, if set, takes each plan over all that the rule "plan" holds, its snapshot, and at which look at the
	// clock it was stopped; 0: at none. It is called beside the goroutine of Run, one plan at a time, must not keep
	// them, and the next plan waits for it.
	RecordPlan func(s *sched.Snapshot, plan sched.Plan, looks int)

	// Sites, if set, returns the names of the sites where what has this ID, namespace/name, may run; none: at any.
	// While that is not known, the object waits for a moment before it is planned.
	Sites func(id string) (sites []string, known bool)

	// Stuck, if set, is called once if no turn of the loop has begun for two minutes: it should end the process.
	Stuck func()

	opinion opinion // nil: the view's
}

const (
	defaultMaxPods  = 2000
	callTimeout     = 5 * time.Second
	parallelCalls   = 32 // releases under way at once
	parallelLookups = 4  // of CronJobs
	planChunk       = 500
	planTime        = 5 * time.Millisecond // of a turn, after which the rest waits for the next
)

// opinion says when a job is to start.
type opinion func(view *kube.View, now time.Time, job sched.Job, s policy.Settings) sched.Decision

// Loop holds and releases. Make it with [New].
type Loop struct {
	c        Config
	identity string // of this replica, set by Run
	clock    *kube.ServerClock
	gate     gate

	mail eventQueue // from every other goroutine to that of Run

	podCache   atomic.Pointer[podCache]
	followPods func() // from now on, if not yet
	activator  atomic.Pointer[func(map[string]*v1.Pod)]
	events     atomic.Int64 // written so far: two at one instant need two names
	starts     sync.Map     // types.UID → *start: of what was released; the goroutine of Run alone changes it

	born time.Time    // of this process' clock, which is not set
	beat atomic.Int64 // when the last turn began, as a duration since then

	calls   calls
	lookups chan struct{}

	notes, releaseEvents chan note

	// What follows belongs to the goroutine of Run.
	goes          func(func(context.Context)) // starts a goroutine that Run waits for
	leads         bool
	opinions      opinions
	together      together
	pendingNotes  map[*hold]struct{}
	notesInOrder  []*hold // of pendingNotes, oldest first
	jobs, pods    *queue
	startsChecked time.Time
	swept         time.Time
	unactivated   map[string]*v1.Pod // released by the gate, while activating them panicked
	turned        time.Time          // the last turn
}

// New returns a loop that holds pods at once and Jobs once it runs.
func New(c Config) *Loop {
	limits := newLimits(c.ReleaseRate, c.MaxRamp) // power is power, whatever it is that draws it
	c.Namespace, c.MaxPods = cmp.Or(c.Namespace, "kube-system"), cmp.Or(c.MaxPods, defaultMaxPods)
	if c.opinion == nil {
		c.opinion = (*kube.View).Decide
	}
	l := &Loop{
		c:          c,
		together:   together{record: c.RecordPlan, most: maxPlanned},
		mail:       eventQueue{ready: make(chan struct{}, 1)},
		followPods: func() {},
		lookups:    make(chan struct{}, parallelLookups),
		notes:      make(chan note, maxNotes), releaseEvents: make(chan note, maxReleaseEvents),
		pendingNotes: map[*hold]struct{}{},
		jobs:         newQueue(kindJob, newJobPace(), newJobCongestion(), limits),
		pods:         newQueue(kindPod, newPodPace(), newPodCongestion(), limits),
	}
	l.clock = kube.NewServerClock(time.Now, c.Client)
	l.jobs.watts, l.pods.watts = l.draw, l.draw
	l.gate.clock, l.gate.view, l.gate.max = l.clock, l.known, int64(c.MaxPods)
	return l
}

// known returns the present view. If the view source panics, it returns the unsettled view: deadlines are kept.
func (l *Loop) known() (view *kube.View) {
	if l.c.View == nil {
		return &nothing
	}
	panics.Caught("view", func() { view = l.c.View() })
	return cmp.Or(view, kube.Unsettled())
}

var nothing kube.View // of a loop that was given none

// draw returns the power that a hold is expected to add when it runs: all of a Job's pods together. It is called on the
// deadline path: if the estimate panics, it counts as 0 W.
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

// Hold reports whether the pod is to be kept out of the scheduler's queue, and until when at the latest. It is meant
// for PreEnqueue: it neither waits nor makes calls, passes on any doubt, and passes every pod whose deadline has
// come even if the loop is dead.
func (l *Loop) Hold(pod *v1.Pod) (until time.Time, held bool) {
	defer func() {
		if r := recover(); r != nil {
			panics.Count("gate")
			klog.Background().Error(nil, "Holding panicked: the pod passes", "pod", klog.KObj(pod), "panic", r)
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

// Holds reports whether a pod is being held. It decides nothing.
func (l *Loop) Holds(uid types.UID) bool {
	t, ok := l.gate.ticket(uid)
	return ok && !t.released.Load() && l.gate.clock.Now().UnixNano() < t.latest.Load()
}

// SetActivator tells the loop how to move pods into the scheduler's queue: keys are namespace/name. It may be called at
// any time and more than once.
func (l *Loop) SetActivator(activate func(map[string]*v1.Pod)) {
	l.activator.Store(&activate)
}

// Now returns the API server's time, on which deadlines are instants.
func (l *Loop) Now() time.Time { return l.clock.Now() }

// Run plans and releases until ctx ends. It returns an error only if it cannot begin.
func (l *Loop) Run(ctx context.Context) error {
	metrics.Register()
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logger := klog.FromContext(ctx).WithName("hold")
	ctx = klog.NewContext(ctx, logger)
	// A panic costs what was under way; a loop begins again.
	l.goes = func(f func(context.Context)) {
		wg.Go(func() {
			for !safely(logger, func() { f(ctx) }) && ctx.Err() == nil {
				kube.Pause(ctx, afterPanic)
			}
		})
	}

	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("naming this replica: %w", err)
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

// afterPanic is how long a goroutine beside the loop rests that has panicked.
const afterPanic = time.Second

const (
	stuckAfter = 2 * time.Minute // turns begin at least every five seconds
	beatEvery  = 10 * time.Second
)

// watchBeat shows how long ago the last turn began, and tells if that is too long.
func (l *Loop) watchBeat(ctx context.Context) {
	for kube.Pause(ctx, beatEvery) {
		age := time.Since(l.born) - time.Duration(l.beat.Load())
		turnAge.WithLabelValues().Set(age.Seconds())
		if age > stuckAfter {
			klog.FromContext(ctx).Error(nil, "The hold loop does not move", "since", age)
			if l.c.Stuck != nil {
				l.c.Stuck()
			}
			return
		}
	}
}

// serve is the loop. Everything that changes holds happens here.
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
		pause := l.iterate(logger)
		least := min(max(minPause, 9*time.Since(began)), maxPause)
		rested = time.Now().Add(least)
		wake.Reset(max(pause, least))
	}
}

// Between two turns lie at least minPause and nine times what a turn takes, which bounds the loop to a tenth of a core
// however much is held, and at most maxPause, after which the view is looked at again. Where nothing is held or
// followed, there is nothing to look at: each turn would cost more in waking up than in work.
const (
	minPause  = 10 * time.Millisecond
	maxPause  = 500 * time.Millisecond
	idlePause = 5 * time.Second
)

// iterate does what is due and returns how long there is nothing to do. A panic in one part costs that part until the
// next turn: what cannot be planned is still released by its deadline.
func (l *Loop) iterate(logger klog.Logger) (pause time.Duration) {
	defer func() {
		if r := recover(); r != nil {
			panics.Count("hold")
			logger.Error(nil, "A turn of the hold loop panicked", "panic", r)
			pause = maxPause
		}
	}()
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

// idle reports whether nothing is held, followed or to be written.
func (l *Loop) idle() bool {
	for range l.starts.Range {
		return false
	}
	return len(l.jobs.byUID)+len(l.pods.byUID)+len(l.notes)+len(l.releaseEvents)+len(l.pendingNotes) == 0
}

// setBack handles a clock that was set back: times that were noted before would otherwise lie in the future.
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

// safely keeps a panic in one part of the work from taking the others along. It returns whether there was none.
func safely(logger klog.Logger, f func()) (ok bool) {
	defer func() {
		if r := recover(); r != nil {
			if times := panics.Count("hold"); panics.Worth(times) {
				logger.Error(nil, "A part of the hold loop panicked", "times", times, "panic", r, "stack",
					string(debug.Stack()))
			}
		}
	}()
	f()
	return true
}

// planAll plans what was not planned on the present view, a chunk per turn, and reports whether some are left.
func (l *Loop) planAll(logger klog.Logger, now time.Time) (more bool) {
	view := l.known()
	if !view.Settled() {
		return false // whether anything may wait is not known yet; deadlines are
	}
	began := time.Now()
	for _, q := range [2]*queue{l.pods, l.jobs} {
		for chunk := planChunk; chunk > 0; chunk -= planStep {
			some, rest := q.outdated(view, now, planStep)
			for _, h := range some {
				if !safely(logger, func() { l.planOne(logger, h, view, now) }) && h.basis == unplanned {
					q.free(h, "planning it panicked")
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

// planStep is how many are planned between two looks at the time.
const planStep = 20

func (l *Loop) planOne(logger klog.Logger, h *hold, view *kube.View, now time.Time) {
	// A view may change the plan, or, once the window has opened, the deadline.
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

// evaluate reads from the view whether a hold may wait, for what, and how long. What was planned on other
// answers is to be planned again.
func (l *Loop) evaluate(h *hold, view *kube.View) {
	job, settings := h.settled(view)
	wishes := asks(&job, &settings)
	if wishes == h.asked {
		return
	}
	changed := h.asked != 0
	if changed && !h.reported.IsZero() {
		h.reported = outdated
	}
	if changed && h.basis == onForecast {
		h.basis = fixed // what the owner changed is obeyed at once, also where nothing was told yet
	}
	h.asked, h.moved = wishes, time.Time{}
	l.setLatest(h, job.LatestStart())
	h.cut = changed && h.latest.Before(l.clock.Now())
	if t, ok := l.gate.ticket(h.UID); ok {
		t.latest.Store(h.latest.UnixNano())
	}
	switch {
	case h.state >= releasing: // which is final
	case h.cron != nil && !job.Released:
		h.queue.enter(h, lookingUp) // a lookup that was made for other settings counts no longer
		uid, run, namespace, name := h.UID, h.cron, h.namespace(), h.name
		l.goes(func(ctx context.Context) { l.clampToTick(ctx, uid, namespace, name, run, job, wishes) })
	default:
		h.queue.enter(h, waiting)
	}
}

// setLatest changes the deadline of a hold and lets it be planned again.
func (l *Loop) setLatest(h *hold, latest time.Time) {
	q := h.queue
	q.move(h, timeutil.Later(latest, h.submitted))
	h.start = timeutil.Earlier(h.start, h.latest)
	q.enter(h, h.state)
	q.plan(h)
}

func (l *Loop) post(f func()) { l.mail.post(f) }

// eventQueue carries work to the loop without ever making the sender wait.
type eventQueue struct {
	mu    sync.Mutex
	mail  []func()
	ready chan struct{}
}

func (m *eventQueue) post(f func()) {
	m.mu.Lock()
	m.mail = append(m.mail, f)
	m.mu.Unlock()
	kube.Poke(m.ready)
}

func (m *eventQueue) drain() []func() {
	m.mu.Lock()
	defer m.mu.Unlock()
	mail := m.mail
	m.mail = nil
	return mail
}
