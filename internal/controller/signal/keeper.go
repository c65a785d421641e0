package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Default ages and intervals of a keeper.
const (
	defaultCarbonAge = 2 * time.Hour
	defaultPriceAge  = 36 * time.Hour
	firstPollWithin  = 5 * time.Second // random delay after the start, so that polls do not coincide
	firstRetry       = time.Minute     // after a failure, doubled for each further one up to the polling interval
	hopelessRetry    = 15 * time.Minute
	idle             = time.Hour
)

// Keeper maintains a quantity of a zone. It polls a chain of sources, uses the first one with a valid and recent
// answer, and forecasts future values.
type Keeper struct {
	terms   terms
	deps    Deps
	links   []*link
	typical *forecast.Curve // forecast without a history; may be nil
	archive *past.Archive
	past    []*link // sources of past values that have not been read yet; each is a pastSource
	retry   time.Time
	failing map[string]bool // by task, see report

	mu      sync.Mutex // guards history and trained, and status, issued and err of all links
	history past.Track
	trained *training // nil before the first training
}

// link is a source in a chain with its polling state.
type link struct {
	kind   string // field name in a GridZone, e.g. electricityMaps or static
	name   string // kind, with a number if it is not the first source of its kind
	source Source
	every  time.Duration
	asks   bool // whether the source sends requests, which are limited by a budget

	account string   // name in the budget; only if asks is set
	fetcher *fetcher // only if asks is set

	// Only used by the polling goroutine.
	next   time.Time
	asked  bool
	fails  int
	still  standstill
	recent []Point // see replaceOutliers

	status *v1alpha1.SignalStatus // from the last valid answer; nil if there was none
	issued time.Time              // time of the forecast in status
	err    error                  // of the last poll
}

// NewCarbonKeeper returns a keeper for the carbon intensity of a zone.
func NewCarbonKeeper(zone grid.Zone, of *v1alpha1.CarbonSpec, d Deps) (*Keeper, error) {
	sources := sliceutil.Map(of.Sources, func(s v1alpha1.CarbonSource) spec { return spec{CarbonSource: s} })
	w := terms{zone: zone, quantity: carbon, marginal: of.Signal == signalMarginal, maxAge: defaultCarbonAge}
	k, err := newKeeper(w, of.MaxAge, d, sources)
	if err != nil || of.History == nil {
		return k, err
	}
	file, err := newFile(w, of.History, d.Data)
	if marginal := of.History.Signal == signalMarginal; marginal != w.marginal {
		err = dial.Refuse(dial.ReasonKind, "the file contains %s intensity, want %s", Kind(marginal), Kind(w.marginal))
	}
	if err != nil {
		return nil, fmt.Errorf("history of zone %s: %w", zone, err)
	}
	k.past = append(k.past, &link{name: "history", source: file})
	return k, nil
}

// NewPriceKeeper returns a keeper for the electricity price of a zone.
func NewPriceKeeper(zone grid.Zone, of *v1alpha1.PriceSpec, d Deps) (*Keeper, error) {
	w := terms{zone: zone, quantity: price, currency: of.Currency, maxAge: defaultPriceAge}
	return newKeeper(w, of.MaxAge, d, sliceutil.Map(of.Sources, specOf))
}

func newKeeper(w terms, maxAge *metav1.Duration, d Deps, sources []spec) (*Keeper, error) {
	if len(sources) == 0 {
		return nil, fmt.Errorf("signal %s of zone %s: want at least one source", w.quantity, w.zone)
	}
	if maxAge != nil && maxAge.Duration > 0 {
		w.maxAge = maxAge.Duration
	}
	b := builder{terms: w, deps: d, names: make(map[string]int)}
	for _, s := range sources {
		if err := b.add(s); err != nil {
			return nil, fmt.Errorf("signal %s of zone %s: %w", w.quantity, w.zone, err)
		}
	}
	k := &Keeper{
		terms: w, deps: b.deps, links: b.links, history: past.Track{Span: historySpan},
		archive: newArchive(w, sources[0], d.States), failing: map[string]bool{},
	}
	for _, l := range k.links {
		if _, ok := l.source.(pastSource); ok {
			k.past = append(k.past, l)
		}
	}
	if w.quantity == carbon && !w.marginal {
		curve, _ := forecast.TypicalDay(w.zone)
		k.typical = &curve
	}
	return k, nil
}

// Run polls the sources until ctx is done. It calls changed when the result of Look may have changed.
func (k *Keeper) Run(ctx context.Context, changed func()) {
	ctx, cancel := context.WithCancel(ctx)
	var training sync.WaitGroup
	k.deps.Metrics.add(k)
	defer func() {
		cancel()
		k.deps.Metrics.remove(k)
		training.Wait()
	}()
	k.start(k.deps.Clock())
	if k.terms.quantity == carbon {
		training.Go(func() { k.train(ctx) })
	}
	for {
		k.report("read the history", k.archive.Load(ctx))
		next := k.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		k.recall(ctx, k.deps.Clock())
		changed()
		if !kube.Pause(ctx, max(time.Second, next.Sub(k.deps.Clock()))) {
			return
		}
	}
}

// start schedules the first poll of each source. Sources with a valid status from a previous process are polled
// later than others.
func (k *Keeper) start(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range k.links {
		switch {
		case !l.asks:
			l.next = now
		case !expired(l.status, now, k.terms.maxAge):
			wait := l.every/2 + rand.N(l.every/2+1)
			l.next = timeutil.Earlier(now.Add(wait), end(l.status, k.terms.maxAge))
		default:
			l.next = now.Add(rand.N(firstPollWithin))
		}
	}
}

