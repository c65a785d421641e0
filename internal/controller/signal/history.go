package signal

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/past"
	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

const (
	// historySpan is the length of the history that is kept in steps of five minutes, and of the part of a file that
	// is read again.
	historySpan = 28 * 24 * time.Hour

	// retrain is the interval between trainings. Training more often is hardly more accurate. Models are trained on
	// the history until a multiple of this interval, so that a restart does not change them.
	retrain = 7 * 24 * time.Hour
	// trainedAhead is the horizon of trained models. Forecasts may start after a short gap.
	trainedAhead  = buildAhead + bridged*time.Hour
	firstTraining = 15 * time.Second // after the start, when the history has been read
	checkTraining = 10 * time.Minute
	retryPast     = time.Hour
)

// pastSource is a source that provides past values in full hours.
type pastSource interface {
	Past(ctx context.Context, now time.Time) ([]Point, error)
}

// newArchive returns the archive of a signal. Another first source, apart from its intervals, or another currency has
// an archive of its own.
func newArchive(w terms, first spec, states past.States) *past.Archive {
	first.Every, first.MaxCallsPerHour = nil, nil
	text, err := json.Marshal([]any{first.CarbonSource, first.tariff, first.entsoe, first.octopus})
	if err != nil {
		panic(err) // specs come from JSON
	}
	digest := sha256.Sum256(text)
	return past.NewArchive(fmt.Sprintf("signal/%s/%s/%s/%s/%x/", w.zone, w.quantity, Kind(w.marginal), w.currency,
		digest[:8]), states)
}

// observes reports whether the values of a source are observations, which form the history, unlike a constant, a
// tariff or a typical day.
func (l *link) observes() bool {
	return l.kind != "static" && l.kind != "tariff" && l.kind != "typical"
}

// addTo adds the values of an answer up to now to a track.
func (a *Answer) addTo(t *past.Track, now time.Time) {
	oldest := now.Add(-t.Span)
	for i, p := range a.Points {
		end := p.Time.Add(a.hold(i))
		for at := timeutil.Later(p.Time, oldest); !at.After(now) && at.Before(end); at = at.Add(past.Slot) {
			t.Set(at, p.Value)
		}
	}
}

// recall stores the history, after filling hours without a value, for example while the controller was down, from
// sources that provide past values. A file of the spec also replaces other values. It retries failed sources after an
// hour.
func (k *Keeper) recall(ctx context.Context, now time.Time) {
	if !now.Before(k.retry) {
		k.retry = now.Add(retryPast)
		k.past = slices.DeleteFunc(k.past, func(l *link) bool {
			points, err := l.source.(pastSource).Past(ctx, now)
			k.report("read the past values of "+l.name, l.concealed(err))
			values := map[time.Time]float64{}
			for _, p := range points {
				if k.terms.value(p) == nil { // other values are still useful
					values[p.Time.UTC().Truncate(time.Hour)] = p.Value
				}
			}
			k.archive.Fill(values, l.kind != "prometheus", now)
			return err == nil
		})
	}
	k.report("store the history", k.archive.Save(ctx))
}

// report logs a failure, unless the same task failed before.
func (k *Keeper) report(task string, err error) {
	if err != nil && !k.failing[task] {
		k.deps.Log.Warn("Failed to "+task, "zone", k.terms.zone, "quantity", k.terms.quantity, "err", err)
	}
	k.failing[task] = err != nil
}

// score adds the forecast of a status to the archive, and the accuracy of previous ones to the status and to metrics.
func (k *Keeper) score(s *v1alpha1.SignalStatus, now time.Time) {
	k.archive.Issue(s, now)
	k.archive.Misses(now, func(lead string, off float64) {
		if k.terms.quantity == carbon {
			k.deps.Metrics.misses.WithLabelValues(string(k.terms.zone), lead).Observe(off)
		}
	})
	s.Accuracy = k.archive.Accuracy(now)
}

// oneTraining limits the processor time and the memory for training: one zone at a time, on one processor.
var oneTraining = make(chan struct{}, 1)

// A training is a model and the history that it was trained on.
type training struct {
	trained      *forecast.Trained // nil after a failure
	start, until time.Time
}

// model returns the model if it is more accurate than the plain ones, or nil.
func (t *training) model() *forecast.Trained {
	if t == nil || t.trained == nil || !t.trained.Better() {
		return nil
	}
	return t.trained
}

// train keeps the trained model current until ctx is done.
func (k *Keeper) train(ctx context.Context) {
	for wait := firstTraining; kube.Pause(ctx, wait); wait = checkTraining {
		panics.Survive(k.deps.Log, "training", "training a forecast", func() {
			k.retrain(ctx, k.deps.Clock().Truncate(retrain))
		})
	}
}

// retrain trains a model on the history until the given time, unless there is such a model or the history is too
// short. A model with a longer history, for example after past values have been read, replaces the previous one.
func (k *Keeper) retrain(ctx context.Context, until time.Time) {
	history := k.archive.Longest(until)
	if history == nil || history.End().Sub(history.Start()) < forecast.MinTraining(trainedAhead) {
		return
	}
	k.mu.Lock()
	last := k.trained
	k.mu.Unlock()
	if last != nil && last.until.Equal(until) && !history.Start().Before(last.start) {
		return
	}
	select {
	case oneTraining <- struct{}{}:
		defer func() { <-oneTraining }()
	case <-ctx.Done():
		return
	}
	trained, err := forecast.Train(ctx, history, trainedAhead)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		k.deps.Log.Warn("Failed to train a forecast of the carbon intensity", "zone", k.terms.zone, "err", err)
	} else {
		k.deps.Log.Info("Trained a forecast of the carbon intensity", "zone", k.terms.zone, "days",
			int(history.End().Sub(history.Start()).Hours()/24), "errorPercent", trained.Error,
			"errorOfPlainModelsPercent", trained.BestError, "better", trained.Better())
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trained = &training{trained, history.Start(), until}
}
