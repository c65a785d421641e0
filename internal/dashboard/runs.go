package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/kubenergy/kubenergy/internal/document"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// FileName is the name of the file with the models in a results directory.
const FileName = "dashboard.json"

// Results is the content of this file, with a model for each run.
type Results struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Models     []*Model `json:"models"`
}

// NewResults returns models of the runs of one scenario. The first run is the baseline.
func NewResults(r *report.Report, results []*sim.Result) *Results {
	all := &Results{APIVersion: document.APIVersion, Kind: "DashboardResults"}
	var names []string
	for i := range r.Runs {
		name := r.Runs[i].Strategy
		if results[0].Scenario.Sleeps() != results[len(results)-1].Scenario.Sleeps() {
			name += map[string]string{
				sim.EmptyNodesSleep: ", machines sleep", sim.EmptyNodesIdle: ", machines stay on",
			}[r.Runs[i].EmptyNodes]
		}
		names = append(names, name)
	}
	for i, result := range results {
		m := &Model{
			APIVersion: document.APIVersion, Kind: KindDashboard,
			Title: cmp.Or(r.Scenario.Name, "results"), Note: r.Note,
			Now: result.Accounted.UTC(), From: result.Scenario.Start.UTC(), To: result.Accounted.UTC(), Past: true,
			Runs: names, Run: i, Namespaces: []Use{}, Budgets: []Budget{},
		}
		m.ofSites(result.Scenario)
		m.Power = powerOf(result, results[0], names[0])
		m.ofOutcomes(result)
		m.ofNodes(result)
		m.Saved = savedBy(r, names, i)
		m.Strategies = strategiesOf(r, names)
		all.Models = append(all.Models, m)
	}
	return all
}

// Write writes the file into a directory and returns its path.
func (r *Results) Write(dir string) (path string, err error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("writing %s: %w", FileName, err)
	}
	path = filepath.Join(dir, FileName)
	if err := renameio.WriteFile(path, data, 0o644, renameio.WithStaticPermissions(0o644)); err != nil {
		return "", fmt.Errorf("writing results: %w", err)
	}
	return path, nil
}

// ofSites adds the signals of the scenario's sites.
func (m *Model) ofSites(s *sim.Scenario) {
	m.Zones = []Zone{}
	for _, site := range s.Sites {
		z := Zone{Name: cmp.Or(string(site.Zone), site.Name)}
		if site.Name != z.Name && len(s.Sites) > 1 {
			z.Name = site.Name + " (" + z.Name + ")"
		}
		z.Carbon = m.signalOf(&site.Carbon, "gCO2e/kWh")
		z.Price = m.signalOf(&site.Price, "per kWh")
		m.Zones = append(m.Zones, z)
	}
}

func (m *Model) signalOf(s *grid.Signal, unit string) *Signal {
	if s.Series == nil {
		return nil
	}
	shown := &Signal{Unit: unit, Quality: s.Quality.String(), Source: "the scenario's file"}
	if s := s.Series.Between(m.From, m.To); s != nil {
		shown.Until = s.End()
		for i := range s.Len() {
			at := s.Start().Add(time.Duration(i) * s.Step())
			shown.Points = append(shown.Points, Point{At: at, Value: s.Value(i)})
		}
	}
	return shown
}

func powerOf(r, baseline *sim.Result, name string) *Power {
	p := &Power{
		Points: []Watts{}, Until: r.Accounted.UTC(), Estimated: 1, Quality: energy.Estimated,
		Where: "at the sites' meters", Nodes: len(r.Scenario.Nodes),
	}
	for _, s := range r.Timeline {
		p.Points = append(p.Points, Watts{
			At: s.Time.UTC(), Dynamic: math.Max(0, float64(s.Power-s.Idle-s.Asleep)), Idle: float64(s.Idle),
			Asleep: float64(s.Asleep), Estimated: 1,
		})
	}
	if r != baseline {
		p.Instead, p.Baseline = name, &Line{Until: baseline.Accounted.UTC()}
		for _, s := range baseline.Timeline {
			p.Baseline.Points = append(p.Baseline.Points, Point{At: s.Time.UTC(), Value: float64(s.Power)})
		}
	}
	return p
}

