package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

type reportFlags struct {
	cmdutil.ControllerFlags
	spanFlags
	groupBy  []string
	filters  map[string]*[]string // by the name of the API parameter
	limit    int
	savings  bool
	baseline string
	seed     uint64

	output *cmdutil.Choice
	out    string
}

// spanFlags select an interval, namespaces and a number of decisions.
type spanFlags struct {
	from, to   string
	namespaces []string
	decisions  int // maximum number of decisions
}

// add adds the flags. The text more is appended to the usage of --from.
func (f *spanFlags) add(flags *pflag.FlagSet, more string) {
	flags.StringVar(&f.from, "from", "-7d",
		"start of the interval, as RFC 3339, date (2026-06-01) or relative time (-7d, -36h)"+more)
	flags.StringVar(&f.to, "to", "now", "end of the interval, in the same formats")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "namespaces to include (default: all)")
	flags.IntVar(&f.decisions, "max-decisions", cmdutil.MaxRecords,
		"maximum number of decisions to evaluate, newest first")
}

func (f *spanFlags) query(now time.Time) (*ledger.Query, error) {
	from, errFrom := humanize.ParseTime("--from", f.from, now)
	to, errTo := humanize.ParseTime("--to", f.to, now)
	if err := cmp.Or(errFrom, errTo); err != nil {
		return nil, err
	}
	if f.decisions <= 0 {
		return nil, fmt.Errorf("--max-decisions is %d: want more than 0", f.decisions)
	}
	return &ledger.Query{From: from, To: to, Namespaces: f.namespaces}, nil
}

// reportGroups are the dimensions of --group-by in the order of the help text.
var reportGroups = []ledger.Dimension{
	ledger.ByNode, ledger.ByNamespace, ledger.ByOwner, ledger.ByStrategy, ledger.ByHour, ledger.ByDay, ledger.ByPod,
	ledger.ByTeam, ledger.BySite, ledger.ByCluster, ledger.ByParent, ledger.ByKind,
}

var groupNames = sliceutil.Map(reportGroups, func(d ledger.Dimension) string { return string(d) })

// ofSlurm maps terms of Slurm to the dimensions of its jobs.
var ofSlurm = map[string]ledger.Dimension{
	"account": ledger.ByNamespace, "user": ledger.ByTeam, "partition": ledger.ByParent,
}

func newReport(t cmdutil.Terminal) *cobra.Command {
	f := reportFlags{filters: map[string]*[]string{}}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Summarize energy, emissions, cost and savings from the ledger",
		Long: `Summarize the ledger of the controller, which includes energy, mean carbon intensity, emissions,
cost, the estimated fraction, the turnaround time of jobs, and the savings relative to a baseline with a 95 % confidence
interval. Savings are shown with --group-by strategy or --savings, and require the decisions recorded by the scheduler.
Times are in UTC. The interval is extended to whole hours, or to five minutes for rows of pods. --group-by owner also
groups by namespace unless one namespace is selected, because owners of different namespaces may have equal names.`,
		Example: `  kubenergy report --from -30d --group-by namespace,day
  kubenergy report --group-by strategy --baseline least-allocated
  kubenergy report --group-by cluster,namespace --cluster north --cluster south
  kubenergy report -n shop --from 2026-06-01 --to 2026-07-01 --out june.html`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.ControllerFlags.Add(flags, "")
	f.spanFlags.add(flags, "")
	flags.StringSliceVar(&f.groupBy, "group-by", []string{"namespace"},
		"one or more of "+strings.Join(groupNames, ", ")+"; account, user and partition "+
			"are namespace, team and parent of Slurm jobs; empty for the total only")
	for _, filter := range []struct{ name, usage string }{
		{"node", "nodes to include"},
		{"owner", "owners to include, e.g. Job/nightly"},
		{"pod", "pods to include, by name or UID"},
		{"team", "teams to include"},
		{"strategy", "placement strategies to include"},
		{"site", "sites to include"},
		{"cluster", "clusters of a federation to include"},
		{"kind", "kinds of accounts to include, e.g. workload or idle"},
	} {
		f.filters[filter.name] = flags.StringSlice(filter.name, nil, filter.usage)
	}
	flags.IntVar(&f.limit, "limit", 0, "maximum number of rows, by energy; the remaining rows are summed in one row "+
		"(0: unlimited)")
	flags.BoolVar(&f.savings, "savings", false, "compute savings even if not grouped by strategy")
	flags.StringVar(&f.baseline, "baseline", report.DefaultBaseline, "baseline strategy for savings")
	flags.Uint64Var(&f.seed, "seed", 1, "random seed for the confidence intervals of savings")
	f.output = cmdutil.Output(flags, "table", "wide", "csv", "json", "html")
	flags.StringVar(&f.out, "out", "", "output file; the extension determines the format unless -o is set")
	return cmd
}

