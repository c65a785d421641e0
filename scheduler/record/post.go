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

// post delivers records together. An error is lasting if it will be the same next time.
func post(ctx context.Context, client *central.Client, records []ledger.Record) (lasting bool, err error) {
	body, err := json.Marshal(map[string]any{"decisions": records})
	if err != nil {
		return true, fmt.Errorf("encoding records: %w", err) // a number that JSON does not have
	}
	_, err = client.Do(ctx, &central.Request{
		Method: http.MethodPost, Path: path, Header: map[string]string{"Content-Type": "application/json"}, Body: body,
		Most: mostAnswer,
	})
	if refused, ok := errors.AsType[*central.Refused](err); ok {
		switch refused.Status {
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
			return true, err
		}
	}
	return false, err
}