// ask polls a source and updates its state.
func (k *Keeper) ask(ctx context.Context, l *link, now time.Time) {
	l.asked = true
	lacks, err := k.fetch(ctx, l, now)
	if err != nil && ctx.Err() != nil {
		return // the poll was canceled; this is not a failure of the source
	}
	now = k.deps.Clock()
	k.remember(ctx, l, err, now)
	err, lacks = l.concealed(err), l.concealed(lacks)
	log := k.deps.Log.With("zone", k.terms.zone, "quantity", k.terms.quantity, "source", l.name)
	if err == nil {
		l.fails = 0
		l.next = now.Add(jittered(l.every))
	} else {
		k.deps.Metrics.rejected.WithLabelValues(string(k.terms.zone), string(k.terms.quantity), l.name,
			string(dial.ReasonOf(err))).Inc()
		l.fails++
		l.next = now.Add(l.pause(err))
	}
	said := cmp.Or(err, lacks)
	k.mu.Lock()
	changed := outcome(l.err) != outcome(said) // a message is logged only if the reason has changed
	l.err = said
	k.mu.Unlock()
	switch {
	case !changed:
	case err != nil:
		log.Warn("Signal source failed", "reason", dial.ReasonOf(err), "err", err)
	case lacks != nil:
		log.Warn("Signal source returned incomplete data", "err", lacks)
	default:
		log.Info("Signal source is working")
	}
}

// concealed removes the keys of a source from an error, because a server may echo the request in its response.
func (l *link) concealed(err error) error {
	if err == nil || l.fetcher == nil {
		return err
	}
	text := err.Error()
	hidden := l.fetcher.Secrets.Conceal(text)
	if hidden == text {
		return err
	}
	clean := dial.Error{Reason: dial.ReasonOf(err)}
	if e, ok := errors.AsType[*dial.Error](err); ok {
		clean = *e
	}
	clean.Err = errors.New(hidden)
	return &clean
}

// remember blocks a source in the budget for the delay requested by its provider, or while retries are pointless,
// so that the delay also applies after a restart of the process.
func (k *Keeper) remember(ctx context.Context, l *link, err error, now time.Time) {
	e, ok := errors.AsType[*dial.Error](err)
	if !ok || e.Status == 0 || l.account == "" {
		return
	}
	wait := e.Wait
	if e.Reason == dial.ReasonAuth {
		wait = max(wait, l.every, hopelessRetry)
	}
	if wait <= maxInPlace {
		return
	}
	if err := k.deps.Calls.Block(ctx, l.account, now.Add(wait), now); err != nil {
		k.deps.Log.Warn("Failed to store the delay requested by a signal source", "source", l.account, "err", err)
	}
}

// pause returns the delay after a failure.
func (l *link) pause(err error) time.Duration {
	wait := min(l.every, firstRetry<<min(l.fails, 10))
	switch dial.ReasonOf(err) {
	case dial.ReasonAuth, dial.ReasonKind, dial.ReasonUnit, dial.ReasonAddress:
		wait = max(l.every, hopelessRetry) // requires action by an administrator
	case dial.ReasonRate:
		wait = l.every
	}
	if e, ok := errors.AsType[*dial.Error](err); ok {
		wait = max(wait, e.Wait)
	}
	return jittered(wait)
}

// jittered returns d increased by up to 5 %, so that sources do not remain synchronized.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/20+1) }

// fetch polls a source, validates the answer and adds a forecast. A panic is returned as an error.
func (k *Keeper) fetch(ctx context.Context, l *link, now time.Time) (lacks, err error) {
	defer func() {
		if p := recover(); p != nil {
			panics.Note("signal")
			lacks, err = nil, dial.Refuse(dial.ReasonShape, "reading the response: %v", p)
		}
	}()
	a, err := l.source.Fetch(ctx, now)
	if err != nil {
		return nil, err
	}
	now = k.deps.Clock() // a slow response must not appear to be from the future
	present, err := k.terms.check(&a, now)
	if err != nil {
		return nil, err
	}
	if k.terms.quantity == carbon {
		if err := l.still.frozen(&a, now); err != nil {
			return nil, err
		}
	}
	if !a.Ageless {
		received := present
		l.recent = k.terms.replaceOutliers(&a, l.recent, now)
		if present, err = k.terms.present(&a, now); err != nil {
			return nil, err
		}
		if present.Value != received.Value {
			a.Lacks = cmp.Or(a.Lacks, dial.Refuse(dial.ReasonRange,
				"the value %v at %s is implausible; using %v until the next value", received.Value,
				received.Time.Format(time.RFC3339), present.Value))
		}
	}
	s := k.terms.read(&a, present, now, l.name)
	k.mu.Lock()
	defer k.mu.Unlock()
	b := basis{track: &k.history, typical: k.typical}
	if a.Ageless { // the response contains past values
		b.track = &past.Track{Span: historySpan}
	}
	if l.kind != "typical" { // not an observation
		a.addTo(b.track, now)
	}
	if l.observes() {
		k.archive.Note(b.track, now)
		b.archive, b.trained = k.archive, k.trained.model()
	}
	issued := l.complete(s, b, now)
	if b.archive != nil {
		k.score(s, now)
	}
	l.status, l.issued = s, issued
	return a.Lacks, nil
}
