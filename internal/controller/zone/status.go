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

// The reasons of the condition Ready.
const (
	reasonFresh       = "Fresh"       // what is asked for is known and young enough
	reasonStale       = "Stale"       // the last good answer is too old
	reasonNoData      = "NoData"      // no source has answered well yet
	reasonInvalidSpec = "InvalidSpec" // the sources cannot be asked as they are written
	reasonNoSignal    = "NoSignal"    // neither carbon intensity nor price is asked for
)

// statusOf returns what the status of a zone should say now.
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
	was := meta.FindStatusCondition(zone.Status.Conditions, v1alpha1.ConditionReady)
	stale := was != nil && (was.Reason == reasonFresh || was.Reason == reasonStale)
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
			"the spec asks for neither carbon intensity nor price"
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

// verdict says whether a signal that is asked for can be used. had says that it could be before.
func (s *knownSignal) verdict(is *v1alpha1.SignalStatus, trouble error, had bool,
) (status metav1.ConditionStatus, reason, message string) {
	status, message, reason = metav1.ConditionFalse, "no source has answered well yet", reasonNoData
	colon := ": "
	switch {
	case s.err != nil:
		return status, reasonInvalidSpec, s.err.Error()
	case is != nil:
		status, reason = metav1.ConditionTrue, reasonFresh
		message, colon = "known from "+is.Source, "; others did not answer well: "
	case had:
		message, reason = "the last good answer is too old", reasonStale
	}
	if trouble != nil {
		message += colon + trouble.Error()
	}
	return status, reason, message
}

// zoneChanged reports whether a status says something that the other one does not.
func zoneChanged(was, is *v1alpha1.GridZoneStatus) bool {
	return !reflect.DeepEqual(was.Nodes, is.Nodes) || signalChanged(was.Carbon, is.Carbon) ||
		signalChanged(was.Price, is.Price) || !reflect.DeepEqual(was.Conditions, is.Conditions)
}

// Changes below these are not worth a write.
const (
	sameAge   = time.Minute // of the source's own timestamp
	sameReach = time.Hour   // of the end of the forecast, which moves with the time that passes
)

// signalChanged reports whether a signal has another value now, or another future. That its past is cut off, and its
// end has moved a little, is no change.
func signalChanged(was, is *v1alpha1.SignalStatus) bool {
	if was == nil || is == nil {
		return was != is
	}
	if was.Now != is.Now || was.Unit != is.Unit || was.Quality != is.Quality || was.Source != is.Source ||
		was.ForecastSource != is.ForecastSource {
		return true
	}
	return ageChanged(was.AsOf, is.AsOf) || futureChanged(was, is)
}

func ageChanged(was, is *metav1.Time) bool {
	if was == nil || is == nil {
		return was != is
	}
	return is.Sub(was.Time).Abs() >= sameAge
}

func futureChanged(was, is *v1alpha1.SignalStatus) bool {
	step := is.Step.Duration
	if step <= 0 || step != was.Step.Duration || is.Start.Sub(was.Start.Time)%step != 0 {
		return true
	}
	shift := int(is.Start.Sub(was.Start.Time) / step)
	reach := shift + len(is.Values) - len(was.Values)
	if shift < 0 || shift >= len(was.Values) || (time.Duration(reach)*step).Abs() >= sameReach {
		return true
	}
	for _, pair := range [][2][]float64{{was.Values, is.Values}, {was.Low, is.Low}, {was.High, is.High}} {
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
