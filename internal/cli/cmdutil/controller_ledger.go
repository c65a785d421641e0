package cmdutil

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// route returns the API path for a resource. A request about a single namespace uses the path of that namespace,
// because the user may not have access to all namespaces.
func route(namespaces []string, what string, query url.Values) string {
	if len(namespaces) == 1 {
		return "/api/v1/namespaces/" + url.PathEscape(namespaces[0]) + "/" + what
	}
	query["namespace"] = namespaces
	return "/api/v1/" + what
}

const maxReportRows = 100_000

// Ledger requests sums of the ledger.
func (c *ControllerClient) Ledger(ctx context.Context, q *ledger.Query, filters url.Values) (*ledger.Answer, error) {
	query := url.Values{
		"from": {q.From.Format(time.RFC3339)}, "to": {q.To.Format(time.RFC3339)}, "format": {"json"},
		"limit":   {strconv.Itoa(min(cmp.Or(max(q.Limit, 0), maxReportRows), maxReportRows))},
		"groupBy": sliceutil.Map(q.GroupBy, func(d ledger.Dimension) string { return string(d) }),
		"kind":    sliceutil.Map(q.Kinds, ledger.Kind.String),
		"cluster": q.Clusters,
	}
	maps.Copy(query, filters)
	answer := new(ledger.Answer)
	if _, err := c.Get(ctx, route(q.Namespaces, "ledger", query), query, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Evidence collects the data for turnaround times and savings, and returns whether savings can be computed. Data
// that is unavailable is reported in missing. e is nil if there are no decisions.
func (c *ControllerClient) Evidence(ctx context.Context, q *ledger.Query, savings bool,
	most int,
) (e *report.Evidence, saved bool, missing []string, err error) {
	lack := func(what string, err error) error {
		refused, ok := errors.AsType[*RefusedError](err)
		if !ok || refused.Status >= 500 {
			return err // neither missing permissions nor expired data
		}
		missing = append(missing, what+": "+refused.text)
		return nil
	}
	records, since, without, err := c.recorded(ctx, q, savings, most)
	if without != "" {
		savings, missing = false, append(missing, without)
	}
	if err != nil {
		err = lack("Decisions cannot be read, so turnaround and savings are missing", err)
		return nil, false, missing, err
	}
	e = &report.Evidence{Records: records}
	if len(e.Records) == 0 {
		if savings {
			missing = append(missing, "No decisions were recorded in this interval, so savings are unknown. "+
				"If you expect some, check the log of the scheduler for errors, and its metric "+
				"kubenergy_records_total for the number of records sent to the controller.")
		}
		return nil, false, missing, nil
	}
	if !since.IsZero() {
		missing = append(missing, fmt.Sprintf("Turnaround and savings only include the newest %d decisions "+
			"since %s UTC. Select a shorter interval or increase --max-decisions.",
			len(e.Records), since.UTC().Format("2006-01-02 15:04:05")))
	}
	uids, owners, sites := report.Queries(q)
	if e.Owners, err = c.Ledger(ctx, &owners, nil); err != nil {
		return nil, false, missing, err
	}
	if e.UIDs, err = c.Ledger(ctx, &uids, nil); err != nil {
		if err := lack("Data of pods has expired, so jobs are distinguished by name", err); err != nil {
			return nil, false, missing, err
		}
	}
	if !savings {
		return e, false, missing, nil
	}
	if e.Sites, err = c.Ledger(ctx, &sites, nil); err != nil && len(q.Namespaces) > 0 {
		// A user without access to all namespaces gets the rates of the namespace's own bookings. The rates are the
		// same, but cover fewer hours.
		sites.Namespaces = q.Namespaces
		e.Sites, err = c.Ledger(ctx, &sites, nil)
	}
	if err != nil {
		err = lack("Recorded intensities of sites cannot be read, so forecasts are used instead", err)
	}
	return e, true, missing, err
}

// recorded fetches decisions. If snapshots are forbidden, it fetches decisions without them and explains that in
// without.
func (c *ControllerClient) recorded(ctx context.Context, q *ledger.Query, snapshots bool,
	most int,
) (records []ledger.Record, since time.Time, without string, err error) {
	records, since, err = c.Decisions(ctx, RecordsOf(q, snapshots, most), nil)
	refused, ok := errors.AsType[*RefusedError](err)
	if !snapshots || !ok || refused.Status != http.StatusForbidden {
		return records, since, "", err
	}
	bare, from, again := c.Decisions(ctx, RecordsOf(q, false, most), nil)
	if again != nil {
		return nil, since, "", err // the first error is more specific
	}
	return bare, from, "Savings are missing, because the snapshots of decisions cannot be read: " + refused.text, nil
}

// Limits of requests for decisions.
const (
	PageOfRecords   = 10_000
	pageOfSnapshots = 200
	MaxRecords      = 100_000
)

// RecordsOf returns a query for the decisions of an interval and the preceding holds.
func RecordsOf(q *ledger.Query, snapshots bool, most int) *ledger.RecordQuery {
	return &ledger.RecordQuery{
		From: q.From.Add(-report.HoldsBefore), To: q.To, Namespaces: q.Namespaces, Snapshots: snapshots, Limit: most,
	}
}

// Decisions fetches records page by page, newest first. If keep is not nil, it selects the records to include. If
// there are more records than could be fetched, since is the time of the oldest fetched record, otherwise it is
// zero. A query without To ends now.
func (c *ControllerClient) Decisions(ctx context.Context, q *ledger.RecordQuery,
	keep func(*ledger.Record) bool,
) (all []ledger.Record, since time.Time, err error) {
	seen := map[string]bool{}
	to, full := q.To, PageOfRecords
	if q.Snapshots {
		full = pageOfSnapshots
	}
	if keep == nil {
		full = min(full, q.Limit+1)
	}
	for len(all) <= q.Limit {
		var page api.Decisions
		query := recordParameters(q, to, full)
		if _, err := c.Get(ctx, route(q.Namespaces, "decisions", query), query, &page); err != nil {
			return nil, time.Time{}, err
		}
		fresh := 0
		for i := range page.Decisions {
			r := page.Decisions[i]
			if seen[r.ID] {
				continue
			}
			seen[r.ID] = true
			fresh++
			if keep == nil || keep(&r) {
				all = append(all, r)
			}
			since = r.At
			// Other records with the same time may be on the next page.
			if after := r.At.Add(time.Millisecond); to.IsZero() || after.Before(to) {
				to = after
			}
		}
		switch {
		case fresh == 0 && len(page.Decisions) < full:
			return all, time.Time{}, nil
		case fresh == 0: // more records with the same time than a page contains, so older ones are unreachable
			return all, since, nil
		}
	}
	all = all[:q.Limit]
	return all, all[q.Limit-1].At, nil
}

// recordParameters returns the API parameters for a page of records before the given time.
func recordParameters(q *ledger.RecordQuery, to time.Time, most int) url.Values {
	query := url.Values{"from": {q.From.Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(most)}}
	if !to.IsZero() {
		query.Set("to", to.Format(time.RFC3339Nano))
	}
	if q.UID != "" {
		query.Set("uid", q.UID)
	}
	query["strategy"] = q.Strategies
	if q.Snapshots {
		query.Set("snapshots", "true")
	}
	return query
}
