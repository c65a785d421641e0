package hold

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// usedUp publishes a used-up budget with the current time, which holds new work until the given time from now.
func (w *world) usedUp(until time.Duration) {
	w.t.Helper()
	end, asOf := metav1.NewTime(time.Now().Add(until)), metav1.NewTime(time.Now())
	w.know(kube.Contents{Budgets: []*v1alpha1.EnergyBudget{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "month"},
		Spec: v1alpha1.EnergyBudgetSpec{Actions: []v1alpha1.BudgetAction{{
			At: 100, Do: v1alpha1.DeedHoldNewWork,
		}}},
		Status: v1alpha1.EnergyBudgetStatus{ClosedUntil: &end, AsOf: &asOf},
	}}})
}

// keepUp publishes the used-up budget repeatedly, as the controller does, for the given time.
func (w *world) keepUp(until, how time.Duration) {
	end := time.Now().Add(until)
	for stop := time.Now().Add(how); time.Now().Before(stop); {
		w.usedUp(time.Until(end))
		time.Sleep(2 * time.Minute)
	}
}

// TestUsedUpBudgetHolds verifies that a used-up budget holds work even without signals.
func TestUsedUpBudgetHolds(t *testing.T) {
	during(t, nil, func(w *world) {
		w.usedUp(2 * time.Hour)
		w.job("j", marked(5*time.Hour))
		w.job("urgent", marked(0))
		if _, held := w.loop.Hold(w.pod("p", marked(5*time.Hour))); !held {
			t.Error("the pod is not held")
		}
		go w.keepUp(2*time.Hour, 2*time.Hour)
		w.wantJob("urgent", 0, 5*time.Second)
		w.wantJob("j", 2*time.Hour-time.Minute, 2*time.Hour+time.Second)
	})
}

// TestDeadlineBeatsTheBudget verifies that a used-up budget does not hold work beyond its deadline (promise P1).
func TestDeadlineBeatsTheBudget(t *testing.T) {
	during(t, nil, func(w *world) {
		w.usedUp(20 * time.Hour)
		w.job("j", marked(time.Hour))
		go w.keepUp(20*time.Hour, time.Hour)
		w.wantJob("j", time.Hour-time.Minute, time.Hour)
	})
}

// TestBudgetThatIsNoLongerUsedUp verifies that work is released when the limit of the budget is raised, even
// without signals.
func TestBudgetThatIsNoLongerUsedUp(t *testing.T) {
	during(t, nil, func(w *world) {
		w.usedUp(20 * time.Hour)
		w.job("j", marked(5*time.Hour))
		bubble.Advance(time.Minute)
		if !w.suspended("j") {
			t.Error("the Job is not held")
		}
		w.know(kube.Contents{})
		w.wantJob("j", 0, 5*time.Second)
	})
}

// TestDeadControllerHoldsNoWork verifies that the last reported usage of a budget expires after a few minutes
// without updates from the controller.
func TestDeadControllerHoldsNoWork(t *testing.T) {
	during(t, nil, func(w *world) {
		w.usedUp(20 * time.Hour)
		w.job("j", marked(5*time.Hour))
		w.wantJob("j", 5*time.Minute, 8*time.Minute)
	})
}
