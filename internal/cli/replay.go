package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

type replayFlags struct {
	cmdutil.ControllerFlags
	spanFlags
	file       string
	plans      string
	strategies []string
	output     *cmdutil.Choice
	bounds     map[string]bool // whether --from and --to are set
}

func newReplay(t cmdutil.Terminal) *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay --strategy NAME",
		Short: "Replay recorded decisions with another strategy",
		Long: `Read recorded decisions and their snapshots from the controller or from a file, and show the decisions
of other strategies for the same snapshots, with the estimated energy, emissions and cost. The command does not change
the cluster. Records that cannot be replayed are listed with their ID. Times are in UTC.

The file contains the response of GET /api/v1/decisions?snapshots=true of the controller. The example
scenarios/replay/decisions.json does not require a cluster. The output of simulate contains no snapshots and cannot be
replayed.

With --plans, the command recomputes the plans recorded by kubenergy-scheduler with --kubenergy-record-plans, or by the
lab in plans.jsonl. The first plan that differs is an error.`,
		Example: `  kubenergy replay --strategy carbon+window --from -1d
  kubenergy replay --file scenarios/replay/decisions.json --strategy carbon,carbon+lowest-slot
  kubenergy replay --file decisions.json --strategy energy,carbon+residual -o csv
  kubenergy replay --plans plans.jsonl`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.plans != "" {
				return f.again(t)
			}
			var err error
			if f.strategies, err = cmdutil.StrategyNames(cmd, "strategy"); err != nil {
				return cmdutil.NewUsageError(err)
			}
			f.bounds = map[string]bool{"from": cmd.Flags().Changed("from"), "to": cmd.Flags().Changed("to")}
			return f.run(cmd.Context(), t)
		},
	}
	flags := cmd.Flags()
	f.ControllerFlags.Add(flags, "")
	flags.StringSliceVar(&f.strategies, "strategy", nil, "strategies to replay")
	flags.StringVar(&f.file, "file", "", "file with records, either JSON with snapshots in the format of the API, or "+
		"CSV with the same column names; may be compressed with gzip")
	flags.StringVar(&f.plans, "plans", "", "`file` with plans to recompute instead of records")
	f.spanFlags.add(flags, "; optional with --file")
	f.output = cmdutil.Output(flags, "table", "json", "csv")
	for _, other := range []string{"file", "strategy", "output"} { // flags that only apply to records
		cmd.MarkFlagsMutuallyExclusive("plans", other)
	}
	return cmd
}

func (f *replayFlags) run(ctx context.Context, t cmdutil.Terminal) error {
	if len(f.strategies) == 0 {
		return cmdutil.UsageErrorf("missing strategy: want --strategy, e.g. --strategy carbon+window")
	}
	for _, name := range f.strategies {
		if _, err := strategy.New(name); err != nil {
			return cmdutil.UsageErrorf("--strategy: %w", err)
		}
	}
	records, err := f.records(ctx, t)
	if err != nil {
		return err
	}
	r, err := report.NewReplay(records, f.strategies)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	if err := t.Print(r, f.output.Value); err != nil {
		return err
	}
	if r.Records == 0 && len(r.Refused) > 0 {
		return fmt.Errorf("none of %d records can be replayed, e.g. %s: %s", len(r.Refused), r.Refused[0].ID,
			r.Refused[0].Why)
	}
	return nil
}

// again recomputes recorded plans.
func (f *replayFlags) again(t cmdutil.Terminal) error {
	text, err := grid.ReadFile(f.plans)
	if err != nil {
		return cmdutil.UsageErrorf("reading plans: %w", err)
	}
	same, err := policy.ReplayPlans(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%s: %w", f.plans, err)
	}
	if same == 0 {
		return fmt.Errorf("%s contains no plans", f.plans)
	}
	fmt.Fprintf(t.Out, "Recomputed %d plans from their snapshots without differences\n", same)
	return nil
}

func (f *replayFlags) records(ctx context.Context, t cmdutil.Terminal) ([]ledger.Record, error) {
	q, err := f.query(t.Now())
	if err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	if f.file != "" {
		records, err := readRecords(f.file)
		if err != nil {
			return nil, cmdutil.NewUsageError(err)
		}
		records = slices.DeleteFunc(records, func(r ledger.Record) bool { // unset flags do not filter records
			return len(q.Namespaces) > 0 && !slices.Contains(q.Namespaces, r.Namespace) ||
				f.bounds["from"] && r.At.Before(q.From) || f.bounds["to"] && !r.At.Before(q.To)
		})
		return records[:min(len(records), f.decisions)], nil
	}
	c, err := f.Connect(ctx, t, f.namespaces...)
	if err != nil {
		return nil, err
	}
	records, since, err := c.Decisions(ctx, cmdutil.RecordsOf(q, true, f.decisions), nil)
	if err != nil {
		return nil, err
	}
	if !since.IsZero() {
		fmt.Fprintf(t.Err, "Only the newest %d decisions since %s UTC are replayed\n",
			len(records), since.UTC().Format(time.DateTime))
	}
	// The query includes earlier holds, which are not replayed.
	return slices.DeleteFunc(records, func(r ledger.Record) bool { return r.At.Before(q.From) }), nil
}

// readRecords reads a response of the API, the list inside it, or a table with the same field names.
func readRecords(path string) ([]ledger.Record, error) {
	text, err := grid.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading records: %w", err)
	}
	trimmed := bytes.TrimSpace(text)
	var records []ledger.Record
	switch {
	case len(trimmed) > 0 && trimmed[0] == '{':
		var answer struct{ Decisions *[]ledger.Record }
		if err = json.Unmarshal(trimmed, &answer); err == nil && answer.Decisions == nil {
			err = errors.New("missing decisions: want the response of GET /api/v1/decisions?snapshots=true")
		}
		if err == nil {
			records = *answer.Decisions
		}
	case len(trimmed) > 0 && trimmed[0] == '[':
		err = json.Unmarshal(trimmed, &records)
	default:
		records, err = recordTable(trimmed)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return records, nil
}

// recordFields are the fields that a replay requires or that identify a record. The first five are mandatory.
var recordFields = []string{
	"id", "at", "action", "digest", "snapshot", "namespace", "ownerKind", "owner", "uid", "strategy", "node", "reason",
	"start",
}

// recordTable reads a CSV table with the field names of the API as column names. Other columns are ignored.
func recordTable(text []byte) ([]ledger.Record, error) {
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) == 0 {
		return nil, errors.Join(errors.New("the table has no header"), err)
	}
	if slices.Contains(rows[0], report.DecisionsID) {
		return nil, errors.New("the file was written by kubenergy simulate and contains no snapshots: want decisions " +
			"recorded in a cluster, as returned by GET /api/v1/decisions?snapshots=true, e.g. " +
			"scenarios/replay/decisions.json")
	}
	for _, name := range recordFields[:5] {
		if !slices.Contains(rows[0], name) {
			return nil, fmt.Errorf("the table has no column %q: was it created without snapshots?", name)
		}
	}
	records := make([]ledger.Record, len(rows)-1)
	for i, row := range rows[1:] {
		for _, name := range recordFields {
			k := slices.Index(rows[0], name)
			if k < 0 || row[k] == "" && name != "at" {
				continue
			}
			field, err := json.Marshal(map[string]string{name: row[k]})
			if err == nil {
				err = json.Unmarshal(field, &records[i])
			}
			if err != nil {
				return nil, fmt.Errorf("row %d, record %s: %s: %w", i+1, records[i].ID, name, err)
			}
		}
	}
	return records, nil
}
