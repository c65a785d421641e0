package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const (
	path      = "/api/v1/decisions"
	maxAnswer = 4 << 10 // there should be none
)

// post delivers records together. An error is lasting if it will be the same next time.
func post(ctx context.Context, client *apiclient.Client, records []ledger.Record) (lasting bool, err error) {
	body, err := json.Marshal(map[string]any{"decisions": records})
	if err != nil {
		return true, fmt.Errorf("encoding records: %w", err) // a number that JSON does not have
	}
	_, err = client.Do(ctx, &apiclient.Request{
		Method: http.MethodPost, Path: path, Header: map[string]string{"Content-Type": "application/json"}, Body: body,
		Most: maxAnswer,
	})
	refused, ok := errors.AsType[*apiclient.Refused](err)
	return ok && slices.Contains(forGood, refused.Status), err
}

// forGood are the answers that will be the same next time.
var forGood = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// deliver sends all records, and reports whether it could. A batch that is refused for good is delivered record by
// record, so that one that is refused takes no others along.
func (r *Recorder) deliver(ctx context.Context) bool {
	for len(r.queue) > 0 {
		n := r.batch()
		lasting, err := post(ctx, r.client, r.queue[:n])
		switch {
		case ctx.Err() != nil:
			return true
		case err == nil:
			records.WithLabelValues("sent").Add(float64(n))
		case !lasting:
			if !r.failing {
				r.log.Warn("records of decisions are not delivered: trying again", "error", err)
			}
			r.failing = true
			return false
		case n > 1:
			r.alone = n
			continue
		default:
			records.WithLabelValues("refused").Inc()
			if n := r.throttle("refused", 1); n > 0 {
				r.log.Error("records were refused and are dropped", "number", n, "record", r.queue[0].ID, "error", err)
			}
		}
		r.failing = false
		r.forget(n)
	}
	return true
}

// batch is how many of the oldest records go together.
func (r *Recorder) batch() int {
	n, size := 0, 0
	for n < len(r.queue) && n < maxBatch {
		size += len(r.queue[n].Snapshot)
		if n > 0 && (size > maxBatchBytes || r.alone > 0) {
			break
		}
		n++
	}
	return n
}

// awaitDrafts waits a moment for what is being carried out: the API server may have bound a pod just now.
func (r *Recorder) awaitDrafts(ctx context.Context) {
	_ = wait.PollUntilContextTimeout(ctx, bindsWithin/50, bindsWithin, true, func(context.Context) (bool, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.open == 0, nil
	})
}

func (r *Recorder) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownWithin)
	defer cancel()
	func() {
		defer func() {
			if panicked := recover(); panicked != nil {
				r.logPanic(panicked)
			}
		}()
		r.awaitDrafts(ctx)
		r.writeAll()
		r.deliver(ctx)
	}()
	r.lost(len(r.queue), tooLate)
	for _, why := range []string{tooFast, tooLong} { // what was not logged yet
		if n := r.throttles[why]; n != nil {
			n.logged = time.Time{}
		}
		r.lost(0, why)
	}
}
