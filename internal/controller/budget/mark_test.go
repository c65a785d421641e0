package budget

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// TestMarksSayWhatIsSo verifies that workloads are marked only after a limit is exceeded, and with the exceeded
// amount only if it is an energy limit.
func TestMarksSayWhatIsSo(t *testing.T) {
	// actions stored before such thresholds were rejected
	early := []v1alpha1.BudgetAction{{At: 50, Do: v1alpha1.DeedAnnotate}, {At: 80, Do: v1alpha1.DeedLabel}}
	carbon := v1alpha1.BudgetLimits{CarbonGrams: new(100.0)}
	for name, tc := range map[string]struct {
		used   float64
		limits v1alpha1.BudgetLimits
		marked bool
		by     string
	}{
		"below the limit": {used: 0.9, limits: v1alpha1.BudgetLimits{EnergyKWh: new(1.0)}},
		"above the limit": {
			used: 1.25, limits: v1alpha1.BudgetLimits{EnergyKWh: new(1.0)}, marked: true,
			by: "0.250000",
		},
		"emissions":        {used: 1, limits: carbon, marked: true},
		"emissions, below": {used: 0.15, limits: carbon},
		"not energy": {
			used: 1, limits: v1alpha1.BudgetLimits{EnergyKWh: new(5.0), CarbonGrams: new(100.0)},
			marked: true,
		},
	} {
		for _, per := range []string{v1alpha1.PerScope, v1alpha1.PerWorkload} {
			t.Run(name+" per "+per, func(t *testing.T) {
				clock := &clockAt{monday.Add(time.Hour)}
				w := newWorld(t, newJob("j", nil), newBudget(func(b *v1alpha1.EnergyBudget) {
					b.Spec.Per, b.Spec.Limits, b.Spec.Period.Type = per, tc.limits, v1alpha1.PeriodLifetime
				}, early...))
				w.used(monday, monday.Add(time.Minute), energyOf(tc.used), "team", "Job/j")
				e := w.engine("a", nil, clock.now)
				for range 2 {
					e.sweepAndWork(t.Context())
				}
				j := w.job("j")
				by, has := j.Annotations[v1alpha1.AnnotationBudgetExceededBy]
				if (j.Annotations[v1alpha1.AnnotationBudgetExceeded] != "") != tc.marked ||
					(j.Labels[v1alpha1.AnnotationBudgetExceeded] != "") != tc.marked ||
					by != tc.by || has != (tc.by != "") {
					t.Errorf("%v %v", j.Annotations, j.Labels)
				}
			})
		}
	}
}

// merging decodes into existing objects without clearing them, as a client of the API server does.
type merging struct{ client.Client }

func (m merging) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	now := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if err := m.Client.Get(ctx, key, now, opts...); err != nil {
		return err
	}
	text, err := json.Marshal(now)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, o)
}

func TestTheLatestHasNothingOfTheFormer(t *testing.T) {
	b := newBudget(func(*v1alpha1.EnergyBudget) {})
	w := newWorld(t, b)
	seen := b.DeepCopy()
	seen.Labels, seen.Status.Exhausted = map[string]string{"former": "yes"}, true
	seen.Status.Actions = []v1alpha1.BudgetActionTaken{{At: 100, Message: "former", Done: stamp(monday)}}
	err := w.engine("a", merging{w.api}, nil).onLatest(t.Context(), seen, true, func(o client.Object) error {
		latest := o.(*v1alpha1.EnergyBudget)
		if len(latest.Labels) != 0 || latest.Status.Exhausted || len(latest.Status.Actions) != 0 {
			t.Errorf("%+v", latest)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestADeedThatTakesTooLongIsNotDone verifies that a timeout is returned as an error.
func TestADeedThatTakesTooLongIsNotDone(t *testing.T) {
	late := func(client.Object) error { return context.DeadlineExceeded }
	if err := new(Engine).onLatest(t.Context(), newJob("j", nil), false, late); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
