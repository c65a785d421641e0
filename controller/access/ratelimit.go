package access

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// An Allowance is how many requests a caller may make.
type Allowance struct {
	PerSecond float64
	AtOnce    int
}

// mostBuckets is for how many callers requests are counted: those who came last.
const mostBuckets = 20_000

// buckets count the requests of each caller.
type buckets struct {
	allowance Allowance

	mu   sync.Mutex
	each *cache.LRUExpireCache // *rate.Limiter, by caller
}

func newBuckets(a Allowance) *buckets {
	return &buckets{allowance: a, each: cache.NewLRUExpireCache(mostBuckets)}
}

// take counts a request. Where it is one too many, it returns how long to wait.
func (b *buckets) take(who string, now time.Time) (wait time.Duration, ok bool) {
	turn := b.of(who).ReserveN(now, 1)
	if wait = turn.DelayFrom(now); wait == 0 {
		return 0, true
	}
	turn.CancelAt(now)
	return wait, false
}

// empty reports whether a request would be one too many, without counting it.
func (b *buckets) empty(who string, now time.Time) bool { return b.of(who).TokensAt(now) < 1 }

func (b *buckets) of(who string) *rate.Limiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l, known := b.each.Get(who); known {
		return l.(*rate.Limiter)
	}
	l := rate.NewLimiter(rate.Limit(b.allowance.PerSecond), b.allowance.AtOnce)
	b.each.Add(who, l, remembered)
	return l
}
