package budget

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// holdPolicy is the binding of the admission policy that suspends new Jobs.
const holdPolicy = "kubenergy-hold"

// HoldsEnabled returns what [Options.MaySuspend] wants: budgets suspend Jobs as long as the binding is there that
// lets Jobs be held. An uninstall, and whoever breaks the glass, removes it first and then resumes everything; so
// nothing is suspended after that. The reader must not be a cache.
func HoldsEnabled(direct client.Reader) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, callTime)
		defer cancel()
		err := direct.Get(ctx, types.NamespacedName{Name: holdPolicy}, &admissionv1.MutatingAdmissionPolicyBinding{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	}
}
