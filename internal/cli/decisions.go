package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

type decisionsFlags struct {
	cmdutil.ControllerFlags
	t          cmdutil.Terminal
	client     *cmdutil.ControllerClient
	all        bool
	since      string
	limit      int
	action     *cmdutil.Choice
	strategies []string
	nodes      []string
	reasons    []string
	follow     bool
	snapshot   string
	output     *cmdutil.Choice
}

// Decisions reach the controller within seconds, or in bulk after an outage.
const (
	followEvery = 5 * time.Second
	lateBy      = 2 * time.Minute // maximum delay of records that --follow prints
)

func newDecisions(t cmdutil.Terminal) *cobra.Command {
	f := decisionsFlags{t: t}
	cmd := &cobra.Command{
		Use:   "decisions",
		Short: "List the scheduling decisions with node, time window, strategy, expected saving and reason",
		Long: `List the decisions that the scheduler has recorded at the controller, newest first. A decision holds,
releases or places a workload. The output contains the node, the time window, the strategy and the reason. SAVES is the
expected saving of a hold, relative to the cost of an immediate start. Times are in UTC.

With --follow, decisions are printed in chronological order and new ones are added as they are recorded, until the
command is interrupted. -o json prints the response of GET /api/v1/decisions of the controller, or one decision per
line with --follow. --snapshot prints the inputs of one decision. They include all nodes, so the permission to list
nodes is required.`,
		Example: `  kubenergy decisions -n shop --since 2h
  kubenergy decisions -A --action hold --reason CheaperLater -o wide
  kubenergy decisions -A --follow
  kubenergy decisions -n shop --snapshot job/nightly`,
		Args: cmdutil.NoArguments,
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cmdutil.NewUsageError(f.check(cmd.Flags().Changed("output")))
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	f.ControllerFlags.Add(flags, "namespace of the workloads (default: namespace of the kubeconfig)")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list the decisions of all namespaces")
	flags.StringVar(&f.since, "since", "1d", "maximum age of decisions, e.g. 2h or 7d, or the earliest time or date")
	flags.IntVar(&f.limit, "limit", 100, "maximum number of decisions; the newest are listed")
	f.action = cmdutil.Choose(flags, "action", "", "action", "action to list:", "any", "place", "hold", "release",
		"pause", "scale")
	flags.StringSliceVar(&f.strategies, "strategy", nil, "list only decisions of these strategies")
	flags.StringSliceVar(&f.nodes, "node", nil, "list only placements on these nodes")
	flags.StringSliceVar(&f.reasons, "reason", nil,
		"list only decisions with these reasons, e.g. CheaperLater or DeadlineForced")
	flags.BoolVarP(&f.follow, "follow", "f", false, "continue with new decisions as they are recorded")
	flags.StringVar(&f.snapshot, "snapshot", "",
		"print the inputs of a decision as JSON, given its `ID`, or job/NAME or pod/NAME for the newest decision")
	f.output = cmdutil.Output(flags, "table", "wide", "json", "csv")
	return cmd
}

func (f *decisionsFlags) check(format bool) error {
	switch {
	case f.all && f.Namespace != "":
		return fmt.Errorf("-A and -n %s are mutually exclusive", f.Namespace)
	case f.limit <= 0:
		return fmt.Errorf("--limit is %d: want more than 0", f.limit)
	case f.snapshot != "" && (f.follow || format):
		return errors.New("--snapshot prints one snapshot as JSON and cannot be combined with --follow and -o")
	}
	for _, name := range f.strategies {
		if _, err := strategy.New(name); err != nil {
			return fmt.Errorf("--strategy: %w", err)
		}
	}
	return nil
}

// query returns the query for the records selected by the flags.
func (f *decisionsFlags) query(now time.Time) (*ledger.RecordQuery, error) {
	from, err := humanize.ParseTime("--since", "-"+f.since, now)
	if err != nil {
		from, err = humanize.ParseTime("--since", f.since, now)
	}
	q := &ledger.RecordQuery{From: from, Strategies: f.strategies, Limit: f.limit}
	if !f.all {
		q.Namespaces = []string{cmp.Or(f.client.Home, "default")}
	}
	return q, cmdutil.NewUsageError(err)
}

// wants reports whether a record matches the filters that the API does not support.
func (f *decisionsFlags) wants(r *ledger.Record) bool {
	reason := func(name string) bool { return strings.EqualFold(name, r.Reason) }
	return (f.action.Value == "any" || f.action.Value == r.Action) &&
		(len(f.nodes) == 0 || slices.Contains(f.nodes, r.Node)) &&
		(len(f.reasons) == 0 || slices.ContainsFunc(f.reasons, reason))
}

func (f *decisionsFlags) run(ctx context.Context) (err error) {
	if f.client, err = f.Connect(ctx, f.t); err != nil {
		return err
	}
	q, err := f.query(f.t.Now())
	if err != nil {
		return err
	}
	if f.snapshot != "" {
		return f.printSnapshot(ctx, q)
	}
	var keep func(*ledger.Record) bool
	if f.action.Value != "any" || len(f.nodes)+len(f.reasons) > 0 {
		keep = f.wants
	}
	records, since, err := f.client.Decisions(ctx, q, keep)
	if err != nil {
		return err
	}
	records = append([]ledger.Record{}, records...) // encode an empty list instead of null, like the API
	if !since.IsZero() {
		fmt.Fprintf(f.t.Err, "Only the newest %d decisions are listed: use --limit and --since to select others\n",
			f.limit)
	}
	list := &decisionList{Decisions: api.Decisions{Decisions: records}, namespaces: f.all}
	if f.follow {
		return f.goOn(ctx, q, list)
	}
	if format := f.output.Value; len(records) == 0 && (format == "table" || format == "wide") {
		_, err := fmt.Fprintf(f.t.Err, "No decisions found since %s. If you expect some, run %s doctor to check "+
			"whether the scheduler sends them to the controller.\n", q.From.Format(time.RFC3339), f.t.Name)
		return err
	}
	return f.t.Print(list, f.output.Value)
}

// goOn prints the list in chronological order, followed by each new decision, until the context is done. It retries
// if the controller is temporarily unavailable.
func (f *decisionsFlags) goOn(ctx context.Context, q *ledger.RecordQuery, list *decisionList) error {
	seen := map[string]time.Time{}
	q.Limit = cmdutil.MaxRecords
	if err := f.add(list, seen); err != nil {
		return err
	}
	for failed := false; ctx.Err() == nil; {
		select {
		case <-ctx.Done():
			return nil
		case <-f.t.After(followEvery):
		}
		for _, at := range seen {
			if from := at.Add(-lateBy); from.After(q.From) {
				q.From = from
			}
		}
		maps.DeleteFunc(seen, func(_ string, at time.Time) bool { return at.Before(q.From) })
		records, _, failure := f.client.Decisions(ctx, q, f.wants)
		if failure != nil && ctx.Err() == nil {
			if err := f.again(ctx, failure, failed); err != nil {
				return err
			}
		}
		failed, list.Decisions.Decisions = failure != nil, records
		if err := f.add(list, seen); err != nil {
			return err
		}
	}
	return nil
}

// again prepares the next attempt after a failure, or returns an error if a retry is pointless. It reconnects if the
// token, which is valid for ten minutes, has expired.
func (f *decisionsFlags) again(ctx context.Context, failure error, reported bool) (err error) {
	refused, ok := errors.AsType[*cmdutil.RefusedError](failure)
	switch {
	case ok && refused.Status == http.StatusUnauthorized:
		f.client, err = f.Connect(ctx, f.t)
	case ok && refused.Status < http.StatusInternalServerError && refused.Status != http.StatusTooManyRequests:
		return failure
	case !reported:
		fmt.Fprintf(f.t.Err, "%v, retrying\n", failure)
	}
	return err
}

// add prints the decisions that were not printed before, oldest first.
func (f *decisionsFlags) add(list *decisionList, seen map[string]time.Time) error {
	slices.Reverse(list.Decisions.Decisions)
	list.Decisions.Decisions = slices.DeleteFunc(list.Decisions.Decisions, func(r ledger.Record) bool {
		_, known := seen[r.ID]
		seen[r.ID] = r.At
		return known
	})
	if len(list.Decisions.Decisions) == 0 {
		return nil
	}
	if f.output.Value == "json" {
		for i := range list.Decisions.Decisions {
			if err := json.NewEncoder(f.t.Out).Encode(&list.Decisions.Decisions[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var b bytes.Buffer
	if err := report.Write(&b, list, f.output.Value, false); err != nil {
		return err
	}
	text := b.Bytes()
	if list.more { // omit the header
		text = text[bytes.IndexByte(text, '\n')+1:]
	}
	list.more = true
	_, err := f.t.Out.Write(text)
	return err
}

// printSnapshot prints the snapshot of the newest matching decision.
func (f *decisionsFlags) printSnapshot(ctx context.Context, q *ledger.RecordQuery) error {
	owner := ""
	if strings.Contains(f.snapshot, "/") {
		kind, name, err := cmdutil.OneObject([]string{f.snapshot}, cmdutil.KindJob, cmdutil.KindPod)
		if err != nil {
			return fmt.Errorf("--snapshot: %w", err)
		}
		owner = strings.ToUpper(kind[:1]) + kind[1:] + "/" + name
	}
	q.Limit = cmdutil.MaxRecords
	found, _, err := f.client.Decisions(ctx, q, func(r *ledger.Record) bool {
		return f.wants(r) && (r.ID == f.snapshot || r.OwnerName() == owner && r.Digest != "")
	})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no decision %s with a snapshot found since %s: check --since, -n and -A", f.snapshot,
			q.From.Format(time.RFC3339))
	}
	r := &found[0]
	q.From, q.To, q.UID, q.Snapshots = r.At, r.At.Add(time.Millisecond), r.UID, true
	full, _, err := f.client.Decisions(ctx, q, func(other *ledger.Record) bool { return other.ID == r.ID })
	switch {
	case err != nil:
		return err
	case len(full) == 0 || len(full[0].Snapshot) == 0:
		return fmt.Errorf("decision %s was recorded without a snapshot: %s", r.ID, reasonOf(r, true))
	}
	text, err := report.Unpacked(&full[0])
	if err != nil {
		return err
	}
	return report.WriteJSON(f.t.Out, json.RawMessage(text))
}
