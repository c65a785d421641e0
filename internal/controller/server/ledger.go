package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const usualSpan = 24 * time.Hour

// formats are the formats of ledger responses. The first one is the default.
var formats = []string{"json", "csv", "influx"}

var media = map[string]string{
	"json": contentJSON, "csv": "text/csv; charset=utf-8; header=present", "influx": "text/plain; charset=utf-8",
}

// listed returns the values separated by commas. Their text must not contain spaces.
func listed[T any](all []T) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(all), "[]"), " ", ", ")
}

// Audit is the response of GET /api/v1/ledger/audit.
type Audit struct {
	Balanced bool     `json:"balanced"`
	Checked  int      `json:"checked"`  // number of checked rows
	Problems []string `json:"problems"` // at most 1000
	More     int      `json:"more,omitempty"`
}

// Jobs is the response of GET /api/v1/jobs.
type Jobs struct {
	From time.Time  `json:"from"` // aligned to the resolution of the ledger
	To   time.Time  `json:"to"`
	AsOf *time.Time `json:"asOf,omitempty"` // end of the latest booking
	Jobs []Job      `json:"jobs"`           // sorted by energy in descending order
	// Left is the number of Jobs that exceed the limit and are omitted.
	Left int `json:"left,omitempty"`
}

// Job contains the energy, emissions and costs of a Job.
type Job struct {
	Namespace string `json:"namespace"`
	Job       string `json:"job"`
	Parent    string `json:"parent,omitempty"` // kind/name of the owner of the Job, for example a CronJob
	Strategy  string `json:"strategy,omitempty"`
	// Energy is the exact energy at the nodes. Idle is the part of it that the nodes would also draw without load.
	Energy     energy.Microjoules `json:"energyMicrojoules"`
	Idle       energy.Microjoules `json:"idleMicrojoules"`
	GPU        energy.Microjoules `json:"gpuMicrojoules,omitempty"` // part of Energy that GPUs used
	KWh        float64            `json:"kWh"`
	CPUSeconds float64            `json:"cpuSeconds"`
	Facility   energy.Microjoules `json:"facilityMicrojoules"` // including PUE
	// Emissions are in grams of CO2 equivalents, by the signal (average or marginal) that was used to compute them.
	Emissions map[string]float64 `json:"gramsCO2e"`
	Costs     map[string]float64 `json:"costs"` // by currency
	// Estimated is the fraction of the energy that was estimated by a model. Uncharted and Unpriced are the
	// fractions of the facility energy without a known carbon intensity or price.
	Estimated float64   `json:"shareEstimated"`
	Uncharted float64   `json:"shareUncharted"`
	Unpriced  float64   `json:"shareUnpriced"`
	First     time.Time `json:"first"`
	Last      time.Time `json:"last"`
}

// askedBadly converts an error of the ledger to status 400 if the query is invalid. Other errors are internal.
func askedBadly(err error) error {
	if errors.Is(err, ledger.ErrQuery) || errors.Is(err, ledger.ErrTooLarge) {
		return fail(http.StatusBadRequest, "%.300s", err)
	}
	return fmt.Errorf("querying the ledger: %w", err)
}

// readLedgerQuery converts the query parameters to a ledger query.
func (s *server) readLedgerQuery(q *query) (*ledger.Query, error) {
	asked := &ledger.Query{
		Namespaces: q.namespaces(), Owners: q.list("owner"), Pods: q.list("pod"), Nodes: q.list("node"),
		Teams: q.list("team"), Strategies: q.list("strategy"), Sites: q.list("site"),
		Clusters: q.list("cluster"), Own: s.Cluster,
	}
	for _, name := range q.list("kind") {
		var k ledger.Kind
		if err := k.UnmarshalText([]byte(name)); err != nil {
			q.refuse("kind is %.40q: want %s", name, listed(slices.Collect(ledger.Kinds())))
		}
		asked.Kinds = append(asked.Kinds, k)
	}
	for _, list := range q.list("groupBy") {
		for name := range strings.SplitSeq(list, ",") {
			d := ledger.Dimension(strings.TrimSpace(name))
			if !slices.Contains(ledger.Dimensions(), d) || slices.Contains(asked.GroupBy, d) {
				q.refuse("groupBy contains %.40q: want each of %s at most once", name, listed(ledger.Dimensions()))
			}
			asked.GroupBy = append(asked.GroupBy, d)
		}
	}
	asked.From, asked.To = q.span()
	asked.Limit = q.whole("limit", usualRows, 1, maxRows)
	return asked, q.err()
}

// usualRows is the default for the maximum number of rows of a response.
const usualRows = 10_000

func (s *server) serveLedger(w http.ResponseWriter, r *http.Request, q *query) error {
	asked, err := s.readLedgerQuery(q)
	if err != nil {
		return err
	}
	format := cmp.Or(q.text("format"), accepted(r.Header.Values("Accept")))
	var out bytes.Buffer
	if err := s.limited(r.Context(), asked.Limit > usualRows, func() error {
		answer, err := s.Ledger.Query(r.Context(), asked)
		if err != nil {
			return askedBadly(err)
		}
		answer.Rows, answer.GroupBy = some(answer.Rows), some(answer.GroupBy)
		return encode(&out, answer, format)
	}); err != nil {
		return err
	}
	if format == "csv" {
		w.Header().Set("Content-Disposition", `attachment; filename="ledger.csv"`)
	}
	write(w, http.StatusOK, media[format], out.Bytes())
	return nil
}

