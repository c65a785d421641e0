package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// foldLate is how long bookings may wait for their place in the sums: many times the usual.
const foldLate = 15 * time.Minute

// lookAtCentral asks the controller how its ledger is and how old its knowledge of nodes.
func (d *doctor) lookAtCentral(ctx context.Context) {
	c, err := throughProxy(ctx, d.config, d.namespace, "", d.now)
	if err != nil {
		hint := "use a kubeconfig with a token, or ask for the right"
		// it is not the right that is missing
		if _, none := errors.AsType[*noTokenError](err); !none || ctx.Err() != nil {
			hint = "ask again when the API server answers"
		}
		d.say(statusWarn, hint, "the controller cannot be asked: %s", oneLine(err))
		return
	}
	var holds struct {
		Journal int        `json:"journal"`
		Oldest  *time.Time `json:"oldest"`
		Unsent  *time.Time `json:"unsent"`
	}
	now, err := c.get(ctx, "/api/v1/ledger/statistics", nil, &holds)
	refused, _ := errors.AsType[*refusedError](err)
	switch {
	case refused != nil && (refused.status == http.StatusNotFound || refused.status == http.StatusMethodNotAllowed):
		d.say(statusWarn, "install or upgrade the chart: reports and live watts need it", "%v", err)
		return
	case refused != nil && refused.status < http.StatusInternalServerError:
		d.say(statusWarn, adviceRights, "%v", err)
		return
	// whether its pod is ready was looked at above
	case refused != nil && refused.status == http.StatusServiceUnavailable:
		d.say(statusWarn,
			"look at the logs of "+controllerName+"; where that proxy reaches no pods, use --server of report and top",
			"%v", err)
		return
	case err != nil:
		d.say(statusFail, "look at the logs of "+controllerName, "%v", err)
		return
	case holds.Oldest != nil && now.Sub(*holds.Oldest) > foldLate:
		d.say(statusFail, "look at the logs of "+controllerName+" and at the room on its volume",
			"%s are not in the ledger's sums since %s: it cannot be written", count(holds.Journal, "booking"),
			holds.Oldest.UTC().Format(time.RFC3339))
	default:
		d.ok("the controller answers, and its ledger is up to date")
	}
	d.lookAtFederation(ctx, c, now, holds.Unsent)
	d.lookAtAges(ctx, c)
}

// lookAtFederation tells of bookings that wait to be forwarded, and of clusters that have forwarded what they book and
// do not any more. unsent is when the first that waits was booked.
func (d *doctor) lookAtFederation(ctx context.Context, c *centralUnit, now time.Time, unsent *time.Time) {
	if unsent != nil && now.Sub(*unsent) > foldLate {
		d.say(statusWarn, "look at the logs of "+controllerName+": the federation is away, or refuses bookings",
			"the federation does not have all that was booked since %s", unsent.UTC().Format(time.RFC3339))
	}
	answer, err := c.ledger(ctx, &ledger.Query{
		From: now.Add(-savingsSpan), To: now, GroupBy: []ledger.Dimension{ledger.ByCluster},
	}, nil)
	if err != nil {
		d.say(statusWarn, adviceRights, "%v", err)
		return
	}
	for i := range answer.Rows {
		if r := &answer.Rows[i]; len(r.Key) == 1 && r.Key[0] != "" && now.Sub(r.Last) > foldLate {
			d.say(statusWarn, "run kubenergy doctor there", "nothing came from cluster %s since %s",
				printable(r.Key[0]), r.Last.UTC().Format(time.RFC3339))
		}
	}
}

// lookAtAges says how many nodes tell what they draw.
func (d *doctor) lookAtAges(ctx context.Context, c *centralUnit) {
	nodes, err := c.nodes(ctx)
	if err != nil {
		d.say(statusWarn, adviceRights, "%v", err)
		return
	}
	stale, oldest := 0, time.Duration(0)
	for i := range nodes {
		if nodes[i].Stale {
			stale++
		}
		oldest = max(oldest, time.Duration(nodes[i].AgeSeconds)*time.Second)
	}
	switch {
	case len(nodes) == 0:
		d.say(statusWarn, "run agents (agent.enabled), or name meters; until then energy is estimated",
			"no node tells what it draws")
	case stale > 0:
		d.say(statusWarn, "look at the agents of those that kubenergy top nodes --sort age names first",
			"%d of %s have not told what they draw for more than %v, one of them for %v", stale,
			count(len(nodes), "node"), liveFor, oldest)
	default:
		d.ok("%s told what they draw within the last %v", count(len(nodes), "node"), oldest)
	}
}
