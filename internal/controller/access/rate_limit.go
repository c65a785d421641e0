package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

// An Allowance is the request limit of a caller: a rate and a burst.
type Allowance struct {
	PerSecond float64
	AtOnce    int
}

// maxBuckets is the maximum number of callers with counted requests. Further callers replace those without recent
// requests.
const maxBuckets = 20_000

// buckets contains a token bucket for each caller. It is safe for concurrent use.
type buckets struct {
	allowance Allowance
	mu        sync.Mutex // guards additions
	each      *lru.Cache // values of type *rate.Limiter by caller
}

func newBuckets(a Allowance) *buckets { return &buckets{allowance: a, each: lru.New(maxBuckets)} }

// allow counts a request. If the request exceeds the limit, it returns false and the time to wait.
func (b *buckets) allow(who string, now time.Time) (wait time.Duration, ok bool) {
	turn := b.of(who).ReserveN(now, 1)
	if wait = turn.DelayFrom(now); wait == 0 {
		return 0, true
	}
	turn.CancelAt(now)
	return wait, false
}

// empty reports whether the next request exceeds the limit. It counts nothing.
func (b *buckets) empty(who string, now time.Time) bool {
	l, known := b.each.Get(who)
	return known && l.(*rate.Limiter).TokensAt(now) < 1
}

// of returns the bucket of a caller.
func (b *buckets) of(who string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, known := b.each.Get(who); known {
		return l.(*rate.Limiter)
	}
	l := rate.NewLimiter(rate.Limit(b.allowance.PerSecond), b.allowance.AtOnce)
	b.each.Add(who, l)
	return l
}
