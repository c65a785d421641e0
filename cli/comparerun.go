package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/predict"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sim"
	"github.com/kubenergy/kubenergy/sim/oracle"
)

// sharedScenario is what the trials of a cell share: it is loaded for the first one and let go after the last.
type sharedScenario struct {
	study *study
	cell  *trialCell

	once     sync.Once
	scenario *sim.Scenario
	optima   map[string]float64 // by family; empty: not known
	end      time.Time          // up to when all trials are accounted at least
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
		j.Interruptible = s.study.file.Interruptible
		if t := j.LatestStart().Add(j.Duration); t.After(s.end) {
			s.end = t
		}
	}
	if known := s.cell.zone.series.End(); s.end.After(known) {
		s.end = known
	}
	s.optima = map[string]float64{}
	for name, family := range map[string]oracle.Family{report.NonPreemptive: oracle.FamilyNonPreemptive, report.Interruptible: oracle.FamilyInterruptible} {
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

// run plays a trial.
func (c *study) run(ctx context.Context, t *plannedTrial) error {
	shared := t.cell.scenario
	defer shared.done()
	scenario, err := shared.get()
	if err != nil {
		return err
	}
	s := *scenario
	if t.Trial.RestartCost > 0 {
		s.Jobs = slices.Clone(s.Jobs)
		for i := range s.Jobs {
			s.Jobs[i].RestartCost = t.Trial.RestartCost
		}
	}
	if c.file.Lengths == lengthsLearnt {
		s.Learner = func() predict.Learner { return predict.NewSurvival(nil) }
	}
	if name := t.Trial.Forecast; name != "" && name != perfectForecast {
		foresight, err := t.cell.zone.forecasts[name].get(ctx, c.cache)
		if err != nil {
			return err
		}
		s.Foresight = []sim.Foresight{foresight}
	}
	result, err := sim.Run(ctx, &s, t.Trial.Strategy, c.strategies[t.Trial.Strategy])
	if err != nil {
		return err
	}
	// Trials run apart, and nodes may draw power without jobs: all of a cell are accounted up to one end at least.
	if err := result.AccountUntil(shared.end); err != nil {
		return err
	}
	t.Trial.Measure(result)
	t.Trial.Optima = shared.optima
	if t.day {
		return t.draw(result)
	}
	return nil
}

// draw keeps the second day, when there are jobs of more than one day, or the first.
func (t *plannedTrial) draw(r *sim.Result) error {
	const day = 24 * time.Hour
	for _, from := range []time.Time{r.Scenario.Start.Add(day), r.Scenario.Start} {
		if from.Add(day).After(r.End) && from.After(r.Scenario.Start) {
			continue
		}
		d, err := report.NewDay(r, from)
		if errors.Is(err, report.ErrNoDay) {
			continue
		}
		t.Trial.Day = d
		return err
	}
	return nil
}

// shard is which part of the trials is run here: the cells whose number leaves the rest index by count.
type shard struct{ index, count int }

// runAll runs the trials that the store does not have on so many workers, and fills in all. Which worker runs what does
// not matter to the results.
func (c *study) runAll(ctx context.Context, store *trialStore, part shard, workers int, tell func(done, all int)) ([]*plannedTrial, error) {
	var mine, missing []*plannedTrial
	for _, t := range c.trials {
		if part.count > 1 && t.cell.order%part.count != part.index {
			continue
		}
		mine = append(mine, t)
		if known, ok := store.find(t.Key); ok {
			t.Trial = known
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
		return nil, fmt.Errorf("stopped after %d of %d trials: %w", len(mine)-len(missing)+int(done.Load()), len(mine), context.Canceled)
	}
	return mine, nil
}

// progress shows on a terminal how far a comparison has come.
type progress struct {
	w     io.Writer
	now   func() time.Time
	begun time.Time
	first int // trials that were there before

	mu   sync.Mutex
	last time.Time
}

// tell is called after each trial.
func (p *progress) tell(done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.begun.IsZero() {
		p.begun, p.first = now, done-1
	}
	const often = 200 * time.Millisecond
	if now.Sub(p.last) < often && done < all {
		return
	}
	p.last = now
	const width = 30
	full := width * done / max(1, all)
	line := fmt.Sprintf("\r[%s%s] %d of %d trials", strings.Repeat("█", full), strings.Repeat("·", width-full), done, all)
	if elapsed := now.Sub(p.begun); done > p.first+1 && done < all {
		left := time.Duration(float64(elapsed) / float64(done-p.first-1) * float64(all-done))
		line += fmt.Sprintf(", %v left", left.Round(time.Second))
	}
	line += "\x1b[K"
	if done >= all {
		line += "\n"
	}
	_, _ = io.WriteString(p.w, line) // nobody misses a bar
}

// issued are the forecasts of one model for a zone, made once for all trials.
type issued struct {
	zone  *comparedZone
	model string

	once      sync.Once
	foresight sim.Foresight
	err       error
}

func (f *issued) get(ctx context.Context, cache string) (sim.Foresight, error) {
	f.once.Do(func() {
		if f.foresight, f.err = f.make(ctx, cache); f.err != nil {
			f.err = fmt.Errorf("forecast %s for %s: %w", f.model, f.zone.Name, f.err)
		}
	})
	return f.foresight, f.err
}

// span is the time in which forecasts may be asked for: all starts, and what a trace may take.
func (f *issued) span() (from, until time.Time, err error) {
	for _, start := range f.zone.starts {
		if from.IsZero() || start.Before(from) {
			from = start
		}
		if start.After(until) {
			until = start
		}
	}
	file := *f.zone.file
	file.Start = until.UTC().Format(time.RFC3339)
	scenario, err := file.Load()
	if err != nil {
		return from, until, err
	}
	last := until
	for i := range scenario.Jobs {
		j := &scenario.Jobs[i]
		if t := j.Submitted.Add(j.AllowedDelay + 2*j.Duration); t.After(last) {
			last = t // restarts and slow nodes take time, too
		}
	}
	if end := f.zone.series.End(); last.After(end) {
		last = end
	}
	return from, last, nil
}