// format determines the output format from the flag -o or from the extension of the output file.
func (f *reportFlags) format(cmd *cobra.Command) error {
	ending := filepath.Ext(f.out)
	known := f.output.Infer(cmd.Flags(), "output", f.out) || ending == "" || ending == ".txt"
	if !known && !cmd.Flags().Changed("output") {
		return fmt.Errorf("--out %s: unknown extension %s: want .csv, .json or .html, or set -o", f.out, ending)
	}
	if f.output.Value == "html" && f.out == "" {
		return errors.New("-o html requires --out")
	}
	return nil
}

// query validates the flags and returns the query.
func (f *reportFlags) query(cmd *cobra.Command, now time.Time) (*ledger.Query, error) {
	if err := f.format(cmd); err != nil {
		return nil, err
	}
	q, err := f.spanFlags.query(now)
	if err != nil {
		return nil, err
	}
	q.Limit = f.limit
	for _, name := range f.groupBy {
		if name == "" {
			continue
		}
		d := cmp.Or(ofSlurm[name], ledger.Dimension(name))
		if !slices.Contains(reportGroups, d) {
			return nil, fmt.Errorf("--group-by is %q%s: want one or more of %s", name,
				spelling.DidYouMean(name, groupNames), strings.Join(groupNames, ", "))
		}
		q.GroupBy = append(q.GroupBy, d)
	}
	if slices.Equal(q.GroupBy, []ledger.Dimension{ledger.ByOwner}) && len(f.namespaces) != 1 {
		q.GroupBy = []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}
	}
	if _, err := strategy.New(f.baseline); err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	if _, err := q.Plan(); err != nil {
		return nil, err
	}
	return q, nil
}

func (f *reportFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	q, err := f.query(cmd, t.Now())
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	c, err := f.Connect(cmd.Context(), t, f.namespaces...)
	if err != nil {
		return err
	}
	answer, err := c.Ledger(cmd.Context(), q, f.values())
	if err != nil {
		return err
	}
	savings := f.savings || slices.Contains(q.GroupBy, ledger.ByStrategy)
	evidence, savings, missing, err := c.Evidence(cmd.Context(), q, savings, f.decisions)
	if err != nil {
		return err
	}
	if evidence != nil {
		missing = append(missing, f.narrow(evidence)...)
	}
	var comparison *report.Comparison
	if savings {
		if comparison, err = report.Compare(evidence, f.baseline, q.From, f.seed); err != nil {
			return err
		}
	}
	s := report.NewStatement(answer, evidence, comparison)
	s.Notes = append(s.Notes, missing...)
	s.Filters = f.values()
	if len(f.namespaces) > 0 {
		s.Filters["namespace"] = f.namespaces
	}
	return t.PrintTo(f.out, s, f.output.Value)
}

// narrow applies the filters to decisions and returns a note for each filter that decisions do not support.
func (f *reportFlags) narrow(e *report.Evidence) (missing []string) {
	if len(*f.filters["node"])+len(*f.filters["strategy"]) > 0 {
		// Only placements have a node and the strategy that placed the job.
		e.Records = slices.DeleteFunc(e.Records, func(r ledger.Record) bool { return r.Action == "release" })
	}
	for name, fn := range map[string]func(*ledger.Record) string{
		"owner":    (*ledger.Record).OwnerName,
		"strategy": func(r *ledger.Record) string { return r.Strategy },
		"node":     func(r *ledger.Record) string { return r.Node },
	} {
		values := *f.filters[name]
		e.Records = slices.DeleteFunc(e.Records, func(r ledger.Record) bool {
			applies := name == "owner" || r.Action == "place" // holds have no node, and contain the strategy that holds
			return len(values) > 0 && applies && !slices.Contains(values, fn(&r))
		})
	}
	for _, name := range []string{"pod", "team", "site", "cluster", "kind"} {
		if len(*f.filters[name]) > 0 {
			missing = append(missing, "Turnaround and savings ignore --"+name+" and include all jobs of this cluster.")
		}
	}
	return missing
}

// values returns the filters that are set, except namespaces.
func (f *reportFlags) values() map[string][]string {
	set := map[string][]string{}
	for name, values := range f.filters {
		if len(*values) > 0 {
			set[name] = *values
		}
	}
	return set
}
