package status

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// PolicyOptions are the dependencies of [Policies].
type PolicyOptions struct {
	Client   client.Client
	Defaults policy.Defaults
	Held     func(namespace string) int // number of held Jobs; in all namespaces if namespace is empty
	Shadow   *Shadow
	Now      func() time.Time
	Log      *slog.Logger
}

// Policies reconciles the status of EnergyPolicies. An admission policy reads the namespaces in the status of the
// cluster's policy, so changes that affect it are written immediately, while counts are written with a delay.
type Policies struct {
	o       PolicyOptions
	changed atomic.Bool // a spec or a namespace has changed since the rules were built

	// Only used by the reconciling goroutine.
	wrote map[types.NamespacedName]time.Time
	built *rules
}

// NewPolicies returns a reconciler of EnergyPolicies.
func NewPolicies(o PolicyOptions) *Policies {
	return &Policies{o: o, wrote: map[types.NamespacedName]time.Time{}}
}

// SetUp registers the reconciler with a manager.
func (p *Policies) SetUp(m manager.Manager) error {
	spec, whole := p.noticing(predicate.GenerationChangedPredicate{}), p.noticing(predicate.Funcs{})
	return builder.ControllerManagedBy(m).Named("energypolicy").
		For(&v1alpha1.EnergyPolicy{}, builder.WithPredicates(spec)).
		Watches(&v1alpha1.EnergyPolicy{}, handler.EnqueueRequestsFromMapFunc(p.ofPolicy), builder.WithPredicates(spec)).
		Watches(&v1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(whole)).
		Complete(p)
}

// clusterPolicy is the key of the cluster-wide policy.
var clusterPolicy = types.NamespacedName{Namespace: v1alpha1.SystemNamespace, Name: v1alpha1.PolicyName}

// Interval of checking counts, and minimum interval of writing them.
const (
	policyLook  = 15 * time.Second
	policyWrite = 5 * time.Second
)

// Reasons of the condition Valid.
const (
	reasonValid      = "Valid"
	reasonInvalid    = "Invalid"
	reasonName       = "Name"                        // the EnergyPolicy does not have the required name
	reasonAnnotation = "NamespaceAnnotationsIgnored" // the policy is valid, but not the namespace's annotations
	reasonNamespaces = "TooManyNamespaces"           // the policy is valid, but its status cannot list all namespaces
)

