package doctor

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// foldLate is the maximum age of bookings that are not folded. It is many times the usual age.
const foldLate = 15 * time.Minute

// CheckController checks the state of the controller's ledger and the age of its power readings.
func (d *Doctor) CheckController(ctx context.Context) {
	c, err := cmdutil.ThroughProxy(ctx, d.Config, d.Namespace, "", d.Now)
	if err != nil {
		hint := "use a kubeconfig with a token, or request the missing permission"
		// permissions are not the cause
		if _, none := errors.AsType[*cmdutil.NoTokenError](err); !none || ctx.Err() != nil {
			hint = "try again when the API server responds"
		}
		d.warn(hint, "the controller cannot be queried: %s", cmdutil.OneLine(err))
		return
	}
	var holds struct {
		Journal int        `json:"journal"`
		Oldest  *time.Time `json:"oldest"`
		Unsent  *time.Time `json:"unsent"`
	}
	now, err := c.Get(ctx, "/api/v1/ledger/statistics", nil, &holds)
	refused, _ := errors.AsType[*cmdutil.RefusedError](err)
	switch {
	case refused != nil && (refused.Status == http.StatusNotFound || refused.Status == http.StatusMethodNotAllowed):
		d.warn("install or upgrade the chart, which is required for reports and power readings", "%v", err)
		return
	case refused != nil && refused.Status < http.StatusInternalServerError:
		d.warn(adviceRights, "%v", err)
		return
		// checkComponents has checked the readiness of the pod
	case refused != nil && refused.Status == http.StatusServiceUnavailable:
		d.warn("check the logs of "+cmdutil.ControllerName+"; if the proxy of the API server cannot reach pods, use "+
			"--server of report and top", "%v", err)
		return
	case err != nil:
		d.fail("check the logs of "+cmdutil.ControllerName, "%v", err)
		return
	case holds.Oldest != nil && now.Sub(*holds.Oldest) > foldLate:
		d.fail("check the logs of "+cmdutil.ControllerName+" and the free space on its volume",
			"%s have not been added to the sums since %s: the ledger is not writable",
			humanize.Count(holds.Journal, "booking"), holds.Oldest.UTC().Format(time.RFC3339))
	default:
		d.ok("the controller is available and its ledger is up to date")
	}
	d.checkFederation(ctx, c, now, holds.Unsent)
	d.checkAges(ctx, c)
}

// checkFederation reports bookings that were not forwarded in time, and clusters that stopped forwarding bookings.
// unsent is the time of the oldest booking that was not forwarded.
func (d *Doctor) checkFederation(ctx context.Context, c *cmdutil.ControllerClient, now time.Time, unsent *time.Time) {
	if unsent != nil && now.Sub(*unsent) > foldLate {
		d.warn("check the logs of "+cmdutil.ControllerName+": the federation is unavailable or rejects bookings",
			"bookings since %s have not been forwarded to the federation", unsent.UTC().Format(time.RFC3339))
	}
	answer, err := c.Ledger(ctx, &ledger.Query{
		From: now.Add(-cmdutil.SavingsSpan), To: now, GroupBy: []ledger.Dimension{ledger.ByCluster},
	}, nil)
	if err != nil {
		d.warn(adviceRights, "%v", err)
		return
	}
	for i := range answer.Rows {
		if r := &answer.Rows[i]; len(r.Key) == 1 && r.Key[0] != "" && now.Sub(r.Last) > foldLate {
			d.warn("run kubenergy doctor in that cluster", "no data received from cluster %s since %s",
				cmdutil.Printable(r.Key[0]), r.Last.UTC().Format(time.RFC3339))
		}
	}
}

// checkAges reports the number of nodes with and without current power readings.
func (d *Doctor) checkAges(ctx context.Context, c *cmdutil.ControllerClient) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		d.warn(adviceRights, "%v", err)
		return
	}
	stale, estimated, oldest := 0, 0, time.Duration(0)
	for i := range nodes {
		if nodes[i].Quality == energy.Estimated {
			estimated++
		}
		if nodes[i].Stale {
			stale++
		}
		oldest = max(oldest, time.Duration(nodes[i].AgeSeconds)*time.Second)
	}
	const advice = "enable agents (agent.enabled) or configure meters; until then energy is estimated"
	switch {
	case len(nodes) == 0:
		d.warn(advice, "no node reports its power")
	case stale > 0:
		d.warn("check the agents of the first nodes listed by kubenergy top nodes --sort age",
			"%d of %s have not reported their power for more than %v, the longest for %v", stale,
			humanize.Count(len(nodes), "node"), cmdutil.LiveFor, oldest)
	case estimated == len(nodes):
		d.warn(advice, "no node is metered: the power of all %d is estimated", len(nodes))
	default:
		d.ok("%s reported power within the last %v, measured on %d", humanize.Count(len(nodes), "node"), oldest,
			len(nodes)-estimated)
	}
	d.reportFindings(nodes)
}

// reportFindings reports the findings of the agents, up to a limit.
func (d *Doctor) reportFindings(nodes []cmdutil.PowerReading) {
	const shown = 10
	count := 0
	for i := range nodes {
		for _, finding := range nodes[i].Findings {
			if count++; count <= shown {
				d.warn(`see "When something is wrong" in docs/reference/agent.md`, "the agent of node %s reports: %s",
					cmdutil.Printable(nodes[i].Name), cmdutil.Printable(finding))
			}
		}
	}
	if count > shown {
		d.warn("list them with kubenergy top nodes -o json", "the agents report %d more findings", count-shown)
	}
}
