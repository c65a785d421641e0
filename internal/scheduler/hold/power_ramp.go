package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// limits bounds releases before deadlines in addition to the congestion control. It limits the number of releases
// per second and the increase of the expected power per second. Releases at deadlines are not limited, but they
// consume tokens. The zero value imposes no limit.
type limits struct {
	starts, watts bucket
}

// burst is how long unused tokens accumulate.
const burst = time.Second

// maxDebt limits the debt of a bucket, as the time to refill it. A Job may request more power than the whole
// cluster has.
const maxDebt = 10 * time.Minute

func newLimits(rate float64, ramp energy.Watts) *limits {
	return &limits{starts: newBucket(rate), watts: newBucket(float64(ramp))}
}

func (l *limits) ramp() bool { return l.watts.perSecond > 0 }

// allow reports whether an object with the given expected power may be released now. If so, it consumes the tokens.
func (l *limits) allow(now time.Time, draw energy.Watts) bool {
	if !l.starts.holds(now, 1) || !l.watts.holds(now, float64(draw)) {
		return false
	}
	l.starts.take(1)
	l.watts.take(float64(draw))
	return true
}

// force consumes the tokens for a release that is not limited.
func (l *limits) force(now time.Time, draw energy.Watts) {
	l.starts.force(now, 1)
	l.watts.force(now, float64(draw))
}

// when returns the time at which an object with the given expected power may be released.
func (l *limits) when(now time.Time, draw energy.Watts) time.Time {
	return now.Add(max(l.starts.wait(now, 1), l.watts.wait(now, float64(draw))))
}

// bucket is a token bucket. An item that is larger than the bucket passes when the bucket is full, and leaves a
// debt. In any period of t seconds, items with a sum of at most perSecond·t + max(burst size, largest item) pass,
// unless the debt exceeds maxDebt.
type bucket struct {
	perSecond float64 // 0 means no limit
	most      float64
	tokens    float64
	filled    time.Time
}

func newBucket(perSecond float64) bucket {
	most := max(perSecond*burst.Seconds(), 0)
	return bucket{perSecond: perSecond, most: most, tokens: most}
}

func (b *bucket) fill(now time.Time) {
	if !b.filled.IsZero() && now.After(b.filled) {
		b.tokens = min(b.tokens+b.perSecond*now.Sub(b.filled).Seconds(), b.most)
	}
	b.filled = now
}

func (b *bucket) holds(now time.Time, n float64) bool {
	b.fill(now)
	return b.perSecond <= 0 || b.tokens >= min(n, b.most)
}

func (b *bucket) take(n float64) { b.tokens = max(b.tokens-n, -b.perSecond*maxDebt.Seconds()) }

// force consumes the available tokens without leaving a debt, because an unlimited release must not delay the
// following ones.
func (b *bucket) force(now time.Time, n float64) {
	b.fill(now)
	b.tokens = max(b.tokens-n, min(b.tokens, 0))
}

func (b *bucket) wait(now time.Time, n float64) time.Duration {
	b.fill(now)
	if missing := min(n, b.most) - b.tokens; b.perSecond > 0 && missing > 0 {
		return time.Duration(missing/b.perSecond*float64(time.Second)) + 1
	}
	return 0
}