func encode(out *bytes.Buffer, answer *ledger.Answer, format string) (err error) {
	switch format {
	case "csv":
		err = answer.WriteCSV(out)
	case "influx":
		err = answer.WriteInflux(out)
	default:
		err = json.NewEncoder(out).Encode(answer)
	}
	if err != nil {
		return fmt.Errorf("encoding the response as %s: %w", format, err)
	}
	return nil
}

// accepted returns the preferred supported format in Accept headers.
func accepted(headers []string) string {
	if goautoneg.Negotiate(strings.Join(headers, ","), []string{contentJSON, "text/csv"}) == "text/csv" {
		return "csv"
	}
	return "json"
}

func (s *server) serveJobs(w http.ResponseWriter, r *http.Request, q *query) error {
	asked := &ledger.Query{
		Namespaces: q.namespaces(), Strategies: q.list("strategy"), Kinds: ledger.Workloads(),
		Clusters: []string{ledger.OwnCluster}, // a Job with the same name in another cluster is a different Job
		GroupBy:  []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner, ledger.ByParent, ledger.ByStrategy},
		Limit:    maxRows,
	}
	for _, name := range q.list("owner") {
		asked.Owners = append(asked.Owners, jobPrefix+strings.TrimPrefix(name, jobPrefix))
	}
	asked.From, asked.To = q.span()
	const usual, most = 1000, 10_000
	limit := q.whole("limit", usual, 1, most)
	if err := q.err(); err != nil {
		return err
	}
	return s.reply(w, r, true, func(ctx context.Context) (any, error) {
		sums, err := s.Ledger.Query(ctx, asked)
		if err != nil {
			return nil, err
		}
		return jobsOf(sums, limit), nil
	})
}

func jobsOf(sums *ledger.Answer, limit int) Jobs {
	answer := Jobs{From: sums.From, To: sums.To, Jobs: []Job{}}
	if !sums.AsOf.IsZero() {
		answer.AsOf = new(sums.AsOf)
	}
	for i := range sums.Rows {
		if job, ok := jobOf(&sums.Rows[i]); ok {
			answer.Jobs = append(answer.Jobs, job)
		}
	}
	slices.SortStableFunc(answer.Jobs, func(a, b Job) int { return cmp.Compare(b.Energy, a.Energy) })
	if len(answer.Jobs) > limit {
		answer.Left = len(answer.Jobs) - limit
		answer.Jobs = answer.Jobs[:limit]
	}
	return answer
}

const jobPrefix = "Job/"

func jobOf(row *ledger.Row) (Job, bool) {
	const dimensions = 4
	if len(row.Key) != dimensions {
		return Job{}, false // the row with the sum of omitted rows
	}
	name, ok := strings.CutPrefix(row.Key[1], jobPrefix)
	if !ok {
		return Job{}, false
	}
	j := Job{
		Namespace: row.Key[0], Job: name, Strategy: row.Key[3], Energy: row.Energy(), Idle: row.Idle, GPU: row.GPU,
		KWh: row.Energy().Joules().KWh(), CPUSeconds: row.CPU.Seconds(), Facility: row.Facility,
		Emissions: map[string]float64{}, Costs: map[string]float64{}, Estimated: share(row.Estimated, row.Energy()),
		Uncharted: share(row.Uncharted, row.Facility), Unpriced: share(row.Unpriced, row.Facility), First: row.First,
		Last: row.Last,
	}
	if row.Key[2] != row.Key[1] {
		j.Parent = row.Key[2]
	}
	for signal, carbon := range row.Emissions {
		j.Emissions[signal] = float64(carbon.Grams())
	}
	for currency, cost := range row.Costs {
		j.Costs[currency] = cost.Money()
	}
	return j, true
}

func share(part, of energy.Microjoules) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func (s *server) serveStatistics(w http.ResponseWriter, r *http.Request, _ *query) error {
	return s.reply(w, r, false, func(ctx context.Context) (any, error) { return s.Ledger.Statistics(ctx) })
}

func (s *server) serveAudit(w http.ResponseWriter, r *http.Request, q *query) error {
	from := q.instant("from", q.now.Add(-usualSpan))
	if err := q.err(); err != nil {
		return err
	}
	done, err := enter(r.Context(), s.audits)
	if err != nil {
		return err
	}
	defer done()
	found, err := s.Ledger.Audit(r.Context(), from)
	if err != nil {
		return fmt.Errorf("auditing the ledger: %w", err)
	}
	const most = 1000
	answer := Audit{Balanced: len(found.Problems) == 0, Checked: found.Checked, Problems: some(found.Problems)}
	if len(answer.Problems) > most {
		answer.More, answer.Problems = len(answer.Problems)-most, answer.Problems[:most]
	}
	return writeJSON(w, http.StatusOK, answer)
}
