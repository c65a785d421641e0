package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const (
	path      = "/api/v1/decisions"
	maxAnswer = 4 << 10 // no content is expected
)

// post delivers records in a single request. lasting is true if a retry would fail with the same error.
func post(ctx context.Context, client *apiclient.Client, records []ledger.Record) (lasting bool, err error) {
	body, err := json.Marshal(map[string]any{"decisions": records})
	if err != nil {
		return true, fmt.Errorf("encoding records: %w", err) // a number that is not representable in JSON
	}
	_, err = client.Do(ctx, &apiclient.Request{
		Method: http.MethodPost, Path: path, Header: map[string]string{"Content-Type": "application/json"}, Body: body,
		Most: maxAnswer,
	})
	refused, ok := errors.AsType[*apiclient.Refused](err)
	return ok && slices.Contains(forGood, refused.Status), err
}

// forGood contains the status codes that make a retry useless.
var forGood = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// deliver sends all records and reports whether it succeeded. If a batch is rejected permanently, its records are
// delivered individually, so that a single invalid record does not affect the others.
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
				r.log.Warn("Failed to deliver records of decisions, retrying", "error", err)
			}
			r.failing = true
			return false
		case n > 1:
			r.alone = n
			continue
		default:
			records.WithLabelValues("refused").Inc()
			r.refusals++
			r.logRefusals.Do(func() {
				r.log.Error("Dropped rejected records", "number", r.refusals, "record", r.queue[0].ID, "error", err)
				r.refusals = 0
			})
		}
		r.failing = false
		r.forget(n)
	}
	return true
}

// batch returns the number of the oldest records that are delivered together.
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

// awaitDrafts waits briefly for open drafts, because the API server may just have bound the pod.
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
	r.safely(func() {
		r.awaitDrafts(ctx)
		r.writeAll()
		r.deliver(ctx)
	})
	r.logLosses = rate.Sometimes{Every: 1}
	r.lost(len(r.queue), tooLate)
	r.lost(0, tooFast) // log losses that have not been logged yet
	r.lost(0, tooLong)
}
