package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lead tries to hold a Lease until ctx ends, and again where it is lost. Each time that it is held, led is called: its
// context ends when the Lease cannot be renewed any more. renew is how often the holder writes the Lease, which lasts
// for four such times, and for 15 s at least.
func Lead(ctx context.Context, c kubernetes.Interface, namespace, name, identity string, renew time.Duration,
	led func(context.Context),
) {
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
			},
			LeaseDuration: max(15*time.Second, 4*renew), RenewDeadline: max(10*time.Second, 3*renew),
			RetryPeriod: renew, ReleaseOnCancel: true, Name: name,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: led, OnStoppedLeading: func() {}},
		})
	}
}
