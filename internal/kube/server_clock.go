package kube

import (
	"context"
	"math"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// ServerClock provides the time of the API server. Deadlines are based on this clock, because the API server sets
// creation timestamps. The clock advances with the local monotonic clock, so it is not affected by changes to the
// local wall clock.
type ServerClock struct {
	local  func() time.Time
	client kubernetes.Interface
	base   time.Time // includes the monotonic clock reading

	mu       sync.Mutex
	offset   time.Duration // offset of the API server's clock
	compared time.Time     // local time of the last comparison; zero if there was none
}

// clockTimeout is the timeout of a request to the API server.
const clockTimeout = 5 * time.Second

// NewServerClock returns a clock that returns the local time until the first comparison. A comparison creates a
// SelfSubjectReview, which any user may do and which the API server does not store.
func NewServerClock(local func() time.Time, client kubernetes.Interface) *ServerClock {
	return &ServerClock{local: local, client: client, base: local()}
}

// Now returns the current time of the API server, without a monotonic clock reading.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(c.local())
}

func (c *ServerClock) at(local time.Time) time.Time {
	return c.base.Round(0).Add(local.Sub(c.base) + c.offset)
}

// Drift returns the offset of the local wall clock from its position according to the monotonic clock.
func (c *ServerClock) Drift() time.Duration {
	now := c.local()
	return now.Round(0).Sub(c.base.Round(0)) - now.Sub(c.base)
}

// Age returns the time since the last comparison.
func (c *ServerClock) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compared.IsZero() {
		return math.MaxInt64
	}
	return c.local().Sub(c.compared)
}

// Compare requests the time of the API server and adjusts the clock if the difference exceeds the resolution of one
// second and the round-trip time. It returns the correction.
func (c *ServerClock) Compare(ctx context.Context) (correction time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	asked := c.local()
	review, err := c.client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compared = c.local()
	if !review.CreationTimestamp.IsZero() {
		correction = Skew(c.at(asked), c.at(c.compared), review.CreationTimestamp.Time)
		c.offset += correction
	}
	return correction, nil
}

// Skew returns the correction of a clock that moves the server's timestamp, which has a resolution of one second,
// between asked and answered. It returns 0 if no correction is required.
func Skew(asked, answered, stamped time.Time) time.Duration {
	earliest, latest := stamped, stamped.Add(time.Second)
	switch {
	case answered.Before(earliest):
		return earliest.Sub(answered)
	case asked.After(latest):
		return latest.Sub(asked)
	}
	return 0
}
