package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

// Audience is the audience of agent tokens. Tokens of people may have it instead of the audience of the API server.
const Audience = "kubenergy"

// Authentication errors. All errors except ErrUnauthenticated are temporary.
var (
	// ErrUnauthenticated is returned for every rejected token. It does not include a reason.
	ErrUnauthenticated = errors.New("the token is invalid")
	// ErrBusy is returned if too many tokens are being reviewed.
	ErrBusy = errors.New("too many tokens are being reviewed")
	// ErrAway is returned if the API server is unavailable.
	ErrAway = errors.New("the API server does not respond")
)

// Options configures a Gate. The clients should not be rate limited, because the Gate limits its own requests.
type Options struct {
	Tokens authenticationclient.TokenReviewInterface
	Access authorizationclient.SubjectAccessReviewInterface
	// Reviews is the maximum number of token reviews per second, applied separately to agents and people. Defaults
	// to 40.
	Reviews float64
	// People and Agents limit the requests of each user and each agent. They default to 20 per second with a burst
	// of 100 and to 20 per second with a burst of 400.
	People, Agents Allowance
	Now            func() time.Time
	Log            *slog.Logger
	Registerer     prometheus.Registerer // nil disables metrics
}

// Lifetimes, sizes and timeouts of the caches and reviews.
const (
	knownFor    = 3 * time.Minute // for people
	agentFor    = 5 * time.Minute // for agents, because there are thousands and each can only report its node
	renewAfter  = 3 * time.Minute // age from which an agent token is reviewed again in advance
	renewWithin = 90 * time.Second
	renewAgain  = 10 * time.Second
	spread      = 20 * time.Second // maximum jitter, so that results do not expire simultaneously
	refusedFor  = 10 * time.Second
	grace       = 10 * time.Minute // after the expiry of agent tokens in the cache while the API server is unavailable
	rightsFor   = 10 * time.Second
	remembered  = 7 * 24 * time.Hour // maximum age of a known token in the cache
	maxKnown    = 50_000
	maxRefused  = 10_000
	maxRights   = 20_000

	reviewTimeout = 5 * time.Second // timeout of a request to the API server
	reviewWait    = 5 * time.Second // maximum wait for the rate limiter
	maxReviews    = 64              // concurrent reviews
	maxToken      = 16 << 10        // in bytes
)

// A Gate authenticates tokens and authorizes users with the API server and caches the results for a short time. It
// is safe for concurrent use.
type Gate struct {
	o       Options
	answers sync.Mutex            // serializes updates of known, so that newer holders are not replaced by older ones
	known   *cache.LRUExpireCache // values of type holder by tokenKey
	refused *cache.LRUExpireCache // rejected tokens by tokenKey
	rights  *cache.LRUExpireCache // values of type bool by rightKey
	calls   singleflight.Group
	slots   chan struct{}
	reviews [2]*rate.Limiter // indexed by class
	breaker breaker
	people  *buckets
	agents  *buckets
	guesses *buckets
	metrics *metrics
}

// class is the class of a token. It determines the required audience and the cache lifetime.
type class byte

const (
	person class = iota
	agent
)

type tokenKey struct {
	class class
	hash  [sha256.Size]byte
}

// holder is the cached result of a successful token review. Its fields expire at different times. A token with an
// expired holder is still not counted as a guess.
type holder struct {
	user    *User
	fresh   time.Time // no review is needed until this time
	grace   time.Time // accepted until this time while the API server is unavailable; agents only
	settled time.Time // not reviewed in advance until this time; agents only
}

