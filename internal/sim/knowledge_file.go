package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// QueueFile configures how the queue is planned as a whole; see [QueueRules].
type QueueFile struct {
	Window  int    `json:"window,omitempty"`
	PerStep int    `json:"perStep,omitempty"`
	Step    string `json:"step,omitempty"`
	// Backfill is the interval of backfilling jobs behind one that does not fit, like Slurm's bf_interval.
	Backfill string `json:"backfill,omitempty"`
	Epilog   string `json:"epilog,omitempty"` // time until the cores of an ended job become free
}

// ForecastFile configures the forecasts of the intensity that are given to strategies. A forecast only uses data
// available when it is issued.
type ForecastFile struct {
	Model   string `json:"model,omitempty"`   // "perfect" (default) for the true values
	Weather string `json:"weather,omitempty"` // file for the model "weather"
	Refit   string `json:"refit,omitempty"`   // interval at which the model is trained again; default 672h
	Lag     string `json:"lag,omitempty"`     // delay after the start of an hour until its value is known; default 0s
}

const (
	perfectForecast = "perfect"
	knownRuntimes   = "known"

	powerOfProfiles = "profiles"
	powerLearnt     = "learnt"
)

// learners contains the run-time models that a scenario file can select.
var learners = map[string]func() predict.Learner{
	"groups":   func() predict.Learner { return predict.NewGroups() },
	"mean":     func() predict.Learner { return predict.NewMean() },
	"siblings": func() predict.Learner { return predict.NewSiblings() },
	"survival": func() predict.Learner { return predict.NewSurvival() },
}

// loadKnowledge configures the estimates given to strategies, and the queue.
func (f *File) loadKnowledge(ctx context.Context, s *Scenario) error {
	restart := time.Duration(0)
	if err := duration(&restart, f.Called("restartCost"), f.RestartCost); err != nil {
		return err
	}
	if restart > 0 && !f.Interruptible && !slices.ContainsFunc(s.Jobs,
		func(j sched.Job) bool { return j.Scaling != nil }) {
		return fmt.Errorf("%s is %s, but jobs are not interruptible", f.Called("restartCost"), f.RestartCost)
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		j.Interruptible, j.RestartCost = f.Interruptible || j.Scaling != nil, restart // may have 0 replicas
	}
	if f.Learner != "" && f.Learner != knownRuntimes {
		if s.Learner = learners[f.Learner]; s.Learner == nil {
			return fmt.Errorf("%s: %q: want %s, %s", f.Called("learner"), f.Learner, knownRuntimes,
				strings.Join(slices.Sorted(maps.Keys(learners)), ", "))
		}
	}
	switch f.Power {
	case "", powerOfProfiles:
	case powerLearnt:
		s.Power = func() predict.PowerLearner { return predict.NewPower() }
	default:
		return fmt.Errorf("%s: %q: want %s or %s", f.Called("power"), f.Power, powerOfProfiles, powerLearnt)
	}
	if err := f.loadQueue(s); err != nil {
		return err
	}
	return f.loadForecasts(ctx, s)
}

func (f *File) loadQueue(s *Scenario) error {
	s.Queue = QueueRules{Window: f.Queue.Window, PerStep: f.Queue.PerStep}
	if err := cmp.Or(
		duration(&s.Queue.Step, f.Called("queue.step"), f.Queue.Step),
		duration(&s.Queue.Backfill, f.Called("queue.backfill"), f.Queue.Backfill),
		duration(&s.Queue.Epilog, f.Called("queue.epilog"), f.Queue.Epilog),
	); err != nil {
		return err
	}
	return f.want(s.Queue.PerStep <= 0 || s.Queue.Step != 0, "queue.perStep is %d, but there is no queue.step",
		s.Queue.PerStep)
}

// duration parses a duration, unless the text is empty.
func duration(to *time.Duration, name, text string) (err error) {
	if text == "" {
		return nil
	}
	if *to, err = workload.ParseDuration(text, "5m, 1s or 0s"); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (f *File) loadForecasts(ctx context.Context, s *Scenario) error {
	for i := range f.Sites {
		in := &f.Sites[i].Forecast
		if err := in.check(f); err != nil {
			return err
		}
		if in.perfect() {
			continue
		}
		issued, err := f.issue(ctx, in, s, i)
		if err != nil {
			return f.fault("site %q: forecast: %w", s.Sites[i].Name, err)
		}
		if s.Foresight == nil {
			s.Foresight = make([]Foresight, len(s.Sites))
		}
		s.Foresight[i] = issued
	}
	return nil
}

func (in *ForecastFile) perfect() bool { return in.Model == "" || in.Model == perfectForecast }

func (in *ForecastFile) check(f *File) error {
	switch {
	case in.perfect() && *in != (ForecastFile{Model: in.Model}):
		return f.fault("forecast: weather, refit and lag require a model")
	case !in.perfect() && !slices.Contains(forecast.Models(), in.Model):
		return fmt.Errorf("%s: %q: want %s, %s", f.Called("forecast.model"), in.Model, perfectForecast,
			strings.Join(forecast.Models(), ", "))
	case (in.Model == forecast.WithWeather) != (in.Weather != ""):
		return fmt.Errorf("%s: the model %q requires a weather file, and other models do not accept one",
			f.Called("forecast.weather"), forecast.WithWeather)
	}
	return nil
}

// issue returns the forecasts of a site for the time in which jobs can run, doubled to allow for queueing.
func (f *File) issue(ctx context.Context, in *ForecastFile, s *Scenario, site int) (Foresight, error) {
	o := forecast.Issuance{History: s.Sites[site].Carbon.Series, Model: in.Model, From: s.Start, Seed: f.Seed}
	err := cmp.Or(duration(&o.Refit, "refit", in.Refit), duration(&o.Lag, "lag", in.Lag))
	if err != nil {
		return nil, err
	}
	if in.Weather != "" {
		path, err := FindFile(f.name, in.Weather)
		if err != nil {
			return nil, err
		}
		if o.Weather, err = forecast.ReadWeather(path); err != nil {
			return nil, err
		}
	}
	// The current hour is known unless there is a lag.
	if first := o.History.Start().Add(forecast.MinBefore - time.Hour + o.Lag); s.Start.Before(first) {
		return nil, fmt.Errorf("the trace starts at %s, but models require a day of earlier grid data: start it at "+
			"%s or later (start, or --start)", s.Start.Format(time.RFC3339), first.Format(time.RFC3339))
	}
	last := s.LastEnd()
	o.Until = last.Add(max(last.Sub(s.Start), 7*24*time.Hour)).Truncate(time.Hour).Add(time.Hour)
	o.Until = timeutil.Earlier(o.Until, o.History.End())
	return forecast.Issue(ctx, o)
}
