package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// limits bound releases before deadlines, whatever the cluster keeps up with: how many in a second, and by how many
// watts in a second the power of what runs may rise. Deadlines obey neither, but what they let go counts. The zero
// value is no limit.
type limits struct {
	starts, watts bucket
}

// burst is for how long a limit may go unused and be made up for.
const burst = time.Second

// maxDebt caps a debt at so much refill time: a Job may ask for more power than the whole cluster has.
const maxDebt = 10 * time.Minute

func newLimits(rate float64, ramp energy.Watts) *limits {
	return &limits{starts: newBucket(rate), watts: newBucket(float64(ramp))}
}

func (l *limits) ramp() bool { return l.watts.perSecond > 0 }

// allow reports whether something that draws so much may be released now, and then counts it.
func (l *limits) allow(now time.Time, draw energy.Watts) bool {
	if !l.starts.holds(now, 1) || !l.watts.holds(now, float64(draw)) {
		return false
	}
	l.starts.take(1)
	l.watts.take(float64(draw))
	return true
}

// force counts what is released without asking.
func (l *limits) force(now time.Time, draw energy.Watts) {
	l.starts.force(now, 1)
	l.watts.force(now, float64(draw))
}

// when returns when something that draws so much will be allowed.
func (l *limits) when(now time.Time, draw energy.Watts) time.Time {
	return now.Add(max(l.starts.wait(now, 1), l.watts.wait(now, float64(draw))))
}

// bucket is a token bucket. An item larger than it can hold passes when it is full, and leaves a debt. In any time t
// at most perSecond·t + max(full bucket, largest item) passes, but for debts above maxDebt.
type bucket struct {
	perSecond float64 // 0: no limit
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

// force takes what is there, and owes nothing: what had to be is no reason to keep others for longer.
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
