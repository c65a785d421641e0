package hold

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// campaign runs leader election until ctx is done. A replica that loses the Lease only stops releasing before
// deadlines, so it keeps running and campaigns again.
func (l *Loop) campaign(ctx context.Context) {
	// a renewal takes 1 ms of CPU time, more than everything else that an idle loop does in that interval
	const renew = 5 * time.Second
	kube.Lead(ctx, l.c.Client, l.c.Namespace, kube.HoldLease, l.identity, renew, func(term context.Context) {
		klog.FromContext(ctx).Info("Acquired Lease of the hold loop", "lease", klog.KRef(l.c.Namespace, kube.HoldLease),
			"identity", l.identity)
		l.post(l.lead)
		if l.c.Pauses {
			l.goes(func(context.Context) { l.pauseJobs(term) })
		}
		context.AfterFunc(term, func() { l.post(func() { l.leads = false }) })
	})
}
