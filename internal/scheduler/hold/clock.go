package hold

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// keepTime compares the clock with that of the API server periodically. It also does so when the local wall clock
// was set or the machine was suspended, since the monotonic clock stops during suspension.
func (l *Loop) keepTime(ctx context.Context) {
	const (
		look      = 5 * time.Second
		regularly = 10 * time.Minute
		tolerable = time.Second
	)
	logger := klog.FromContext(ctx)
	var compared time.Duration // drift at the last comparison
	for waited := regularly; ; waited += look {
		drift := l.clock.Drift()
		if waited >= regularly || (drift-compared).Abs() > tolerable {
			switch correction, err := l.clock.Compare(ctx); {
			case err != nil:
				logger.V(2).Info("Failed to read the time of the API server", "error", err)
			case correction != 0:
				logger.Info("Adjusted to the clock of the API server", "correctionSeconds", correction.Seconds())
			}
			waited, compared = 0, drift
		}
		if !kube.Pause(ctx, look) {
			return
		}
	}
}
