package signal

import (
	"context"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/kube"
)

const (
	// retrain is the interval between trainings. Training more often is hardly more accurate. Models are trained on
	// the history until a multiple of this interval, so that a restart does not change them.
	retrain = 7 * 24 * time.Hour
	// trainedAhead is the horizon of trained models. Forecasts may start after a short gap.
	trainedAhead  = buildAhead + bridged*time.Hour
	firstTraining = 15 * time.Second // after the start, when the history has been read
	checkTraining = 10 * time.Minute
)

// oneTraining limits the processor time and the memory for training: one zone at a time, on one processor.
var oneTraining sync.Mutex

// A training is a trained model and the history that it was trained on.
type training struct {
	trained      *forecast.Trained
	start, until time.Time
}

// model returns the model if it is more accurate than the plain ones, or nil.
func (t *training) model() *forecast.Trained {
	if t == nil || !t.trained.Better() {
		return nil
	}
	return t.trained
}

// train keeps the trained model current until ctx is done.
func (k *Keeper) train(ctx context.Context) {
	for wait := firstTraining; kube.Pause(ctx, wait); wait = checkTraining {
		k.retrain(ctx, k.deps.Clock().Truncate(retrain))
	}
}

// retrain trains a model on the history until the given time, unless there is such a model or the history is too
// short. A model of a zone with a longer history, for example after past values have been read, replaces the previous
// one.
func (k *Keeper) retrain(ctx context.Context, until time.Time) {
	history := k.archive.until(until)
	if history == nil || history.End().Sub(history.Start()) < forecast.MinTraining(trainedAhead) {
		return
	}
	k.mu.Lock()
	last := k.trained
	k.mu.Unlock()
	if last != nil && last.until.Equal(until) && !history.Start().Before(last.start) {
		return
	}
	oneTraining.Lock()
	defer oneTraining.Unlock()
	log := k.deps.Log.With("zone", k.terms.zone)
	trained, err := forecast.Train(ctx, history, trainedAhead)
	if err != nil {
		if ctx.Err() == nil {
			log.Warn("Failed to train a forecast of the carbon intensity", "err", err)
		}
		return
	}
	log.Info("Trained a forecast of the carbon intensity", "days", int(until.Sub(history.Start()).Hours()/24),
		"errorPercent", trained.Error, "errorOfPlainModelsPercent", trained.BestError, "used", trained.Better())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trained = &training{trained, history.Start(), until}
}
