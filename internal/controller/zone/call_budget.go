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

// callsName is the name of the ConfigMap that records the calls of the last hour, so that restarted replicas and
// successive leaders stay within the limit together.
const callsName = "kubenergy-calls"

// Calls grants calls to providers. A grant is valid only once it is stored in the API server. If storing it fails,
// the provider is not called.
//
// The client must read from the API server and not from a cache. Calls is safe for concurrent use.
type Calls struct {
	client    client.Client
	namespace string

	pending chan []*reservation // reservations that no goroutine writes yet; also serves as the lock on them
	writing chan struct{}       // held by the goroutine that writes
	last    *v1.ConfigMap       // the last version written; guarded by writing
}

// reservation is a request of a keeper for one call or for a pause.
type reservation struct {
	key     string
	perHour int // 0 for a pause
	until   time.Time
	now     time.Time

	done    bool
	granted bool
	next    time.Time
	err     error
}

var _ signal.Budget = (*Calls)(nil)

// NewCalls returns a Calls that stores its state in the given namespace.
func NewCalls(c client.Client, namespace string) *Calls {
	k := &Calls{client: c, namespace: namespace, pending: make(chan []*reservation, 1), writing: make(chan struct{}, 1)}
	k.pending <- nil
	return k
}

// Reserve requests one call to a source and returns the time of the next attempt if it is not granted. Requests
// that arrive during a write are written together, so that a hundred zones that start at the same time cost only a
// few writes.
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

// Block makes Reserve refuse calls to a source until the given time, also after a restart. It replaces an earlier
// pause. The zero time ends the pause.
func (k *Calls) Block(ctx context.Context, source string, until, now time.Time) error {
	if err := k.decide(ctx, &reservation{key: callsKey(source), until: until, now: now}); err != nil {
		return fmt.Errorf("recording a pause of %s: %w", source, err)
	}
	return nil
}

// decide waits until a reservation is decided and written.
func (k *Calls) decide(ctx context.Context, r *reservation) error {
	k.pending <- append(<-k.pending, r)
	select {
	case k.writing <- struct{}{}:
	case <-ctx.Done():
		// The reservation may still be written. The call is then lost, which stays within the limit.
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

// write decides a batch of reservations and stores the granted ones.
func (k *Calls) write(ctx context.Context, batch []*reservation) {
	behind := func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
	}
	err := kube.Retry(wait.Backoff{Steps: 5}, behind, func() error {
		err := k.attempt(ctx, batch)
		if err != nil {
			k.last = nil // another replica wrote it, or the result is unknown
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
		// Write the log even if no call is granted. This corrects entries of a clock that ran ahead, which would
		// otherwise block the source forever.
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

// read returns a copy of the ConfigMap that the caller may modify.
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

// callsKey converts the name of a source to a valid key of a ConfigMap.
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

// callLog contains the calls of the last hour, oldest first. It is stored as "minute:count/60 minute:count/60",
// preceded by "until=second" during a pause. Both times are in Unix seconds.
type callLog struct {
	until int64 // in Unix seconds; 0 if there is no pause
	calls []callCount
}

type callCount struct {
	from  int64 // in Unix seconds; the calls were made within one minute from this time
	calls int
}

const (
	// clockSkew is the tolerated difference between the clocks of replicas, in seconds. Entries of other replicas
	// within it are not corrected. Calls count for an hour plus clockSkew, so that replicas with different clocks
	// stay within the hourly limit together.
	clockSkew = int64(time.Minute / time.Second)
	// minute is the resolution of the time of a call, in seconds. It keeps entries short.
	minute = int64(time.Minute / time.Second)
	// window is the time until a call no longer counts, in seconds.
	window = int64(time.Hour/time.Second) + clockSkew
	// farAhead is the maximum time, in seconds, that an entry may be in the future before its clock is considered
	// wrong.
	farAhead = int64(5 * time.Minute / time.Second)
	// longestPause is the maximum pause, in seconds. Longer pauses of a provider are shortened to it.
	longestPause = int64(24 * time.Hour / time.Second)
)

const untilPrefix = "until="

// readCallLog parses a log and omits expired and invalid entries. The time of a call more than farAhead in the
// future is replaced by now, because it was recorded with a wrong clock.
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

// expires returns the Unix second from which the calls no longer count.
func (c callCount) expires() int64 { return c.from + minute + window }

// block replaces the pause. A time that is not after now ends it.
func (b *callLog) block(until, now time.Time) {
	b.until = 0
	if until.After(now) {
		b.until = min(until.Add(time.Second-1).Unix(), now.Unix()+longestPause)
	}
}

// grant adds a call if the limit permits it and there is no pause. Otherwise it returns the time of the next
// attempt.
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

// String returns the stored form of the log.
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
