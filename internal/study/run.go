package study

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// shared contains the data that the trials of a cell share. It is loaded for the first trial and released after the
// last one.
type shared struct {
	once     sync.Once
	scenario *sim.Scenario
	optima   map[string]float64 // by family; empty if unknown
	end      time.Time          // minimum end of the accounted period of all trials
	day      time.Time          // start of the drawn day; zero if no full day is covered
	known    time.Time          // end of the visible forecasts
	err      error
	left     atomic.Int32 // remaining trials
}

// done releases the scenario after the last trial.
func (c *trialCell) done() {
	if c.left.Add(-1) == 0 {
		c.scenario, c.optima = nil, nil
	}
}

func (c *trialCell) load(interruptible bool) {
	if c.scenario, c.err = c.zone.load(c.index, c.seed); c.err != nil {
		return
	}
	c.known = c.zone.until(c.scenario)
	for i := range c.scenario.Jobs {
		j := &c.scenario.Jobs[i]
		j.Interruptible = interruptible || j.Scaling != nil
		c.end = timeutil.Later(c.end, j.LatestStart().Add(j.Duration))
	}
	site := c.scenario.Sites[0]
	for _, series := range [...]*grid.Series{site.Carbon.Series, site.Price.Series} {
		if series != nil && c.end.After(series.End()) {
			c.end = series.End()
		}
	}
	c.chooseDay(site.Carbon.Series)
	c.optima = map[string]float64{}
	families := map[string]oracle.Family{
		report.NonPreemptive: oracle.FamilyNonPreemptive, report.Interruptible: oracle.FamilyInterruptible,
	}
	if c.zone.elastic {
		families[report.Elastic] = oracle.FamilyElastic
	}
	for name, family := range families {
		grams, err := oracle.Least(c.scenario, family)
		switch {
		case err == nil:
			c.optima[name] = float64(grams)
		case !errors.Is(err, oracle.ErrNotExact):
			c.err = err
			return
		}
	}
}

// chooseDay selects the second day of the trace if any jobs arrive on it, and the first day otherwise. It is the
// same for all strategies.
func (c *trialCell) chooseDay(series *grid.Series) {
	const day = 24 * time.Hour
	second := c.scenario.Start.Add(day)
	later := slices.ContainsFunc(c.scenario.Jobs, func(j sched.Job) bool { return !j.Submitted.Before(second) })
	for _, from := range []time.Time{second, c.scenario.Start} {
		if (later || !from.Equal(second)) && series.Covers(from, from.Add(day)) {
			c.day = from
			return
		}
	}
}

// run runs a trial.
func (c *Study) run(ctx context.Context, t *Planned) error {
	cell := t.cell
	defer cell.done()
	if cell.once.Do(func() { cell.load(c.file.Interruptible) }); cell.err != nil {
		return cell.err
	}
	// The axes of the comparison are set for every trial, regardless of the scenario.
	s := *cell.scenario
	if t.Trial.StayOn {
		s = *s.StayingAwake()
	}
	s.Jobs = slices.Clone(s.Jobs)
	for i := range s.Jobs {
		s.Jobs[i].RestartCost = t.Trial.RestartCost
	}
	s.Learner, s.Foresight = nil, nil
	if c.file.Lengths == lengthsLearnt {
		s.Learner = func() predict.Learner { return predict.NewSurvival() }
	}
	if issued := cell.zone.forecasts[t.Trial.Forecast]; issued != nil {
		foresight, err := issued()
		if err != nil {
			return fmt.Errorf("forecast %s for %s: %w", t.Trial.Forecast, cell.zone.Name, err)
		}
		s.Foresight = []sim.Foresight{untilThen{foresight, cell.known.Add(-1)}}
	}
	result, err := sim.Run(ctx, &s, t.Trial.Strategy, c.strategies[t.Trial.Strategy])
	if err != nil {
		return err
	}
	// Idle nodes may draw power after the last job, so the energy of all trials of a cell is counted at least until
	// the same time. Trials with few nodes may take longer, see align.
	if err := result.AccountUntil(cell.end); err != nil {
		return err
	}
	t.Trial.Measure(result)
	t.Trial.Optima = cell.optima
	if t.day && !cell.day.IsZero() {
		t.Trial.Day = report.NewDay(result, cell.day)
	}
	return nil
}

// align computes the consumption of empty nodes after each trial until the end of the longest trial of its cell, so
// that all trials are charged for the same period. The result is not a part of the trials, because other
// comparisons may reuse them in other cells.
func align(trials []*Planned) error {
	ends := map[*trialCell]time.Time{}
	for _, t := range trials {
		ends[t.cell] = timeutil.Later(ends[t.cell], t.Trial.Accounted)
	}
	for _, t := range trials {
		if end := ends[t.cell]; end.After(t.Trial.Accounted) {
			scenario := t.cell.zone.scenario
			if t.Trial.StayOn {
				scenario = scenario.StayingAwake()
			}
			tail, err := report.NewTail(scenario.Nodes, t.Trial.Accounted, end)
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

// Shard selects a part of the trials. It contains the cells with number modulo Count equal to Index.
type Shard struct{ Index, Count int }

// Run runs the trials of a shard that are not in the store, with the given number of workers, or one for each core
// if workers is zero. It sets the results of all trials of the shard and closes the store. The results do not
// depend on the assignment of trials to workers.
func (c *Study) Run(ctx context.Context, store *Store, part Shard, workers int,
	notify func(done, all int),
) (mine []*Planned, err error) {
	complete := false // also false after a panic
	defer func() { err = cmp.Or(err, store.close(mine, complete)) }()
	var missing []*Planned
	for _, t := range c.trials {
		if part.Count > 1 && t.cell.order%part.Count != part.Index {
			continue
		}
		mine = append(mine, t)
		if known, ok := store.done[t.Key]; ok {
			t.Trial.TakeFigures(&known)
			continue
		}
		t.cell.left.Add(1)
		missing = append(missing, t)
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(cmp.Or(workers, runtime.GOMAXPROCS(0)))
	c.issueForecasts(ctx, store.dir)
	var done atomic.Int64
	for _, t := range missing {
		work.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			err := c.run(ctx, t)
			if err == nil {
				err = store.keep(t)
			}
			if err == nil {
				notify(len(mine)-len(missing)+int(done.Add(1)), len(mine))
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				err = fmt.Errorf("%s: %w", t.Trial.ID(), err)
			}
			return err
		})
	}
	switch err := work.Wait(); {
	case errors.Is(err, context.Canceled):
		return nil, fmt.Errorf("stopped after %d of %d trials: %w", len(mine)-len(missing)+int(done.Load()), len(mine),
			context.Canceled)
	case err != nil:
		return nil, err
	}
	err = align(mine)
	complete = err == nil
	return mine, err
}
