package zone

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/kube"
)

// callsName is the ConfigMap that remembers the calls of the last hour, so that replicas that restart, or follow each
// other as leaders, stay within the limit together.
const callsName = "kubenergy-calls"

// Calls grants requests to providers. A grant counts once it is written: where the API server does not take it, no
// provider is asked.
//
// Its client must read from the API server, not from a cache.
type Calls struct {
	client    client.Client
	namespace string

	pending chan []*reservation // the reservations that are not being written yet; its one element is the lock on them
	writing chan struct{}       // held by the goroutine that writes
	last    *v1.ConfigMap       // as it was written last; of the writer
}

// reservation is one call that a keeper asks for, or a pause.
type reservation struct {
	key     string
	perHour int // 0: a pause
	until   time.Time
	now     time.Time

	done    bool
	granted bool
	next    time.Time
	err     error
}

var _ signal.Budget = (*Calls)(nil)

// NewCalls returns a budget whose calls are written down in a namespace.
func NewCalls(c client.Client, namespace string) *Calls {
	k := &Calls{client: c, namespace: namespace, pending: make(chan []*reservation, 1), writing: make(chan struct{}, 1)}
	k.pending <- nil
	return k
}

// Reserve asks for one call. Those who ask while another write is under way share the next one: a hundred zones that
// start at once cost a few writes.
func (k *Calls) Reserve(ctx context.Context, source string, perHour int,
	now time.Time,
) (granted bool, next time.Time, err error) {
	if perHour <= 0 {
		return false, time.Time{}, fmt.Errorf("reserving a call to %s: %d calls per hour: want more than 0", source,
			perHour)
	}
	r := &reservation{key: callsKey(source), perHour: perHour, now: now}
	if err := k.decide(ctx, r); err != nil {
		return false, time.Time{}, fmt.Errorf("reserving a call to %s: %w", source, err)
	}
	return r.granted, r.next, nil
}

// Block has Reserve refuse a source until a moment, also over restarts. The last word counts; the zero time lifts it.
func (k *Calls) Block(ctx context.Context, source string, until, now time.Time) error {
	if err := k.decide(ctx, &reservation{key: callsKey(source), until: until, now: now}); err != nil {
		return fmt.Errorf("noting a pause of %s: %w", source, err)
	}
	return nil
}

// decide waits until a reservation is decided on and written.
func (k *Calls) decide(ctx context.Context, r *reservation) error {
	k.pending <- append(<-k.pending, r)
	select {
	case k.writing <- struct{}{}:
	case <-ctx.Done():
		// It may be written yet. Then a call is lost, which is on the right side of the limit.
		return ctx.Err()
	}
	defer func() { <-k.writing }()
	if !r.done {
		batch := <-k.pending
		k.pending <- nil
		k.write(ctx, batch)
	}
	return r.err
}

// write decides on a batch and writes down what it grants.
func (k *Calls) write(ctx context.Context, batch []*reservation) {
	behind := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	err := kube.Retry(wait.Backoff{Steps: 5}, behind, func() error {
		err := k.attempt(ctx, batch)
		if err != nil {
			k.last = nil // another replica wrote, or we cannot know
		}
		return err
	})
	for _, r := range batch {
		r.done, r.err = true, err
		r.granted = r.granted && err == nil
	}
}

func (k *Calls) attempt(ctx context.Context, batch []*reservation) error {
	m, err := k.read(ctx)
	if err != nil {
		return err
	}
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	changed := false
	for _, r := range batch {
		b := readCallLog(m.Data[r.key], r.now)
		if r.perHour == 0 {
			b.block(r.until, r.now)
		} else {
			r.granted, r.next = b.grant(r.now, r.perHour)
		}
		// Also where there is no room: a clock that ran ahead is corrected once, or it would silence the source for
		// ever.
		if text := b.String(); text != m.Data[r.key] {
			m.Data[r.key], changed = text, true
		}
	}
	if !changed {
		k.last = m
		return nil
	}
	now := batch[0].now
	maps.DeleteFunc(m.Data, func(_, text string) bool {
		b := readCallLog(text, now)
		return b.until == 0 && len(b.calls) == 0
	})
	if m.ResourceVersion == "" {
		err = k.client.Create(ctx, m)
	} else {
		err = k.client.Update(ctx, m)
	}
	if err == nil {
		k.last = m
	}
	return err
}

