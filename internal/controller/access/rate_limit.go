package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// An Allowance is the request limit of a caller: a rate and a burst.
type Allowance struct {
	PerSecond float64
	AtOnce    int
}

// maxBuckets is the maximum number of callers with their own bucket. Further callers share a single bucket.
const maxBuckets = 20_000

// buckets contains a token bucket for each caller. It is safe for concurrent use.
type buckets struct {
	allowance Allowance

	mu     sync.Mutex
	each   map[string]*rate.Limiter // by caller
	others *rate.Limiter
}

func newBuckets(a Allowance) *buckets {
	b := &buckets{allowance: a, each: map[string]*rate.Limiter{}}
	b.others = b.bucket()
	return b
}

// allow counts a request. If the request exceeds the limit, it returns false and the time to wait.
func (b *buckets) allow(who string, now time.Time) (wait time.Duration, ok bool) {
	turn := b.of(who, now).ReserveN(now, 1)
	if wait = turn.DelayFrom(now); wait == 0 {
		return 0, true
	}
	turn.CancelAt(now)
	return wait, false
}

// empty reports whether a request would exceed the limit, without counting it.
func (b *buckets) empty(who string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.find(who, now)
	return l != nil && l.TokensAt(now) < 1
}

func (b *buckets) of(who string, now time.Time) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.find(who, now)
	if l == nil {
		l = b.bucket()
		b.each[who] = l
	}
	return l
}

// find returns the bucket of a caller, or nil if the caller has none and a new one can be created.
func (b *buckets) find(who string, now time.Time) *rate.Limiter {
	l := b.each[who]
	if l == nil && len(b.each) >= maxBuckets && !b.makeRoom(now) {
		l = b.others
	}
	return l
}

// makeRoom removes some full buckets, because they are equivalent to new ones. It reports whether there is capacity
// for another bucket.
func (b *buckets) makeRoom(now time.Time) bool {
	const looks = 64
	seen := 0
	for who, l := range b.each { // in random order
		if l.TokensAt(now) >= float64(b.allowance.AtOnce) {
			delete(b.each, who)
		}
		if seen++; seen >= looks {
			break
		}
	}
	return len(b.each) < maxBuckets
}

func (b *buckets) bucket() *rate.Limiter {
	return rate.NewLimiter(rate.Limit(b.allowance.PerSecond), b.allowance.AtOnce)
}
