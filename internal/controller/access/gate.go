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

// Audience is that of agents' tokens, and one that people's may have besides the API server's.
const Audience = "kubenergy"

// Why a caller is refused. All other errors mean that it is not known: try later.
var (
	// ErrUnauthenticated is all that is said about a token that was refused.
	ErrUnauthenticated = errors.New("the token is not valid here")
	// ErrBusy says that too many tokens are being reviewed.
	ErrBusy = errors.New("too many tokens are being reviewed")
	// ErrAway says that the API server does not answer.
	ErrAway = errors.New("the API server does not answer")
)

// Options are what a Gate needs. Its clients should have no limit of requests of their own, as the Gate has one.
type Options struct {
	Tokens authenticationclient.TokenReviewInterface
	Access authorizationclient.SubjectAccessReviewInterface
	// Reviews is how many tokens of agents, and as many of others, are reviewed in a second. 0: 40.
	Reviews float64
	// People and Agents are how many requests each of them may make in a second, and at once. Zero: 20 and 100; 20
	// and 400.
	People, Agents Allowance
	// Grace is for how long agents are taken that were known before, while the API server cannot be asked. 0: 10
	// minutes.
	Grace      time.Duration
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: none
}

// How long answers of the API server count, and how many are kept.
const (
	knownFor    = 3 * time.Minute // of people
	agentFor    = 5 * time.Minute // of agents, of which there are thousands; each speaks for one node only
	renewAfter  = 3 * time.Minute // and from when on it is asked again, while the answer still counts
	renewWithin = 90 * time.Second
	renewAgain  = 10 * time.Second
	spread      = 20 * time.Second // by up to which it is less, so that those who came at once do not always
	refusedFor  = 10 * time.Second
	rightsFor   = 10 * time.Second
	remembered  = 7 * 24 * time.Hour // what is known of a token, if there is room
	maxKnown    = 50_000
	maxRefused  = 10_000
	maxRights   = 20_000

	reviewTimeout = 5 * time.Second // of one request to the API server
	reviewWait    = 5 * time.Second // before it is made
	maxReviews    = 64              // at once
	maxToken      = 16 << 10        // bytes of a token
)

// A Gate asks the API server who holds a token and what they may do, and remembers its answers for a short time.
type Gate struct {
	o       Options
	answers sync.Mutex            // held while a holder in known is replaced: an older one never replaces a newer one
	known   *cache.LRUExpireCache // holder, by tokenKey
	refused *cache.LRUExpireCache // tokenKey of tokens that were refused
	rights  *cache.LRUExpireCache // bool, by rightKey
	calls   singleflight.Group
	slots   chan struct{}
	reviews [2]*rate.Limiter // by class
	breaker breaker
	people  *buckets
	agents  *buckets
	guesses *buckets
	metrics *metrics
}

// class is the kind of a token: what it must be made for.
type class byte

const (
	person class = iota
	agent
)

type tokenKey struct {
	class class
	hash  [sha256.Size]byte
}

// holder is what is known of a token that was valid when it was reviewed last. Each use has its own expiry; a token
// that counts for nothing by now is at least no guess.
type holder struct {
	user    *User
	fresh   time.Time // the user needs no review
	grace   time.Time // the user is taken while the API server is away; agents only
	settled time.Time // no review is made ahead of time; agents only
}

// clock is that of caches.
type clock func() time.Time

func (c clock) Now() time.Time { return c() }

// NewGate returns a Gate.
func NewGate(o Options) *Gate {
	o.Reviews = cmp.Or(o.Reviews, 40)
	o.Grace = cmp.Or(o.Grace, 10*time.Minute)
	o.People = cmp.Or(o.People, Allowance{PerSecond: 20, AtOnce: 100})
	o.Agents = cmp.Or(o.Agents, Allowance{PerSecond: 20, AtOnce: 400})
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
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

// Authenticate returns who holds a token that was made for the API server or for the controller. The error is
// ErrUnauthenticated, or says why it cannot be known now.
func (g *Gate) Authenticate(ctx context.Context, token string) (*User, error) {
	return g.authenticate(ctx, person, token)
}

// Agent returns who holds a token that was made for the controller alone. While the API server is away,
// who was known shortly before is still known.
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
	// A person waits. An agent was known, its token has not run out, and it speaks for one node only.
	if c == agent && g.breaker.down() && g.o.Now().Before(h.grace) {
		g.metrics.grace.Inc()
		return h.user, nil
	}
	return nil, err
}