// Reconcile implements [reconcile.Reconciler].
func (p *Policies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var own v1alpha1.EnergyPolicy
	if err := p.o.Client.Get(ctx, request.NamespacedName, &own); err != nil {
		if apierrors.IsNotFound(err) {
			delete(p.wrote, request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	rules, err := p.rules(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	status := p.status(&own, rules)
	previous := &own.Status
	urgent := previous.ObservedGeneration != status.ObservedGeneration || previous.Mode != status.Mode ||
		!maps.Equal(previous.Namespaces, status.Namespaces) || !reflect.DeepEqual(previous.Conditions,
		status.Conditions)
	if !urgent && previous.Held == status.Held && reflect.DeepEqual(previous.Shadow, status.Shadow) {
		return reconcile.Result{RequeueAfter: policyLook}, nil
	}
	if wait := p.wrote[request.NamespacedName].Add(policyWrite).Sub(p.o.Now()); wait > 0 && !urgent {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	own.Status = *status
	again, written, err := Write(ctx, p.o.Client, &own, policyLook)
	if written {
		p.wrote[request.NamespacedName] = p.o.Now()
	}
	return again, err
}

// rules are the effective rules of all policies and namespaces.
type rules struct {
	view       *kube.View
	objections map[string]error // errors in annotations and labels, by namespace
	summary    map[string]v1alpha1.NamespaceSummary
	untold     int // number of namespaces that do not fit into the summary
}

// maxNamespaces limits the namespaces in the status of the cluster's policy, which is sent with every write and
// must not exceed the maximum size of an object.
const maxNamespaces = 2000

// noticing returns a predicate that marks the rules as outdated if passes accepts an event. Predicates are
// evaluated before the request for an event is queued, so its reconciliation uses new rules.
func (p *Policies) noticing(passes predicate.Predicate) predicate.Predicate {
	return predicate.And(passes, predicate.NewPredicateFuncs(func(client.Object) bool {
		p.changed.Store(true)
		return true
	}))
}

// rules returns the current rules. They are only rebuilt after a change, because policies are reconciled frequently
// and rebuilding them for each of a thousand policies would be too expensive.
func (p *Policies) rules(ctx context.Context) (*rules, error) {
	if !p.changed.Swap(false) && p.built != nil {
		return p.built, nil
	}
	built, err := p.build(ctx)
	if err != nil {
		p.changed.Store(true)
		return nil, err
	}
	p.built = built
	return built, nil
}

func (p *Policies) build(ctx context.Context) (*rules, error) {
	var all v1alpha1.EnergyPolicyList
	if err := p.o.Client.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing EnergyPolicies: %w", err)
	}
	var namespaces v1.NamespaceList
	if err := p.o.Client.List(ctx, &namespaces, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	contents := kube.Contents{Defaults: p.o.Defaults, Policies: sliceutil.Refs(all.Items)}
	for i := range namespaces.Items {
		n := &namespaces.Items[i]
		contents.Namespaces = append(contents.Namespaces,
			policy.NamespaceMarks{Name: n.Name, Labels: n.Labels, Annotations: n.Annotations})
	}
	view, err := contents.View()
	if err != nil {
		return nil, fmt.Errorf("reading EnergyPolicies: %w", err)
	}
	if p.built == nil {
		p.o.Shadow.inherit(all.Items)
	}
	r := &rules{view: view, objections: map[string]error{}}
	for i := range contents.Namespaces {
		n := &contents.Namespaces[i]
		if _, err := policy.ReadNamespace(n); err != nil {
			r.objections[n.Name] = err
		}
	}
	r.summarise(contents.Namespaces)
	return r, nil
}

// status returns the current status of a policy.
func (p *Policies) status(own *v1alpha1.EnergyPolicy, rules *rules) *v1alpha1.EnergyPolicyStatus {
	status := &v1alpha1.EnergyPolicyStatus{
		ObservedGeneration: own.Generation, Conditions: slices.Clone(own.Status.Conditions),
	}
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: reasonValid,
		Message:            "the policy is in effect",
		ObservedGeneration: own.Generation, LastTransitionTime: metav1.NewTime(p.o.Now()),
	}
	if err := policy.ReadPolicy(own); err != nil {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, reasonInvalid,
			Bounded("the policy is ignored: "+err.Error())
	} else if own.Name != v1alpha1.PolicyName {
		valid.Status, valid.Reason = metav1.ConditionFalse, reasonName
		valid.Message = "the policy is ignored: only a policy with the name " + v1alpha1.PolicyName + " is used"
	} else if err := rules.objections[own.Namespace]; err != nil {
		valid.Reason, valid.Message = reasonAnnotation,
			Bounded("the policy is in effect, but some annotations of the namespace are invalid: "+err.Error())
	} else if rules.untold > 0 && client.ObjectKeyFromObject(own) == clusterPolicy {
		valid.Reason = reasonNamespaces
		valid.Message = fmt.Sprintf("the policy is in effect, but status.namespaces is limited to %d namespaces: Jobs "+
			"in the last %d namespaces by name are not held", maxNamespaces, rules.untold)
	}
	meta.SetStatusCondition(&status.Conditions, valid)
	if own.Name != v1alpha1.PolicyName {
		return status
	}
	status.Mode, _ = rules.view.Mode(own.Namespace)
	scope := own.Namespace
	if client.ObjectKeyFromObject(own) == clusterPolicy {
		scope = ""
		status.Namespaces = maps.Clone(rules.summary)
	}
	status.Held, status.Shadow = int32(p.o.Held(scope)), p.o.Shadow.status(scope)
	return status
}

// summarise collects the data of namespaces that admission needs: their mode, and whether work without annotations
// may be delayed. Namespaces without settings are omitted, and so are those with nothing but the label for the
// mode, which admission reads itself.
func (r *rules) summarise(namespaces []policy.NamespaceMarks) {
	slices.SortFunc(namespaces, func(a, b policy.NamespaceMarks) int { return cmp.Compare(a.Name, b.Name) })
	for i := range namespaces {
		n := &namespaces[i]
		if n.Name == v1alpha1.SystemNamespace {
			continue
		}
		own := r.view.Policies()[n.Name]
		_, optedIn := r.view.Mode(n.Name)
		labelled := policy.ModeOf(n.Labels)
		s := v1alpha1.NamespaceSummary{Mode: labelled, Delays: r.view.Delays(n.Name)}
		if own != nil {
			s.Mode = cmp.Or(labelled, own.Spec.Mode)
		}
		switch {
		case !optedIn || own == nil && labelled != "" && !s.Delays:
		case len(r.summary) >= maxNamespaces:
			r.untold++
		default:
			if r.summary == nil {
				r.summary = map[string]v1alpha1.NamespaceSummary{}
			}
			r.summary[n.Name] = s
		}
	}
}

// ofNamespace returns requests for the policies that depend on a namespace: its own policy and the cluster's
// policy.
func ofNamespace(_ context.Context, n client.Object) []reconcile.Request {
	return []reconcile.Request{
		{NamespacedName: clusterPolicy},
		{NamespacedName: types.NamespacedName{Namespace: n.GetName(), Name: v1alpha1.PolicyName}},
	}
}

// ofPolicy returns requests for the policies that depend on a policy. All policies depend on the cluster's policy,
// and the cluster's policy depends on all others.
func (p *Policies) ofPolicy(ctx context.Context, own client.Object) []reconcile.Request {
	if client.ObjectKeyFromObject(own) != clusterPolicy {
		return []reconcile.Request{{NamespacedName: clusterPolicy}}
	}
	var all v1alpha1.EnergyPolicyList
	if err := p.o.Client.List(ctx, &all); err != nil {
		p.o.Log.Warn("Failed to list EnergyPolicies, their modes will be updated later", "error", err)
	}
	return sliceutil.Map(all.Items, func(e v1alpha1.EnergyPolicy) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&e)}
	})
}