// ofOutcomes adds the jobs, and the decisions about them.
func (m *Model) ofOutcomes(r *sim.Result) {
	m.Jobs = make([]Job, 0, len(r.Outcomes))
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &r.Scenario.Jobs[i]
		job := Job{
			Held: Held{Kind: "Job", Name: j.ID, Since: j.Submitted.UTC(), Why: o.Placed.Reason.String()},
			Team: j.Owner, Node: o.Placed.Node, Energy: o.Placed.Cost.Energy, Grams: o.Placed.Cost.Carbon,
			MayWait: j.LatestStart().After(j.Submitted), Unscheduled: o.Placed.Node == "",
		}
		if o.Placed.Reason == sched.NoOpinion {
			job.Why = "" // the job was observed elsewhere, and the reason is unknown
		}
		if job.MayWait {
			job.LatestStart = new(j.LatestStart().UTC())
		}
		if o.Held() {
			job.PlannedStart, job.Why = new(o.HeldUntil().UTC()), o.Hold.Reason.String()
			job.PlannedEnd = new(job.PlannedStart.Add(j.Duration))
			m.Decisions = append(m.Decisions, record(j, "hold", *job.PlannedStart, o.Hold.Reason.Kind.String(), job.Why,
				r.Strategy, j.Submitted))
		}
		if !job.Unscheduled {
			job.Started, job.Finished = new(o.Start.UTC()), new(o.Finish.UTC())
			d := record(j, "place", o.Start, o.Placed.Reason.String(), "", r.Strategy, o.Start)
			d.Node, d.End = o.Placed.Node, o.Finish.UTC()
			d.Energy, d.Carbon = o.Placed.Cost.Energy, o.Placed.Cost.Carbon
			m.Decisions = append(m.Decisions, d)
		}
		m.Jobs = append(m.Jobs, job)
	}
	slices.SortStableFunc(m.Decisions, func(a, b ledger.Record) int { return b.At.Compare(a.At) })
}

// ofNodes adds the consumption of each machine, including its idle power.
func (m *Model) ofNodes(r *sim.Result) {
	jobs := map[string]int{}
	for i := range m.Jobs {
		jobs[m.Jobs[i].Node]++
	}
	for i, e := range r.NodeEnergy {
		u := Use{Name: r.Scenario.Nodes[i].Name, KWh: e.KWh(), Kg: new(float64), Estimated: 1}
		for _, cells := range r.Cells {
			*u.Kg += cells[i].Carbon.Kg()
		}
		u.Jobs = jobs[u.Name]
		m.Machines = append(m.Machines, u)
	}
	slices.SortStableFunc(m.Machines, func(a, b Use) int { return cmp.Compare(b.KWh, a.KWh) })
}

func record(j *sched.Job, action string, start time.Time, reason, why, strategy string, at time.Time) ledger.Record {
	return ledger.Record{
		ID: action + "-" + j.ID, At: at.UTC(), Action: action, OwnerKind: "Job", Owner: j.ID, Strategy: strategy,
		Start: start.UTC(), Reason: reason, Message: why, Quality: energy.Estimated,
	}
}

// savedBy compares a run with the baseline, step by step. The saving of the baseline strategy on sleeping machines
// is attributed to sleep, and the rest to the strategy.
func savedBy(r *report.Report, names []string, i int) *Saved {
	run, base := &r.Runs[i], &r.Runs[0]
	s := &Saved{
		Against: names[0], Jobs: run.Jobs, Held: run.HeldJobs, MeanWait: &run.MeanWaitSeconds, Late: &run.LateStarts,
		Method: r.Note + " Both have the same work and the same machines. A single run has no interval. To get one, " +
			"use kubenergy compare.",
		Energy:    new(report.DifferenceOf(run.EnergyKWh, base.EnergyKWh)),
		Emissions: new(report.DifferenceOf(run.EmissionsKg, base.EmissionsKg)), Unit: "kgCO2e",
	}
	if base.Priced {
		s.Cost = new(report.DifferenceOf(run.Cost, base.Cost))
	}
	if i == 0 {
		return s
	}
	at := base
	step := func(name, why string, next *report.Run) {
		if next != nil && next != at {
			s.Steps = append(s.Steps, Step{Name: name, Value: at.EmissionsKg - next.EmissionsKg, Why: why})
			at = next
		}
	}
	alike := func(strategy string) *report.Run { // with the same state of empty machines as this run
		for k := range r.Runs {
			if r.Runs[k].Strategy == strategy && r.Runs[k].EmptyNodes == run.EmptyNodes {
				return &r.Runs[k]
			}
		}
		return nil
	}
	step("Sleep", "machines without work sleep, with the baseline strategy", alike(base.Strategy))
	if where, when, timed := strings.Cut(run.Strategy, "+"); timed {
		if placed := cmp.Or(alike(where), alike("energy")); placed != nil { // on one site, like carbon
			step("Placement", placed.Strategy+" chooses the machine", placed)
			step("Timing", run.Strategy+" in addition to "+placed.Strategy+" starts jobs by the rule "+when, run)
		}
		step("Placement and timing", run.Strategy+" chooses the machine and the hour", run)
	}
	step("Placement", run.Strategy+" chooses the machine", run)
	return s
}

