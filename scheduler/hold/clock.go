package hold

import (
	"context"
	"sync/atomic"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// clock tells the API server's time. Creation timestamps are stamped with it, so deadlines are instants on it. It
// advances with the monotonic clock of this machine: steps of the local wall clock do not move it.
type clock struct {
	base   time.Time    // with its monotonic reading
	offset atomic.Int64 // nanoseconds to add, learned from the API server
}

func newClock() *clock { return &clock{base: time.Now()} }

// now returns the API server's time, without a monotonic reading.
func (c *clock) now() time.Time {
	return c.base.Add(time.Since(c.base) + time.Duration(c.offset.Load())).Round(0)
}

// apart returns how far the local wall clock has moved from where the monotonic clock would have it.
func (c *clock) apart() time.Duration {
	return time.Now().Round(0).Sub(c.base.Add(time.Since(c.base)).Round(0))
}

// compare asks the API server for its time and adopts it where the two differ by more than the answer's resolution of
// a second and its travel time allow. Any user may ask; the answer is not stored anywhere.
func (c *clock) compare(ctx context.Context, client kubernetes.Interface) (correction time.Duration, err error) {
	asked := c.now()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	answered := c.now()
	if review.CreationTimestamp.IsZero() {
		return 0, nil
	}
	correction = skew(asked, answered, review.CreationTimestamp.Time)
	c.offset.Add(int64(correction))
	return correction, nil
}

// skew returns by how much a clock must be moved such that the second stamped by the server falls between asked and
// answered: 0 if it may already do so.
func skew(asked, answered, stamped time.Time) time.Duration {
	earliest, latest := stamped, stamped.Add(time.Second)
	switch {
	case answered.Before(earliest):
		return earliest.Sub(answered)
	case asked.After(latest):
		return latest.Sub(asked)
	}
	return 0
}

// keepTime compares the clock with the API server's now and then, and at once when the local wall clock was set or the
// machine was suspended, in which time its monotonic clock stood still.
func (l *Loop) keepTime(ctx context.Context) {
	const (
		look      = 5 * time.Second
		regularly = 10 * time.Minute
		tolerable = time.Second
	)
	logger := klog.FromContext(ctx)
	var compared, apart time.Duration
	for waited := regularly; ; waited += look {
		apart = l.clock.apart()
		if waited >= regularly || apart-compared > tolerable || compared-apart > tolerable {
			switch correction, err := l.clock.compare(ctx, l.client); {
			case err != nil:
				logger.V(2).Info("The API server did not tell its time", "error", err)
			case correction != 0:
				logger.Info("Following the API server's clock", "correctionSeconds", correction.Seconds())
			}
			waited, compared = 0, apart
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(look):
		}
	}
}