// clock adapts a function to the clock interface of the caches.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// NewGate returns a new Gate with the given options.
func NewGate(o Options) *Gate {
	o.Reviews = cmp.Or(o.Reviews, 40)
	o.People = cmp.Or(o.People, Allowance{PerSecond: 20, AtOnce: 100})
	o.Agents = cmp.Or(o.Agents, Allowance{PerSecond: 20, AtOnce: 400})
	g := &Gate{
		o: o, known: cache.NewLRUExpireCacheWithClock(maxKnown, clock(o.Now)),
		refused: cache.NewLRUExpireCacheWithClock(maxRefused, clock(o.Now)),
		rights:  cache.NewLRUExpireCacheWithClock(maxRights, clock(o.Now)), slots: make(chan struct{}, maxReviews),
		people: newBuckets(o.People), agents: newBuckets(o.Agents), guesses: newBuckets(guesses),
		metrics: newMetrics(o.Registerer),
	}
	for c := range g.reviews {
		g.reviews[c] = rate.NewLimiter(rate.Limit(o.Reviews), int(o.Reviews)+1)
	}
	return g
}

// Authenticate returns the user of a token with the audience of the API server or of the controller. It returns
// ErrUnauthenticated if the token is invalid and any other error if the token cannot be reviewed now.
func (g *Gate) Authenticate(ctx context.Context, token string) (*User, error) {
	return g.authenticate(ctx, person, token)
}

// Agent returns the user of a token with the audience of the controller. While the API server is unavailable, it
// accepts tokens that were authenticated recently.
func (g *Gate) Agent(ctx context.Context, token string) (*User, error) {
	return g.authenticate(ctx, agent, token)
}

func (g *Gate) authenticate(ctx context.Context, c class, token string) (*User, error) {
	if !plausibleToken(token) {
		return nil, ErrUnauthenticated
	}
	key, now := tokenKey{c, sha256.Sum256([]byte(token))}, g.o.Now()
	h := g.holder(key)
	if now.Before(h.fresh) {
		if c == agent {
			g.renew(key, token, h, now)
		}
		return h.user, nil
	}
	if _, refused := g.refused.Get(key); refused {
		return nil, ErrUnauthenticated
	}
	u, err := g.ask(ctx, key, token, h, now)
	if err == nil || errors.Is(err, ErrUnauthenticated) {
		return u, err
	}
	// The grace period applies only to agents, because an agent token is restricted to a single node.
	if c == agent && g.breaker.down() && g.o.Now().Before(h.grace) {
		g.metrics.grace.Inc()
		return h.user, nil
	}
	return nil, err
}

// holder returns the cached holder of a token, or the zero value if there is none.
func (g *Gate) holder(key tokenKey) holder {
	value, _ := g.known.Get(key)
	h, _ := value.(holder)
	return h
}

// ask reviews a token without a valid cached result.
func (g *Gate) ask(ctx context.Context, key tokenKey, token string, h holder, now time.Time) (*User, error) {
	peer, _ := ctx.Value(peerKey{}).(string)
	if h.user != nil {
		peer = "" // known tokens are exempt from the limit per client address
	}
	if peer != "" && g.guesses.empty(peer, now) {
		return nil, ErrBusy
	}
	if g.breaker.away(now) {
		return nil, ErrAway
	}
	u, err := AnswerOf[*User](ctx, g.join(ctx, key, token, h))
	if peer != "" && errors.Is(err, ErrUnauthenticated) {
		g.guesses.allow(peer, now)
	}
	return u, err
}

// renew reviews the token of an agent in the background before its cached result expires. No request waits for the
// review, and the reviews of thousands of agents are spread over time.
func (g *Gate) renew(key tokenKey, token string, h holder, now time.Time) {
	if now.Before(h.settled) || g.breaker.away(now) {
		return
	}
	g.answers.Lock()
	last, known := g.known.Get(key)
	unchanged := known && last.(holder).settled.Equal(h.settled) // otherwise another review has just completed
	if unchanged {
		h.settled = now.Add(renewAgain)
		g.known.Add(key, h, remembered)
	}
	g.answers.Unlock()
	if unchanged {
		g.join(context.Background(), key, token, h)
	}
}

