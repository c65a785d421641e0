package hold

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// LeaseName is the Lease whose holder keeps windows and writes on objects.
const LeaseName = "kubenergy-hold"

const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// candidate returns what campaigns for the Lease until its context ends. Losing the Lease ends the early releases only,
// so the process goes on and campaigns again.
func (l *Loop) candidate() (campaign func(context.Context), err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica: %w", err)
	}
	l.identity = host + "_" + string(uuid.NewUUID())
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.namespace, Name: LeaseName},
			Client:     l.client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.identity},
		},
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		ReleaseOnCancel: true,
		Name:            LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				klog.FromContext(ctx).Info("Keeping windows from now on", "lease", klog.KRef(l.namespace, LeaseName),
					"identity", l.identity)
				l.post(l.lead)
			},
			OnStoppedLeading: func() { l.post(func() { l.leads = false }) },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("campaigning for lease %s/%s: %w", l.namespace, LeaseName, err)
	}
	return func(ctx context.Context) {
		for ctx.Err() == nil {
			elector.Run(ctx)
		}
	}, nil
}
