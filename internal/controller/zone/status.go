package zone

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/status"
)

// Reasons of the condition Ready.
const (
	reasonFresh       = "Fresh"       // the requested signals are known and recent enough
	reasonStale       = "Stale"       // the last valid response is too old
	reasonNoData      = "NoData"      // no source has returned a valid response yet
	reasonInvalidSpec = "InvalidSpec" // the sources cannot be queried with this spec
	reasonNoSignal    = "NoSignal"    // the spec requests neither carbon intensity nor price
)

// statusOf returns the desired status of a zone at the given time.
func (z *Reconciler) statusOf(zone *v1alpha1.GridZone, known *knownZone, now time.Time) *v1alpha1.GridZoneStatus {
	s := &v1alpha1.GridZoneStatus{
		ObservedGeneration: zone.Generation, Conditions: slices.Clone(zone.Status.Conditions),
	}
	var carbonErr, priceErr error
	s.Carbon, carbonErr = known.carbon.look(now)
	s.Price, priceErr = known.price.look(now)
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, ObservedGeneration: zone.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	previous := meta.FindStatusCondition(zone.Status.Conditions, v1alpha1.ConditionReady)
	stale := previous != nil && (previous.Reason == reasonFresh || previous.Reason == reasonStale)
	switch {
	case known.carbon.spec != nil:
		ready.Status, ready.Reason, ready.Message = known.carbon.verdict(s.Carbon, carbonErr, stale)
		if known.price.spec != nil {
			had := zone.Status.Price != nil
			if ok, _, message := known.price.verdict(s.Price, priceErr, had); ok != metav1.ConditionTrue {
				ready.Message += "; price: " + message
			}
		}
	case known.price.spec != nil:
		ready.Status, ready.Reason, ready.Message = known.price.verdict(s.Price, priceErr, stale)
	default:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonNoSignal,
			"the spec requests neither carbon intensity nor price"
	}
	ready.Message = status.Bounded(ready.Message)
	meta.SetStatusCondition(&s.Conditions, ready)
	return s
}

func (s *knownSignal) look(now time.Time) (*v1alpha1.SignalStatus, error) {
	if s.keeper == nil {
		return nil, s.err
	}
	return s.keeper.Look(now)
}

// verdict returns the condition of a requested signal. had reports whether the signal was known before.
func (s *knownSignal) verdict(current *v1alpha1.SignalStatus, trouble error, had bool,
) (status metav1.ConditionStatus, reason, message string) {
	status, message, reason = metav1.ConditionFalse, "no source has returned a valid response yet", reasonNoData
	colon := ": "
	switch {
	case s.err != nil:
		return status, reasonInvalidSpec, s.err.Error()
	case current != nil:
		status, reason = metav1.ConditionTrue, reasonFresh
		message, colon = "known from "+current.Source, "; other sources failed: "
	case had:
		message, reason = "the last valid response is too old", reasonStale
	}
	if trouble != nil {
		message += colon + trouble.Error()
	}
	return status, reason, message
}

// zoneChanged reports whether two statuses differ enough to be worth a write.
func zoneChanged(previous, current *v1alpha1.GridZoneStatus) bool {
	return !reflect.DeepEqual(previous.Nodes, current.Nodes) || signalChanged(previous.Carbon, current.Carbon) ||
		signalChanged(previous.Price, current.Price) || !reflect.DeepEqual(previous.Conditions, current.Conditions)
}

// Changes smaller than these do not cause a write.
const (
	sameAge   = time.Minute // of the timestamp of the source
	sameReach = time.Hour   // of the end of the forecast, which moves as time passes
)

// signalChanged reports whether the current or a future value of a signal has changed. Dropping past values and
// moving the end of the forecast by less than sameReach are not changes.
func signalChanged(previous, current *v1alpha1.SignalStatus) bool {
	if previous == nil || current == nil {
		return previous != current
	}
	return previous.Now != current.Now || previous.Unit != current.Unit || previous.Quality != current.Quality ||
		previous.Source != current.Source || previous.ForecastSource != current.ForecastSource ||
		ageChanged(previous.AsOf, current.AsOf) || futureChanged(previous, current)
}

func ageChanged(previous, current *metav1.Time) bool {
	if previous == nil || current == nil {
		return previous != current
	}
	return current.Sub(previous.Time).Abs() >= sameAge
}

func futureChanged(previous, current *v1alpha1.SignalStatus) bool {
	step := current.Step.Duration
	if step <= 0 || step != previous.Step.Duration || current.Start.Sub(previous.Start.Time)%step != 0 {
		return true
	}
	shift := int(current.Start.Sub(previous.Start.Time) / step)
	reach := shift + len(current.Values) - len(previous.Values)
	if shift < 0 || shift >= len(previous.Values) || (time.Duration(reach)*step).Abs() >= sameReach {
		return true
	}
	for _, pair := range [][2][]float64{{previous.Values, current.Values}, {previous.Low, current.Low},
		{previous.High, current.High}} {
		if (len(pair[0]) == 0) != (len(pair[1]) == 0) {
			return true
		}
		if len(pair[0]) == 0 {
			continue
		}
		rest := pair[0][min(shift, len(pair[0])):]
		common := min(len(rest), len(pair[1]))
		if !slices.Equal(rest[:common], pair[1][:common]) {
			return true
		}
	}
	return false
}