// join reviews a token unless a review has completed since the caller read the holder seen.
func (g *Gate) join(ctx context.Context, key tokenKey, token string, seen holder) <-chan singleflight.Result {
	flight := string(append([]byte{byte(key.class)}, key.hash[:]...))
	return g.askOnce(ctx, flight, g.reviews[key.class], func(ctx context.Context) (any, error) {
		if h := g.holder(key); g.o.Now().Before(h.fresh) && !h.fresh.Equal(seen.fresh) {
			return h.user, nil
		}
		if _, refused := g.refused.Get(key); refused {
			return nil, ErrUnauthenticated
		}
		return g.review(ctx, key, token)
	})
}

var errPanicked = errors.New("the request to the API server panicked")

// askOnce calls ask once for all concurrent callers with the same key. The limiter may be nil.
func (g *Gate) askOnce(ctx context.Context, key string, limiter *rate.Limiter, ask func(context.Context) (any, error),
) <-chan singleflight.Result {
	return g.calls.DoChan(key, func() (any, error) {
		// Canceling the request of one caller must not cancel the shared call.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout+reviewWait)
		defer cancel()
		waiting, stop := context.WithTimeout(ctx, reviewWait)
		defer stop()
		if limiter != nil && limiter.Wait(waiting) != nil { // the wait would exceed reviewWait
			return nil, ErrBusy
		}
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
		case <-ctx.Done():
			return nil, ErrBusy
		}
		ctx, cancel = context.WithTimeout(ctx, reviewTimeout)
		defer cancel()
		answer, err := any(nil), errPanicked
		panics.Survive(g.o.Log, "access", "API server request", func() { answer, err = ask(ctx) })
		return answer, err
	})
}

// AnswerOf waits for the result of a shared call until ctx is done.
func AnswerOf[T any](ctx context.Context, flight <-chan singleflight.Result) (answer T, err error) {
	select {
	case <-ctx.Done():
		return answer, ctx.Err()
	case r := <-flight:
		if r.Err != nil {
			return answer, r.Err
		}
		return r.Val.(T), nil
	}
}

// review sends a TokenReview to the API server and caches the result.
func (g *Gate) review(ctx context.Context, key tokenKey, token string) (*User, error) {
	claims := readClaims(token)
	want := g.audiences(key.class, &claims)
	answer, err := g.o.Tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: want},
	}, metav1.CreateOptions{})
	if g.away("token", err) {
		return nil, ErrAway
	}
	now := g.o.Now()
	if err != nil || !answer.Status.Authenticated || answer.Status.User.Username == "" ||
		len(want) > 0 && !slices.Contains(answer.Status.Audiences, want[0]) { // empty if audiences are unsupported
		g.metrics.review("token", false)
		g.answers.Lock()
		defer g.answers.Unlock()
		g.known.Remove(key)
		g.refused.Add(key, nil, refusedFor)
		return nil, ErrUnauthenticated
	}
	g.metrics.review("token", true)
	user := User(answer.Status.User) // a copy, because the review contains the token
	h := holder{user: &user, fresh: claims.before(now.Add(knownFor - rand.N(spread)))}
	if key.class == agent {
		until := now.Add(agentFor - rand.N(spread))
		h.fresh, h.grace = claims.before(until), claims.before(until.Add(grace))
		h.settled = now.Add(renewAfter + rand.N(renewWithin))
	}
	g.answers.Lock()
	defer g.answers.Unlock()
	g.known.Add(key, h, remembered)
	return h.user, nil
}

// away reports whether err indicates that the API server is unavailable, and updates the breaker and the metrics.
func (g *Gate) away(kind string, err error) bool {
	if err == nil || !isAway(err) {
		g.breaker.answered()
		return false
	}
	g.breaker.failed(g.o.Now())
	g.metrics.reviews.WithLabelValues(kind, "error").Inc()
	// Log only the kind of the error, because its message may be from a proxy and contain the request.
	g.o.Log.Warn("API server did not respond to a review", "kind", kind, "error", kindOf(err))
	return true
}

// audiences returns the audiences to request for a token: the controller's audience if the token is of an agent or
// claims it, otherwise nil for the audience of the API server.
func (g *Gate) audiences(c class, claims *claims) []string {
	if c == agent || slices.Contains(claims.Audience, Audience) {
		return []string{Audience}
	}
	return nil
}
