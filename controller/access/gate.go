package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Audience is the one of tokens that are made for the central unit.
const Audience = "kubenergy"

// Why somebody is not let in. All other errors mean that it is not known: try later.
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
	// Audience is that of agents' tokens, and one that people's may have besides the API server's. "": Audience.
	Audience string
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
	unknownFor  = 10 * time.Second
	rightsFor   = 10 * time.Second
	mostKnown   = 50_000
	mostUnknown = 10_000
	mostRights  = 20_000

	reviewTimeout = 5 * time.Second // of one request to the API server
	reviewWait    = 5 * time.Second // before it is made
	mostReviews   = 64              // at once
	mostToken     = 16 << 10        // bytes of a token
)

// A Gate asks the API server who somebody is and what they may do, and remembers its answers for a short time.
type Gate struct {
	o       Options
	known   *cache[tokenKey, *User]
	lately  *cache[tokenKey, *User] // users that were known: for the time when nobody can be asked
	unknown *cache[tokenKey, struct{}]
	settled *cache[tokenKey, struct{}] // of agents: not to be asked about again yet
	rights  *cache[rightKey, right]
	flights singleflight.Group
	slots   chan struct{}
	reviews map[class]*rate.Limiter
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

// NewGate returns a Gate.
func NewGate(o Options) *Gate {
	o.Audience = cmp.Or(o.Audience, Audience)
	o.Reviews = cmp.Or(o.Reviews, 40)
	o.Grace = cmp.Or(o.Grace, 10*time.Minute)
	o.People = cmp.Or(o.People, Allowance{PerSecond: 20, AtOnce: 100})
	o.Agents = cmp.Or(o.Agents, Allowance{PerSecond: 20, AtOnce: 400})
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	g := &Gate{
		o: o, known: newCache[tokenKey, *User](mostKnown), lately: newCache[tokenKey, *User](mostKnown),
		unknown: newCache[tokenKey, struct{}](mostUnknown), settled: newCache[tokenKey, struct{}](mostKnown),
		rights: newCache[rightKey, right](mostRights),
		slots:  make(chan struct{}, mostReviews),
		people: newBuckets(o.People), agents: newBuckets(o.Agents), guesses: newBuckets(guesses),
		metrics: newMetrics(o.Registerer),
	}
	g.reviews = map[class]*rate.Limiter{}
	for _, c := range []class{person, agent} {
		g.reviews[c] = rate.NewLimiter(rate.Limit(o.Reviews), int(o.Reviews)+1)
	}
	return g
}

// Authenticate returns who holds a token that was made for the API server or for the central unit. The error is
// ErrUnauthenticated, or says why it cannot be known now.
func (g *Gate) Authenticate(ctx context.Context, token string) (*User, error) {
	return g.authenticate(ctx, person, token)
}

// Agent returns who holds a token that was made for the central unit and for nobody else. While the API server is away,
// who was known shortly before is still known.
func (g *Gate) Agent(ctx context.Context, token string) (*User, error) {
	return g.authenticate(ctx, agent, token)
}

func (g *Gate) authenticate(ctx context.Context, c class, token string) (*User, error) {
	if !plausibleToken(token) {
		return nil, ErrUnauthenticated
	}
	key, now := tokenKey{c, sha256.Sum256([]byte(token))}, g.o.Now()
	if u, fresh := g.known.get(key, now); fresh {
		if c == agent {
			g.renew(key, token, now)
		}
		return u, nil
	}
	if _, fresh := g.unknown.get(key, now); fresh {
		return nil, ErrUnauthenticated
	}
	u, err := g.ask(ctx, key, token, now)
	if err == nil || errors.Is(err, ErrUnauthenticated) {
		return u, err
	}
	if c == agent && g.breaker.down() {
		// Nobody can be asked. A person waits; an agent was known, its token has not run out, and it speaks for one
		// node only.
		if u, fresh := g.lately.get(key, g.o.Now()); fresh {
			g.metrics.grace.Inc()
			return u, nil
		}
	}
	return nil, err
}

// ask finds out who holds a token that is not in a cache.
func (g *Gate) ask(ctx context.Context, key tokenKey, token string, now time.Time) (*User, error) {
	peer := peerFrom(ctx)
	if g.met(key, now) {
		peer = "" // no guess, whoever shares the address
	}
	if peer != "" && g.guesses.empty(peer, now) {
		return nil, ErrBusy
	}
	if g.breaker.away(now) {
		return nil, ErrAway
	}
	u, err := g.share(ctx, key, token)
	if peer != "" && errors.Is(err, ErrUnauthenticated) {
		g.guesses.take(peer, now)
	}
	return u, err
}

// met reports whether a token was valid when it was reviewed last, however long ago that was, as far as it is
// remembered.
func (g *Gate) met(key tokenKey, now time.Time) bool {
	known, _ := g.known.get(key, now)
	lately, _ := g.lately.get(key, now)
	return known != nil || lately != nil
}

// renew has the token of an agent reviewed before the last answer no longer counts: nobody waits for it, and the API
// server is asked about thousands of agents at a steady pace.
func (g *Gate) renew(key tokenKey, token string, now time.Time) {
	if _, fresh := g.settled.get(key, now); fresh || g.breaker.away(now) {
		return
	}
	g.settled.put(key, struct{}{}, now, now.Add(renewAgain))
	g.fly(context.Background(), key, token)
}

// share has a token reviewed, once for all who ask about the same one meanwhile.
func (g *Gate) share(ctx context.Context, key tokenKey, token string) (*User, error) {
	flight := g.fly(ctx, key, token)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-flight:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(*User), nil
	}
}

