package hold

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// campaign competes for the Lease until ctx ends. Losing it ends the early releases only, so the process goes on and
// competes again.
func (l *Loop) campaign(ctx context.Context) {
	const renew = 5 * time.Second // a renewal costs 1 ms of CPU, more than all else that an idle loop does in that time
	kube.Lead(ctx, l.c.Client, l.c.Namespace, kube.HoldLease, l.identity, renew, func(term context.Context) {
		klog.FromContext(ctx).Info("Keeping windows from now on", "lease", klog.KRef(l.c.Namespace, kube.HoldLease),
			"identity", l.identity)
		l.post(l.lead)
		context.AfterFunc(term, func() { l.post(func() { l.leads = false }) })
	})
}
