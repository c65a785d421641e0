package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/central/api"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

type reportFlags struct {
	centralFlags
	spanFlags
	groupBy  []string
	filters  map[string]*[]string // by the name of the API's parameter
	limit    int
	savings  bool
	baseline string
	seed     uint64

	output *choice
	out    string
}

// spanFlags say which time, namespaces and decisions are asked about.
type spanFlags struct {
	from, to   string
	namespaces []string
	decisions  int // that are looked at
}

// add adds the flags. more is what else there is to say of the beginning.
func (f *spanFlags) add(flags *pflag.FlagSet, more string) {
	flags.StringVar(&f.from, "from", "-7d",
		"from when on: RFC 3339, a day as 2026-06-01, or how long ago as -7d or -36h"+more)
	flags.StringVar(&f.to, "to", "now", "until when, in the same ways")
	flags.StringSliceVarP(&f.namespaces, "namespace", "n", nil, "only these namespaces (default: all)")
	flags.IntVar(&f.decisions, "max-decisions", maxRecords, "look at so many decisions at most, the youngest")
}

func (f *spanFlags) query(now time.Time) (*ledger.Query, error) {
	q := &ledger.Query{Namespaces: f.namespaces}
	var err error
	if q.From, err = report.ParseTime("--from", f.from, now); err != nil {
		return nil, err
	}
	if q.To, err = report.ParseTime("--to", f.to, now); err != nil {
		return nil, err
	}
	if f.decisions <= 0 {
		return nil, fmt.Errorf("--max-decisions is %d: want more than 0", f.decisions)
	}
	return q, nil
}

// reportGroups are what people group by, in the order of the help.
var reportGroups = []ledger.Dimension{
	ledger.ByNode, ledger.ByNamespace, ledger.ByOwner, ledger.ByStrategy, ledger.ByHour, ledger.ByDay, ledger.ByPod,
	ledger.ByTeam, ledger.BySite, ledger.ByCluster, ledger.ByParent, ledger.ByKind,
}

// ofSlurm are Slurm's words for dimensions of its jobs.
var ofSlurm = map[string]ledger.Dimension{
	"account": ledger.ByNamespace, "user": ledger.ByTeam, "partition": ledger.ByParent,
}

func newReport(t terminal) *cobra.Command {
	f := reportFlags{filters: map[string]*[]string{}}
	names := report.Each(reportGroups, func(d ledger.Dimension) string { return string(d) })
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Sum up energy, emissions, cost and savings from the ledger",
		Long: `Sum up what the ledger of the central unit holds: energy, mean carbon intensity, emissions,
cost, the share that is estimated, how long jobs took, and what decisions saved against a baseline, with an interval
of 95 %. Savings are shown where strategies are compared (--group-by strategy), or with --savings; they need the
decisions that the scheduler records. Times are in UTC.`,
		Example: `  kubenergy report --from -30d --group-by namespace,day
  kubenergy report --group-by strategy --baseline least-allocated
  kubenergy report --group-by cluster,namespace --cluster north --cluster south
  kubenergy report -n shop --from 2026-06-01 --to 2026-07-01 --out june.html`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.centralFlags.add(flags)
	f.spanFlags.add(flags, "")
	flags.StringSliceVar(&f.groupBy, "group-by", []string{"namespace"},
		"one or several of "+strings.Join(names, ", ")+"; account, user and partition "+
			"are namespace, team and parent of Slurm jobs; empty: the sum alone")
	for _, filter := range []struct{ name, usage string }{
		{"node", "only these nodes"},
		{"owner", "only these owners, as Job/nightly"},
		{"pod", "only these pods, by name or UID"},
		{"team", "only these teams"},
		{"strategy", "only what these strategies placed"},
		{"site", "only these sites"},
		{"cluster", "only these clusters of a federation"},
		{"kind", "only these kinds of accounts, as workload or idle"},
	} {
		values := new([]string)
		flags.StringSliceVar(values, filter.name, nil, filter.usage)
		f.filters[filter.name] = values
	}
	flags.IntVar(&f.limit, "limit", 0, "at most so many rows: those with the most energy; the rest is one row")
	flags.BoolVar(&f.savings, "savings", false, "also compute savings where strategies are not compared")
	flags.StringVar(&f.baseline, "baseline", report.DefaultBaseline, "strategy that savings refer to")
	flags.Uint64Var(&f.seed, "seed", 1, "of the intervals of savings")
	f.output = output(flags, "table", "wide", "csv", "json", "html")
	flags.StringVar(&f.out, "out", "", "write to this file; its ending says the format where -o does not")
	return cmd
}

// format says in which format the report is, by the flag or else by the file.
func (f *reportFlags) format(cmd *cobra.Command) error {
	ending := filepath.Ext(f.out)
	known := f.output.infer(cmd.Flags(), "output", f.out) || ending == "" || ending == ".txt"
	if !known && !cmd.Flags().Changed("output") {
		return fmt.Errorf("--out %s: no format ends in %s: want .csv, .json or .html, or give -o", f.out, ending)
	}
	if f.output.value == "html" && f.out == "" {
		return errors.New("-o html goes with --out FILE")
	}
	return nil
}

