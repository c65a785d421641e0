package hold

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
)

// LeaseName is the Lease whose holder keeps windows and writes on objects.
const LeaseName = "kubenergy-hold"

// compete begins to compete for the Lease when there is something that only its holder does: a cluster that holds
// nothing writes no Lease.
func (l *Loop) compete() {
	if l.competed.IsZero() {
		l.competed = time.Now()
		l.goes(l.campaign)
	}
}

// ifLeading does what one replica alone is to do: if this one has the Lease, or gets it with its first try.
func (l *Loop) ifLeading(do func()) {
	const firstTry = 5 * time.Second
	if l.leads {
		do()
		return
	}
	if l.compete(); time.Since(l.competed) < firstTry {
		l.early = append(l.early, do)
	} else {
		l.early = nil
	}
}

// campaign competes for the Lease until ctx ends. Losing it ends the early releases only, so the process goes on and
// competes again.
func (l *Loop) campaign(ctx context.Context) {
	kube.Lead(ctx, l.client, l.namespace, LeaseName, l.identity, func(term context.Context) {
		klog.FromContext(ctx).Info("Keeping windows from now on", "lease", klog.KRef(l.namespace, LeaseName),
			"identity", l.identity)
		l.post(l.lead)
		context.AfterFunc(term, func() { l.post(func() { l.leads = false }) })
	})
}
