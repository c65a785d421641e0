package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kubenergy/kubenergy/central"
	"github.com/kubenergy/kubenergy/ledger"
)

const (
	path       = "/api/v1/decisions"
	mostAnswer = 4 << 10 // there should be none
)

// lastingError is a refusal that will be the same next time.
type lastingError struct{ error }

func (e lastingError) Unwrap() error { return e.error }

func isLasting(err error) bool {
	_, ok := errors.AsType[lastingError](err)
	return ok
}

// send delivers records together.
func send(ctx context.Context, client *central.Client, records []ledger.Record) error {
	body, err := json.Marshal(map[string]any{"decisions": records})
	if err != nil {
		return lastingError{fmt.Errorf("encoding records: %w", err)} // a number that JSON does not have
	}
	_, err = client.Do(ctx, &central.Request{
		Method: http.MethodPost, Path: path, Header: map[string]string{"Content-Type": "application/json"}, Body: body,
		Most: mostAnswer,
	})
	if refused, ok := errors.AsType[*central.Refused](err); ok {
		switch refused.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return lastingError{err}
		}
	}
	return err
}