// holder returns what is remembered of a token; zero: nothing.
func (g *Gate) holder(key tokenKey) holder {
	value, _ := g.known.Get(key)
	h, _ := value.(holder)
	return h
}

// ask finds out who holds a token that is not in a cache.
func (g *Gate) ask(ctx context.Context, key tokenKey, token string, h holder, now time.Time) (*User, error) {
	peer, _ := ctx.Value(peerKey{}).(string)
	if h.user != nil {
		peer = "" // it is no guess, even if others at its address guess
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

// renew has the token of an agent reviewed before the last answer no longer counts: no request waits for it, and the
// API server is asked about thousands of agents at a steady pace.
func (g *Gate) renew(key tokenKey, token string, h holder, now time.Time) {
	if now.Before(h.settled) || g.breaker.away(now) {
		return
	}
	g.answers.Lock()
	last, known := g.known.Get(key)
	unchanged := known && last.(holder).settled.Equal(h.settled) // else a review has just been answered
	if unchanged {
		h.settled = now.Add(renewAgain)
		g.known.Add(key, h, remembered)
	}
	g.answers.Unlock()
	if unchanged {
		g.join(context.Background(), key, token, h)
	}
}

// join has a token reviewed, unless it was reviewed since its holder was seen.
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

var errPanicked = errors.New("asking the API server panicked")

// askOnce asks the API server, once for all who ask the same meanwhile. limiter limits how often; nil: nothing does.
func (g *Gate) askOnce(ctx context.Context, key string, limiter *rate.Limiter, ask func(context.Context) (any, error),
) <-chan singleflight.Result {
	return g.calls.DoChan(key, func() (any, error) {
		// One who leaves must not take the answer from the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout+reviewWait)
		defer cancel()
		waiting, stop := context.WithTimeout(ctx, reviewWait)
		defer stop()
		if limiter != nil && limiter.Wait(waiting) != nil { // it would take too long
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
		panics.Survive(g.o.Log, "access", "an answer of the API server", func() { answer, err = ask(ctx) })
		return answer, err
	})
}

// AnswerOf waits for what several ask at once, or until ctx ends.
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

// review asks the API server.
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
		len(want) > 0 && !slices.Contains(answer.Status.Audiences, want[0]) { // one that ignores audiences names none
		g.metrics.review("token", false)
		g.answers.Lock()
		defer g.answers.Unlock()
		g.known.Remove(key)
		g.refused.Add(key, nil, refusedFor)
		return nil, ErrUnauthenticated
	}
	g.metrics.review("token", true)
	user := User(answer.Status.User) // a copy: the review around it repeats the token
	h := holder{user: &user, fresh: claims.before(now.Add(knownFor - rand.N(spread)))}
	if key.class == agent {
		until := now.Add(agentFor - rand.N(spread))
		h.fresh, h.grace = claims.before(until), claims.before(until.Add(g.o.Grace))
		h.settled = now.Add(renewAfter + rand.N(renewWithin))
	}
	g.answers.Lock()
	defer g.answers.Unlock()
	g.known.Add(key, h, remembered)
	return h.user, nil
}

// away reports whether the API server did not answer a question about a kind of thing, and tells the breaker.
func (g *Gate) away(kind string, err error) bool {
	if err == nil || !isAway(err) {
		g.breaker.answered()
		return false
	}
	g.breaker.failed(g.o.Now())
	g.metrics.reviews.WithLabelValues(kind, "error").Inc()
	// The text may come from a proxy before the API server, and repeat the request.
	g.o.Log.Warn("a review: the API server does not answer", "kind", kind, "error", kindOf(err))
	return true
}

// audiences returns the audience that a token must have. An agent's is ours. A person's is that of the API server,
// which is what asking for no audience means, or ours, if the token says so itself.
func (g *Gate) audiences(c class, claims *claims) []string {
	if c == agent || slices.Contains(claims.audiences, Audience) {
		return []string{Audience}
	}
	return nil
}