func (g *Gate) fly(ctx context.Context, key tokenKey, token string) <-chan singleflight.Result {
	return g.flights.DoChan(string(append([]byte{byte(key.class)}, key.hash[:]...)), func() (any, error) {
		// One who leaves must not take the answer from the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout+reviewWait)
		defer cancel()
		if err := g.enter(ctx, key.class); err != nil {
			return nil, err
		}
		defer g.leave()
		return g.review(ctx, key, token)
	})
}

// enter waits for its turn, unless that would take too long.
func (g *Gate) enter(ctx context.Context, c class) error {
	turn := g.reviews[c].ReserveN(time.Now(), 1)
	wait := turn.Delay()
	if !turn.OK() || wait > reviewWait {
		turn.Cancel()
		return ErrBusy
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ErrBusy
		case <-timer.C:
		}
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ErrBusy
	}
}

func (g *Gate) leave() { <-g.slots }

// review asks the API server.
func (g *Gate) review(ctx context.Context, key tokenKey, token string) (*User, error) {
	claims := readClaims(token)
	want := g.audiences(key.class, &claims)
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	answer, err := g.o.Tokens.Create(ctx, &authenticationv1.TokenReview{
		Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: want},
	}, metav1.CreateOptions{})
	now := g.o.Now()
	if err != nil && isAway(err) {
		g.breaker.failed(now)
		g.metrics.review("token", "error")
		// The text may come from whatever stands between us and the API server, and tell of the request.
		g.o.Log.Warn("reviewing a token: the API server does not answer", "error", kindOf(err))
		return nil, ErrAway
	}
	g.breaker.answered()
	if err != nil || !answer.Status.Authenticated || answer.Status.User.Username == "" ||
		!madeFor(want, answer.Status.Audiences) {
		g.metrics.review("token", "denied")
		g.known.drop(key)
		g.lately.drop(key)
		g.unknown.put(key, struct{}{}, now, now.Add(unknownFor))
		return nil, ErrUnauthenticated
	}
	g.metrics.review("token", "allowed")
	u := userOf(&answer.Status.User)
	fresh := now.Add(knownFor - rand.N(spread))
	if key.class == agent {
		fresh = now.Add(agentFor - rand.N(spread))
		g.settled.put(key, struct{}{}, now, now.Add(renewAfter+rand.N(renewWithin)))
	}
	g.known.put(key, u, now, claims.before(fresh))
	if key.class == agent {
		g.lately.put(key, u, now, claims.before(fresh.Add(g.o.Grace)))
	}
	return u, nil
}

// audiences returns whom a token must be made for. An agent's is for us. One of a person is for the API server, which
// is what asking for nobody means, or, if it says so itself, for us.
func (g *Gate) audiences(c class, claims *claims) []string {
	if c == agent || claims.isFor(g.o.Audience) {
		return []string{g.o.Audience}
	}
	return nil
}

// madeFor compares whom a token must be made for with whom the API server found it to be made for. An API server that
// does not know of audiences says nothing, and vouches for nothing.
func madeFor(want, got []string) bool {
	return len(want) == 0 || slices.Contains(got, want[0])
}