// query checks the flags and says what is asked for.
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
			return nil, fmt.Errorf("--group-by is %q: want one or several of %v", name, reportGroups)
		}
		q.GroupBy = append(q.GroupBy, d)
	}
	if _, err := strategy.New(f.baseline); err != nil {
		return nil, fmt.Errorf("--baseline: %w", err)
	}
	if _, err := q.Plan(); err != nil {
		return nil, err
	}
	return q, nil
}

func (f *reportFlags) run(cmd *cobra.Command, t terminal) error {
	q, err := f.query(cmd, t.now())
	if err != nil {
		return invalidUsage(err)
	}
	c, err := f.connect(cmd.Context(), t, f.namespaces...)
	if err != nil {
		return err
	}
	s, err := f.statement(cmd.Context(), c, q)
	if err != nil {
		return err
	}
	return t.printTo(f.out, s, f.output.value)
}

func (f *reportFlags) statement(ctx context.Context, c *centralUnit, q *ledger.Query) (*report.Statement, error) {
	answer, err := c.ledger(ctx, q, f.values())
	if err != nil {
		return nil, err
	}
	savings := f.savings || slices.Contains(q.GroupBy, ledger.ByStrategy)
	evidence, savings, missing, err := c.evidence(ctx, q, savings, f.decisions)
	if err != nil {
		return nil, err
	}
	if evidence != nil {
		missing = append(missing, f.narrow(evidence)...)
	}
	var comparison *report.Comparison
	if savings {
		if comparison, err = report.Compare(evidence, f.baseline, q.From, f.seed); err != nil {
			return nil, err
		}
	}
	s := report.NewStatement(answer, evidence, comparison)
	s.Notes = append(s.Notes, missing...)
	s.Filters = f.values()
	if len(f.namespaces) > 0 {
		s.Filters["namespace"] = f.namespaces
	}
	return s, nil
}

// narrow leaves the decisions that the filters are about. What decisions do not tell cannot be filtered by.
func (f *reportFlags) narrow(e *report.Evidence) (missing []string) {
	for name, of := range map[string]func(*ledger.Record) string{
		"owner":    (*ledger.Record).OwnerName,
		"strategy": func(r *ledger.Record) string { return r.Strategy },
		"node":     func(r *ledger.Record) string { return r.Node },
	} {
		values := *f.filters[name]
		e.Records = slices.DeleteFunc(e.Records, func(r ledger.Record) bool {
			told := name == "owner" || r.Action == "place" // holds have no node, and the strategy that holds
			return len(values) > 0 && told && !slices.Contains(values, of(&r))
		})
	}
	for _, name := range []string{"pod", "team", "site", "cluster", "kind"} {
		if len(*f.filters[name]) > 0 {
			missing = append(missing, "Turnaround and savings are of this cluster's jobs, whatever --"+name+" says.")
		}
	}
	return missing
}

// values are the filters that are set, besides namespaces.
func (f *reportFlags) values() map[string][]string {
	set := map[string][]string{}
	for name, values := range f.filters {
		if len(*values) > 0 {
			set[name] = *values
		}
	}
	return set
}

// route is a path of the API: that of the namespace, where it is about one. Its users may lack access to all.
func route(namespaces []string, what string, query url.Values) string {
	if len(namespaces) == 1 {
		return "/api/v1/namespaces/" + url.PathEscape(namespaces[0]) + "/" + what
	}
	for _, n := range namespaces {
		query.Add("namespace", n)
	}
	return "/api/v1/" + what
}

const maxReportRows = 100_000

