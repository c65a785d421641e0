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

// ServerClock tells the API server's time. The API server stamps creation timestamps with it, so deadlines are instants
// on it. It advances with the monotonic clock of this machine: steps of the local wall clock do not move it.
type ServerClock struct {
	local  func() time.Time
	client kubernetes.Interface
	base   time.Time // with its monotonic reading

	mu       sync.Mutex
	offset   time.Duration // learned from the API server
	compared time.Time     // local; zero: never
}

// clockTimeout bounds how long the API server is waited for.
const clockTimeout = 5 * time.Second

// NewServerClock returns a clock that shows local time until it is compared. Comparing creates a SelfSubjectReview: any
// user may create one, and the API server stores none.
func NewServerClock(local func() time.Time, client kubernetes.Interface) *ServerClock {
	return &ServerClock{local: local, client: client, base: local()}
}

// Now returns the API server's time, without a monotonic reading.
func (c *ServerClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at(c.local())
}

func (c *ServerClock) at(local time.Time) time.Time {
	return c.base.Round(0).Add(local.Sub(c.base) + c.offset)
}

// Drift returns how far the local wall clock has moved from where the monotonic clock would have it.
func (c *ServerClock) Drift() time.Duration {
	now := c.local()
	return now.Round(0).Sub(c.base.Round(0)) - now.Sub(c.base)
}

// Age returns how long ago the clock was compared.
func (c *ServerClock) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compared.IsZero() {
		return math.MaxInt64
	}
	return c.local().Sub(c.compared)
}

// Compare asks the API server for its time and adopts it where the two differ by more than the answer's resolution of a
// second and its travel time allow.
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

// Skew returns by how much a clock must be moved such that the second stamped by the server falls between asked and
// answered: 0 if it may already do so.
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
