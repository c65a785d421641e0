package study

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/predict"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/sim/oracle"
)

// sharedScenario is what the trials of a cell share: it is loaded for the first one and let go after the last.
type sharedScenario struct {
	study *Study
	cell  *trialCell

	once     sync.Once
	scenario *sim.Scenario
	optima   map[string]float64 // by family; empty: not known
	end      time.Time          // up to when all trials are accounted at least
	day      time.Time          // the beginning of the day that is drawn; zero: no whole day is known
	known    time.Time          // up to when forecasts are seen
	err      error
	left     atomic.Int32 // trials
}

func (s *sharedScenario) get() (*sim.Scenario, error) {
	s.once.Do(s.load)
	return s.scenario, s.err
}

// done lets the scenario go after the last trial.
func (s *sharedScenario) done() {
	if s.left.Add(-1) == 0 {
		s.scenario, s.optima = nil, nil
	}
}

func (s *sharedScenario) load() {
	file := *s.cell.zone.file
	file.Start = s.cell.zone.starts[s.cell.index].UTC().Format(time.RFC3339)
	file.Seed = s.cell.seed
	if s.scenario, s.err = file.Load(); s.err != nil {
		return
	}
	for i := range s.scenario.Jobs {
		j := &s.scenario.Jobs[i]
		j.Interruptible = s.study.file.Interruptible || j.Scaling != nil
		if t := j.LatestStart().Add(j.Duration); t.After(s.end) {
			s.end = t
		}
	}
	site := s.scenario.Sites[0]
	for _, series := range [...]*grid.Series{site.Carbon.Series, site.Price.Series} {
		if series != nil && s.end.After(series.End()) {
			s.end = series.End()
		}
	}
	s.chooseDay(site.Carbon.Series)
	if s.known, s.err = s.cell.zone.until(s.cell.index); s.err != nil {
		return
	}
	s.optima = map[string]float64{}
	families := map[string]oracle.Family{
		report.NonPreemptive: oracle.FamilyNonPreemptive, report.Interruptible: oracle.FamilyInterruptible,
	}
	if s.cell.zone.elastic {
		families[report.Elastic] = oracle.FamilyElastic
	}
	for name, family := range families {
		grams, err := oracle.Least(s.scenario, family)
		switch {
		case err == nil:
			s.optima[name] = float64(grams)
		case !errors.Is(err, oracle.ErrNotExact):
			s.err = err
			return
		}
	}
}

// chooseDay takes the second day of the trace, where jobs come on it, or the first: the same for all strategies.
func (s *sharedScenario) chooseDay(series *grid.Series) {
	const day = 24 * time.Hour
	second := s.scenario.Start.Add(day)
	later := slices.ContainsFunc(s.scenario.Jobs, func(j sched.Job) bool { return !j.Submitted.Before(second) })
	for _, from := range []time.Time{second, s.scenario.Start} {
		if (later || !from.Equal(second)) && series.Covers(from, from.Add(day)) {
			s.day = from
			return
		}
	}
}

// run plays a trial.
func (c *Study) run(ctx context.Context, t *Planned) error {
	shared := t.cell.scenario
	defer shared.done()
	scenario, err := shared.get()
	if err != nil {
		return err
	}
	// What a comparison varies is set for every trial, whatever the scenario says.
	s := *scenario
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		s.Jobs[i].RestartCost = t.Trial.RestartCost
	}
	s.Learner, s.Foresight = nil, nil
	if c.file.Lengths == lengthsLearnt {
		s.Learner = func() predict.Learner { return predict.NewSurvival(nil) }
	}
	if name := t.Trial.Forecast; name != "" && name != perfectForecast {
		foresight, err := t.cell.zone.forecasts[name].get(ctx, c.cache)
		if err != nil {
			return err
		}
		s.Foresight = []sim.Foresight{untilThen{foresight, shared.known.Add(-1)}}
	}
	result, err := sim.Run(ctx, &s, t.Trial.Strategy, c.strategies[t.Trial.Strategy])
	if err != nil {
		return err
	}
	// Trials run apart, and nodes may draw power without jobs: all of a cell are accounted up to one end at least.
	// Those of few nodes may take longer: see align.
	if err := result.AccountUntil(shared.end); err != nil {
		return err
	}
	t.Trial.Measure(result)
	t.Trial.Optima = shared.optima
	if t.day && !shared.day.IsZero() {
		t.Trial.Day, err = report.NewDay(result, shared.day)
	}
	return err
}

// align says what empty nodes draw after each trial until the longest one of its cell ends, so that none is charged for
// more hours of them than another. It is kept apart from the trials, which other comparisons may use beside others.
func align(trials []*Planned) error {
	ends := map[*trialCell]time.Time{}
	for _, t := range trials {
		if t.Trial.Accounted.After(ends[t.cell]) {
			ends[t.cell] = t.Trial.Accounted
		}
	}
	for _, t := range trials {
		if end := ends[t.cell]; end.After(t.Trial.Accounted) {
			tail, err := report.NewTail(t.cell.zone.scenario.Nodes, t.Trial.Accounted, end)
			if err != nil {
				return fmt.Errorf("%s: %w", t.Trial.ID(), err)
			}
			if tail.EnergyKWh > 0 {
				t.Tail = tail
			}
		}
	}
	return nil
}

// Shard is which part of the trials is run here: the cells whose number leaves the rest index by count.
type Shard struct{ Index, Count int }

// Run runs the trials of a part of the study that the store does not have, on so many workers; 0: one for each core. It
// fills in all of them and closes the store. Which worker runs which trial does not matter to the results.
func (c *Study) Run(ctx context.Context, store *Store, part Shard, workers int,
	tell func(done, all int),
) ([]*Planned, error) {
	if store != nil {
		c.cache = c.forecastFolder(store.dir)
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	mine, err := c.runAll(ctx, store, part, workers, tell)
	if closed := store.close(mine, err == nil); err == nil {
		err = closed
	}
	return mine, err
}

func (c *Study) runAll(ctx context.Context, store *Store, part Shard, workers int,
	tell func(done, all int),
) ([]*Planned, error) {
	var mine, missing []*Planned
	for _, t := range c.trials {
		if part.Count > 1 && t.cell.order%part.Count != part.Index {
			continue
		}
		mine = append(mine, t)
		if known, ok := store.find(t.Key); ok {
			t.Trial.TakeFigures(&known)
			continue
		}
		t.cell.scenario.left.Add(1)
		missing = append(missing, t)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var next, done atomic.Int64
	errs := make([]error, len(missing))
	var wait sync.WaitGroup
	for range min(workers, len(missing)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(missing) || ctx.Err() != nil {
					return
				}
				t := missing[i]
				if errs[i] = c.run(ctx, t); errs[i] == nil {
					errs[i] = store.keep(t.Key, &t.Trial)
				}
				if errs[i] != nil {
					cancel() // the others need not go on
					return
				}
				tell(len(mine)-len(missing)+int(done.Add(1)), len(mine))
			}
		})
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, fmt.Errorf("%s: %w", missing[i].Trial.ID(), err)
		}
	}
	if int(done.Load()) < len(missing) {
		return nil, fmt.Errorf("stopped after %d of %d trials: %w", len(mine)-len(missing)+int(done.Load()), len(mine),
			context.Canceled)
	}
	return mine, align(mine)
}
