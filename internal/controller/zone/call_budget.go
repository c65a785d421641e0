package zone

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

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
}

// reservation is a request of a keeper for one call or for a pause.
type reservation struct {
	key   string
	now   time.Time
	apply func(*callLog) // called again if a write is retried

	done bool
	err  error
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
	var ok bool
	var again time.Time
	if err := k.decide(ctx, source, now, func(b *callLog) { ok, again = b.grant(now, perHour) }); err != nil {
		return false, time.Time{}, fmt.Errorf("reserving a call to %s: %w", source, err)
	}
	return ok, again, nil
}

// Block makes Reserve refuse calls to a source until the given time, also after a restart. It replaces an earlier
// pause. The zero time ends the pause.
func (k *Calls) Block(ctx context.Context, source string, until, now time.Time) error {
	if err := k.decide(ctx, source, now, func(b *callLog) { b.block(until, now) }); err != nil {
		return fmt.Errorf("recording a pause of %s: %w", source, err)
	}
	return nil
}

// decide waits until a reservation is decided and written. If it returns an error, apply may still be called.
func (k *Calls) decide(ctx context.Context, source string, now time.Time, apply func(*callLog)) error {
	r := &reservation{key: callsKey(source), now: now, apply: apply}
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
	err := kube.Retry(wait.Backoff{Steps: 5}, behind, func() error { return k.attempt(ctx, batch) })
	for _, r := range batch {
		r.done, r.err = true, err
	}
}

func (k *Calls) attempt(ctx context.Context, batch []*reservation) error {
	m := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: callsName}}
	_, err := controllerutil.CreateOrUpdate(ctx, k.client, m, func() error {
		if m.Data == nil {
			m.Data = map[string]string{}
		}
		for _, r := range batch {
			b := readCallLog(m.Data[r.key], r.now)
			r.apply(&b)
			// Write the log even if no call is granted. This corrects entries of a clock that ran ahead, which would
			// otherwise block the source forever.
			m.Data[r.key] = b.String()
		}
		maps.DeleteFunc(m.Data, func(_, text string) bool {
			b := readCallLog(text, batch[0].now)
			return b.Until == 0 && len(b.Calls) == 0
		})
		return nil
	})
	return err
}

var notInKey = regexp.MustCompile(`[^a-zA-Z0-9._-]`)

// callsKey converts the name of a source to a valid key of a ConfigMap.
func callsKey(name string) string {
	key := notInKey.ReplaceAllString(name, "_")
	const longest = 200
	if key == name && len(key) <= longest {
		return key
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	return fmt.Sprintf("%.*s.%x", longest, key, h.Sum64())
}

// callLog contains the calls of the last hour. It is stored as JSON. All times are in Unix seconds.
type callLog struct {
	Until int64         `json:"until,omitempty"` // end of a pause; 0 if there is none
	Calls map[int64]int `json:"calls,omitempty"` // number of calls within one minute from each key
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

// readCallLog parses a log and omits expired and invalid entries. The time of a call more than farAhead in the
// future is replaced by now, because it was recorded with a wrong clock.
func readCallLog(text string, now time.Time) callLog {
	var stored callLog
	if json.Unmarshal([]byte(text), &stored) != nil {
		stored = callLog{}
	}
	b := callLog{Calls: map[int64]int{}}
	b.block(time.Unix(stored.Until, 0), now)
	for from, calls := range stored.Calls {
		if from > now.Unix()+farAhead {
			from = now.Unix()
		}
		if expires(from) > now.Unix() && calls > 0 {
			b.Calls[from] += calls
		}
	}
	return b
}

// expires returns the Unix second from which calls within one minute from the given second no longer count.
func expires(from int64) int64 { return from + minute + window }

// block replaces the pause. A time that is not after now ends it.
func (b *callLog) block(until, now time.Time) {
	b.Until = 0
	if until.After(now) {
		b.Until = min(until.Add(time.Second-1).Unix(), now.Unix()+longestPause)
	}
}

// grant adds a call if the limit permits it and there is no pause. Otherwise it returns the time of the next
// attempt.
func (b *callLog) grant(now time.Time, perHour int) (ok bool, next time.Time) {
	if until := time.Unix(b.Until, 0); until.After(now) {
		return false, until
	}
	made := 0
	for _, calls := range b.Calls {
		made += calls
	}
	for _, from := range slices.Sorted(maps.Keys(b.Calls)) {
		if made < perHour {
			break
		}
		if made -= b.Calls[from]; made < perHour {
			return false, time.Unix(expires(from), 0)
		}
	}
	b.Calls[now.Unix()-now.Unix()%minute]++
	return true, time.Time{}
}

// String returns the stored form of the log.
func (b callLog) String() string {
	text, _ := json.Marshal(b) // integers can always be encoded
	return string(text)
}