// ledger asks for sums.
func (c *centralUnit) ledger(ctx context.Context, q *ledger.Query,
	filters map[string][]string,
) (*ledger.Answer, error) {
	query := url.Values{
		"from": {q.From.Format(time.RFC3339)}, "to": {q.To.Format(time.RFC3339)},
		"limit":  {strconv.Itoa(maxReportRows)},
		"format": {"json"},
	}
	if q.Limit > 0 {
		query.Set("limit", strconv.Itoa(min(q.Limit, maxReportRows)))
	}
	for _, d := range q.GroupBy {
		query.Add("groupBy", string(d))
	}
	for _, k := range q.Kinds {
		query.Add("kind", k.String())
	}
	for _, name := range q.Clusters {
		query.Add("cluster", name)
	}
	maps.Copy(query, filters)
	answer := new(ledger.Answer)
	if _, err := c.get(ctx, route(q.Namespaces, "ledger", query), query, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// evidence collects what turnarounds and savings need, and says whether savings can be told. What cannot be had is
// said, and the rest goes on without it; nil: there is nothing.
func (c *centralUnit) evidence(ctx context.Context, q *ledger.Query, savings bool,
	most int,
) (e *report.Evidence, saved bool, missing []string, err error) {
	lack := func(what string, err error) error {
		refused, ok := errors.AsType[*refusedError](err)
		if !ok || refused.status >= 500 {
			return err // not a matter of rights, or of what is kept
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
			missing = append(missing, "No decisions are recorded for this time, so nothing is known of savings. "+
				"If there should be some, the scheduler's log says whether it can tell them to the central unit, and "+
				"its metric kubenergy_records_total how many it told.")
		}
		return nil, false, missing, nil
	}
	if !since.IsZero() {
		missing = append(missing, fmt.Sprintf("There are more decisions than the youngest %d: turnaround and savings "+
			"are of those since %s UTC alone. Ask for less time, or see --max-decisions.",
			len(e.Records), since.UTC().Format("2006-01-02 15:04:05")))
	}
	uids, owners, sites := report.Queries(q)
	if e.Owners, err = c.ledger(ctx, &owners, nil); err != nil {
		return nil, false, missing, err
	}
	if e.UIDs, err = c.ledger(ctx, &uids, nil); err != nil {
		if err := lack("Pods are not remembered for that long; jobs are told apart by name", err); err != nil {
			return nil, false, missing, err
		}
	}
	if !savings {
		return e, false, missing, nil
	}
	if e.Sites, err = c.ledger(ctx, &sites, nil); err != nil && len(q.Namespaces) > 0 {
		// A user without access to all namespaces gets the rates of the namespace's own bookings: the same rates, of
		// fewer hours.
		sites.Namespaces = q.Namespaces
		e.Sites, err = c.ledger(ctx, &sites, nil)
	}
	if err != nil {
		err = lack("Intensities that were booked at sites cannot be read; forecasts stand in for them", err)
	}
	return e, true, missing, err
}

// recorded fetches the decisions; without their snapshots, and says so, where those may not be read.
func (c *centralUnit) recorded(ctx context.Context, q *ledger.Query, snapshots bool,
	most int,
) (records []ledger.Record, since time.Time, without string, err error) {
	records, since, err = c.decisions(ctx, recordsOf(q, snapshots, most), nil)
	refused, ok := errors.AsType[*refusedError](err)
	if !snapshots || !ok || refused.status != http.StatusForbidden {
		return records, since, "", err
	}
	bare, from, again := c.decisions(ctx, recordsOf(q, false, most), nil)
	if again != nil {
		return nil, since, "", err // the first says more
	}
	return bare, from, "Savings are missing, because what decisions depended on cannot be read: " + refused.text, nil
}

// What is fetched of decisions.
const (
	pageOfRecords   = 10_000
	pageOfSnapshots = 200
	maxRecords      = 100_000
)

// recordsOf asks for the decisions of a time, and for the holds that led to them.
func recordsOf(q *ledger.Query, snapshots bool, most int) *ledger.RecordQuery {
	return &ledger.RecordQuery{
		From: q.From.Add(-report.HoldsBefore), To: q.To, Namespaces: q.Namespaces, Snapshots: snapshots, Limit: most,
	}
}

// decisions fetches records, the youngest first, page by page; of these, keep says which are wanted, nil: all. since is
// the instant of the oldest one if there are more than could be fetched, else zero. A query without To is up to now.
func (c *centralUnit) decisions(ctx context.Context, q *ledger.RecordQuery,
	keep func(*ledger.Record) bool,
) (all []ledger.Record, since time.Time, err error) {
	seen := map[string]bool{}
	to, full := q.To, pageOfRecords
	if q.Snapshots {
		full = pageOfSnapshots
	}
	if keep == nil {
		full = min(full, q.Limit+1)
	}
	for len(all) <= q.Limit {
		var page api.Decisions
		query := recordParameters(q, to, full)
		if _, err := c.get(ctx, route(q.Namespaces, "decisions", query), query, &page); err != nil {
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
			// Others of the same instant may be on the next page.
			if after := r.At.Add(time.Millisecond); to.IsZero() || after.Before(to) {
				to = after
			}
		}
		switch {
		case fresh == 0 && len(page.Decisions) < full:
			return all, time.Time{}, nil
		case fresh == 0: // more of one instant than a page holds: what was before cannot be asked for
			return all, since, nil
		}
	}
	all = all[:q.Limit]
	return all, all[q.Limit-1].At, nil
}

// recordParameters are the parameters of the API for a page of records before an instant.
func recordParameters(q *ledger.RecordQuery, to time.Time, most int) url.Values {
	query := url.Values{"from": {q.From.Format(time.RFC3339Nano)}, "limit": {strconv.Itoa(most)}}
	if !to.IsZero() {
		query.Set("to", to.Format(time.RFC3339Nano))
	}
	if q.UID != "" {
		query.Set("uid", q.UID)
	}
	for _, s := range q.Strategies {
		query.Add("strategy", s)
	}
	if q.Snapshots {
		query.Set("snapshots", "true")
	}
	return query
}