// read returns a copy of what was written last, to be changed.
func (k *Calls) read(ctx context.Context) (*v1.ConfigMap, error) {
	if k.last != nil {
		return k.last.DeepCopy(), nil
	}
	m := &v1.ConfigMap{}
	err := k.client.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: callsName}, m)
	if apierrors.IsNotFound(err) {
		return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: callsName}}, nil
	}
	return m, err
}

// callsKey turns a name into a key that a ConfigMap takes.
func callsKey(name string) string {
	key := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '_'
	}, name)
	const longest = 200
	if key == name && len(key) <= longest {
		return key
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return fmt.Sprintf("%.*s.%x", longest, key, h.Sum64())
}

// callLog is the calls of the last hour, oldest first, written as "minute:count/60 minute:count/60", behind
// "until=second" where there is a pause; both are seconds of Unix time.
type callLog struct {
	until int64 // Unix seconds; 0: no pause
	calls []callCount
}

type callCount struct {
	from  int64 // Unix seconds; the calls were made within a minute from then on
	calls int
}

const (
	// Clocks of replicas may be apart by this. What another one has written is not moved for it, and a call counts
	// for as much longer than an hour, so that those who see it early and late together stay within the limit of an
	// hour.
	clockSkew = int64(time.Minute / time.Second)
	// minute is how exactly a call is dated, so that a key stays short.
	minute = int64(time.Minute / time.Second)
	// window is how long a call counts.
	window = int64(time.Hour/time.Second) + clockSkew
	// What is further ahead of our clock than this was written by one that is wrong.
	farAhead = int64(5 * time.Minute / time.Second)
	// longestPause is the longest that a provider is obeyed.
	longestPause = int64(24 * time.Hour / time.Second)
)

const untilPrefix = "until="

// readCallLog leaves out what no longer counts, and what makes no sense. A call far in the future was written by a
// clock that runs ahead: it counts from now on, for no longer than any other.
func readCallLog(text string, now time.Time) callLog {
	var b callLog
	for entry := range strings.FieldsSeq(text) {
		if until, pause := strings.CutPrefix(entry, untilPrefix); pause {
			if t, err := strconv.ParseInt(until, 10, 64); err == nil {
				b.block(time.Unix(t, 0), now)
			}
			continue
		}
		if c, ok := readCallCount(entry); ok {
			if c.from > now.Unix()+farAhead {
				c.from = now.Unix()
			}
			if c.expires() > now.Unix() {
				b.calls = append(b.calls, c)
			}
		}
	}
	slices.SortFunc(b.calls, func(x, y callCount) int { return cmp.Compare(x.from, y.from) })
	return b
}

func readCallCount(entry string) (c callCount, ok bool) {
	second, rest, _ := strings.Cut(entry, ":")
	count, _, _ := strings.Cut(rest, "/")
	from, err1 := strconv.ParseInt(second, 10, 64)
	calls, err2 := strconv.Atoi(count)
	return callCount{from, calls}, err1 == nil && err2 == nil && calls > 0
}

// expires returns the second from which on none of the calls counts.
func (c callCount) expires() int64 { return c.from + minute + window }

// block replaces the pause.
func (b *callLog) block(until, now time.Time) {
	b.until = 0
	if until.After(now) {
		b.until = min(until.Add(time.Second-1).Unix(), now.Unix()+longestPause)
	}
}

// grant takes one more call if there is room for it and no pause, and otherwise returns when there will be.
func (b *callLog) grant(now time.Time, perHour int) (ok bool, next time.Time) {
	if until := time.Unix(b.until, 0); until.After(now) {
		return false, until
	}
	made := 0
	for _, c := range b.calls {
		made += c.calls
	}
	for _, c := range b.calls {
		if made < perHour {
			break
		}
		if made -= c.calls; made < perHour {
			return false, time.Unix(c.expires(), 0)
		}
	}
	from := now.Unix() - now.Unix()%minute
	if i := slices.IndexFunc(b.calls, func(c callCount) bool { return c.from == from }); i >= 0 {
		b.calls[i].calls++
	} else {
		b.calls = append(b.calls, callCount{from, 1})
	}
	return true, time.Time{}
}

// String renders the log as it is stored.
func (b callLog) String() string {
	var words []string
	if b.until > 0 {
		words = append(words, fmt.Sprintf(untilPrefix+"%d", b.until))
	}
	for _, c := range b.calls {
		words = append(words, fmt.Sprintf("%d:%d/%d", c.from, c.calls, minute))
	}
	return strings.Join(words, " ")
}