func strategiesOf(r *report.Report, names []string) (all []Strategy) {
	for i, run := range r.Runs {
		all = append(all, Strategy{
			Name: names[i], WaitHours: run.MeanWaitSeconds / 3600, Kg: run.EmissionsKg, KWh: run.EnergyKWh,
			Saving: &report.Interval{Value: run.Savings.Emissions}, Baseline: i == 0,
		})
	}
	return best(all)
}

// best marks the strategies on the Pareto front of wait and emissions.
func best(all []Strategy) []Strategy {
	for i := range all {
		a := &all[i]
		a.Best = !slices.ContainsFunc(all, func(b Strategy) bool {
			return b.WaitHours <= a.WaitHours && b.Kg <= a.Kg && (b.WaitHours < a.WaitHours || b.Kg < a.Kg)
		})
	}
	return all
}

// ofSweep returns a model of a comparison, without a time axis.
func ofSweep(s *report.Sweep) *Model {
	m := &Model{
		APIVersion: document.APIVersion, Kind: KindDashboard, Title: cmp.Or(s.Name, "comparison"), Past: true,
		Zones: []Zone{}, Jobs: []Job{}, Namespaces: []Use{}, Budgets: []Budget{},
	}
	for i := range s.Strategies {
		row := &s.Strategies[i]
		trials := float64(max(1, row.Trials)) // energy and emissions are sums over the trials
		m.Note = "Means over " + humanize.Count(row.Trials, "trial") + " of each strategy, with 95 % intervals."
		name := said(row.Strategy, given(row.Forecast != "perfect", row.Forecast),
			given(row.StayOn, "machines stay on"),
			given(row.RestartCost > 0, "restart costs "+humanize.Rounded(row.RestartCost)))
		m.Strategies = append(m.Strategies, Strategy{
			Name: strings.Join(name, ", "), WaitHours: row.MeanWaitHours,
			Kg: row.Grams / 1000 / trials, KWh: row.EnergyKWh / trials, Saving: &row.Saving,
			Baseline: row.Strategy == s.Baseline,
		})
	}
	best(m.Strategies)
	return m
}

// Folder is a source of results in a directory.
type Folder struct{ models []*Model }

// OpenFolder reads the results of simulate, compare or a lab.
func OpenFolder(dir string) (*Folder, error) {
	var results Results
	err := readJSON(filepath.Join(dir, FileName), &results)
	if err == nil {
		if err = validate(results.Models); err != nil {
			err = fmt.Errorf("reading %s: %w", filepath.Join(dir, FileName), err)
		}
	}
	if err == nil && len(results.Models) > 0 {
		return &Folder{results.Models}, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var s report.Sweep
	switch err := readJSON(filepath.Join(dir, "comparison.json"), &s); {
	case err == nil:
		return &Folder{[]*Model{ofSweep(&s)}}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s contains neither %s nor comparison.json: want a directory from simulate or compare "+
		"with --out, or the report directory of a lab", dir, FileName)
}

func readJSON(file string, into any) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil {
		err = decode(data, into)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	return nil
}

// Live returns false, because the files do not change.
func (f *Folder) Live() bool { return false }

// Model returns the requested run, or the last one by default.
func (f *Folder) Model(_ context.Context, q Query) (*Model, error) {
	found := f.run(q)
	if found == nil {
		return nil, absent(fmt.Sprintf("run %d: the directory contains %s, and the last one is %d", q.Run,
			humanize.Count(len(f.models), "run"), f.models[len(f.models)-1].Run))
	}
	m := *found
	m.From, m.To = timeutil.Later(m.From, q.From), timeutil.Earlier(m.To, cmp.Or(q.To, m.To))
	return &m, nil
}

// Decision returns nil, because runs do not keep snapshots.
func (f *Folder) Decision(context.Context, Query, *ledger.Record) (*ledger.Record, error) {
	return nil, nil
}

// Origin returns nil, because the consumption of a simulation is computed and not booked.
func (f *Folder) Origin(context.Context, Query, string, string) (*Origin, error) { return nil, nil }

// run returns the requested run, or the last one by default. It returns nil if the run does not exist.
func (f *Folder) run(q Query) *Model {
	if q.Run < 0 {
		return f.models[len(f.models)-1]
	}
	if i := slices.IndexFunc(f.models, func(m *Model) bool { return m.Run == q.Run }); i >= 0 {
		return f.models[i]
	}
	return nil
}
