package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy/jsonscan"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

func (s *server) serveDecisions(w http.ResponseWriter, r *http.Request, q *query) error {
	const usual, most, maxSnapshots = 1000, 10_000, 200
	asked := &ledger.RecordQuery{
		Namespaces: q.namespaces(), Owner: q.text("owner"), UID: q.text("uid"), Strategies: q.list("strategy"),
		Snapshots: q.text("snapshots") == "true",
	}
	asked.From, asked.To = q.span()
	asked.Limit = q.whole("limit", usual, 1, most)
	if asked.Snapshots {
		asked.Limit = min(asked.Limit, maxSnapshots)
	}
	if err := q.err(); err != nil {
		return err
	}
	if asked.Snapshots {
		// Snapshots contain the resources, power and hardware of nodes that run pods of other namespaces.
		needed := access.Attributes{Verb: "list", Group: group, Resource: resourceNodeEnergy}
		if err := s.authorize(r.Context(), needed,
			"snapshots contain data of all nodes and require permission to %s; request decisions "+
				"without snapshots instead", needed); err != nil {
			return err
		}
	}
	return s.reply(w, r, asked.Snapshots, func(ctx context.Context) (any, error) {
		records, err := s.Ledger.Records(ctx, asked)
		return api.Decisions{Decisions: some(records)}, err
	})
}

// authorize returns an error with status 403 and the given text if the caller lacks the needed permission.
func (s *server) authorize(ctx context.Context, needed access.Attributes, refusal string, args ...any) error {
	ok, err := s.Gate.Allowed(ctx, access.UserOf(ctx), needed)
	switch {
	case err != nil:
		s.Log.Warn("Failed to check the permissions of a caller", "error", err)
		return &failure{
			http.StatusServiceUnavailable, "your permissions cannot be checked: the API server is unavailable", busyFor,
		}
	case !ok:
		return fail(http.StatusForbidden, refusal, args...)
	}
	return nil
}

const maxRecordCount = 256

func (s *server) postDecisions(w http.ResponseWriter, r *http.Request, _ *query) error {
	data, err := unpacked(r, maxRecords)
	if err != nil {
		return err
	}
	records, err := readDecisions(data)
	if err != nil {
		return err
	}
	if len(records) > 0 {
		if err := s.Ledger.Record(r.Context(), records); err != nil {
			return fmt.Errorf("recording decisions: %w", err)
		}
		if s.Recorded != nil {
			s.Recorded(records)
		}
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// readDecisions parses records, given as an array or as an object with an array. Unknown fields are ignored,
// because a newer scheduler may have sent them.
func readDecisions(data []byte) ([]ledger.Record, error) {
	var records []ledger.Record
	if trimmed := bytes.TrimLeft(data, " \t\r\n"); bytes.HasPrefix(trimmed, []byte("[")) {
		data = slices.Concat([]byte(`{"decisions":`), trimmed, []byte("}"))
	}
	if err := jsonscan.Decode(data, &records, decisionFields); errors.Is(err, jsonscan.ErrTooMany) {
		return nil, fail(http.StatusRequestEntityTooLarge, "reading decisions: %v", err)
	} else if err != nil {
		return nil, fail(http.StatusBadRequest, "reading decisions: %.200s", err)
	}
	for i := range records {
		if err := checkRecord(&records[i]); err != nil {
			return nil, fail(http.StatusUnprocessableEntity, "decision %d: %.300s", i, err)
		}
	}
	return records, nil
}

var decisionFields = []jsonscan.Field[[]ledger.Record]{
	{Key: "decisions", Read: func(s *jsonscan.Scanner, all *[]ledger.Record) {
		*all = jsonscan.List(s, maxRecordCount, func(s *jsonscan.Scanner, to *ledger.Record) {
			s.Check(json.Unmarshal(s.Skip(), to))
		})
	}},
	{Read: func(s *jsonscan.Scanner, _ *[]ledger.Record) { s.Skip() }},
}

// largest is the maximum absolute value of energy, carbon and cost in a decision.
const largest = 1e18

var actions = []string{"place", "hold", "release", "pause", "scale"}

func checkRecord(r *ledger.Record) error {
	if !slices.Contains(actions, r.Action) {
		return fmt.Errorf("action is %.40q: want one of %s", r.Action, strings.Join(actions, ", "))
	}
	if !isNamespace(r.Namespace) {
		return fmt.Errorf("%.80q is not a valid namespace name", r.Namespace)
	}
	for name, text := range map[string]string{
		"id": r.ID, "ownerKind": r.OwnerKind, "owner": r.Owner, "uid": r.UID, "strategy": r.Strategy, "node": r.Node,
		"digest": r.Digest, "reason": r.Reason, "message": r.Message,
	} {
		if !printable(text) {
			return fmt.Errorf("%s contains invalid characters", name)
		}
	}
	for name, number := range map[string]float64{
		"energyJoules": float64(r.Energy), "carbonGrams": float64(r.Carbon), "cost": r.Cost,
		"carbonIntensity": r.Intensity, "saving": r.Saving, "savedGrams": float64(r.Saved),
	} {
		if math.IsNaN(number) || math.Abs(number) > largest {
			return fmt.Errorf("%s is out of range: %v", name, number)
		}
	}
	return r.Validate()
}

// unpacked returns the body of a request, decompressed if its encoding is gzip. The decompressed body must not
// exceed most bytes.
func unpacked(r *http.Request, most int64) ([]byte, error) {
	from := io.Reader(r.Body)
	switch encoding := r.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
	case "gzip":
		packed, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, fail(http.StatusBadRequest, "decompressing the request body: %.100s", err)
		}
		from = packed
	default:
		return nil, fail(http.StatusUnsupportedMediaType, "Content-Encoding is %.40q: want gzip or none", encoding)
	}
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err != nil {
		return nil, unreadable(err)
	}
	if int64(len(data)) > most {
		return nil, fail(http.StatusRequestEntityTooLarge, "the request body exceeds %d bytes", most)
	}
	return data, nil
}
