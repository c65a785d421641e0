package status

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// Profiles reconciles the status of PowerProfiles.
type Profiles struct {
	Client client.Client
	View   func() *kube.View
	Now    func() time.Time
}

// SetUp registers the reconciler with a manager.
func (p *Profiles) SetUp(m manager.Manager) error {
	return builder.ControllerManagedBy(m).Named("powerprofile").
		For(&v1alpha1.PowerProfile{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(p)
}

// profileLook is the interval of updating the count of nodes, because changes of nodes and views are not watched.
const profileLook = 15 * time.Second

// Reconcile implements [reconcile.Reconciler].
func (p *Profiles) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var profile v1alpha1.PowerProfile
	if err := p.Client.Get(ctx, request.NamespacedName, &profile); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	status := v1alpha1.PowerProfileStatus{
		ObservedGeneration: profile.Generation, Conditions: slices.Clone(profile.Status.Conditions),
	}
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: reasonValid,
		Message:            "the profile is in effect",
		ObservedGeneration: profile.Generation, LastTransitionTime: metav1.NewTime(p.Now()),
	}
	if _, _, err := hardware.FromPowerProfile(&profile); err != nil {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, reasonInvalid,
			Bounded("the profile is ignored: "+err.Error())
	}
	changed := meta.SetStatusCondition(&status.Conditions, valid)
	nodes, err := p.nodes(ctx, profile.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	status.Nodes = nodes
	previous := &profile.Status
	if previous.ObservedGeneration == status.ObservedGeneration && previous.Nodes == status.Nodes && !changed {
		return reconcile.Result{RequeueAfter: profileLook}, nil
	}
	profile.Status = status
	again, _, err := Write(ctx, p.Client, &profile, profileLook)
	return again, err
}

// nodes returns the number of nodes that use a profile according to the view.
func (p *Profiles) nodes(ctx context.Context, name string) (int32, error) {
	view := p.View()
	profile := view.Profile(name)
	if profile == nil {
		return 0, nil
	}
	var all v1.NodeList
	if err := p.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing nodes: %w", err)
	}
	count := int32(0)
	for i := range all.Items {
		if known, _ := view.Hardware(&all.Items[i]); known == &profile.Profile {
			count++
		}
	}
	return count, nil
}
