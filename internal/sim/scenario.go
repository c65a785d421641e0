package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/spelling"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Validate returns an error that lists the problems of a scenario.
func (s *Scenario) Validate() error {
	errs := slices.Concat(s.checkNodes(), s.checkSites(), s.checkJobs())
	errs = append(errs, want(min(s.Live.Period, s.Live.MaxAge) >= 0,
		"live.period is %v and live.maxAge is %v: want 0 or more", s.Live.Period, s.Live.MaxAge))
	errs = append(errs, s.Queue.check()...)
	cpus, known := len(s.Use), len(s.Foresight)
	errs = append(errs, want(cpus == 0 || cpus == len(s.Jobs), "got the CPU use of %d jobs, want %d", cpus,
		len(s.Jobs)))
	for i, share := range s.Use {
		errs = append(errs, want(share >= 0 && share <= 1, "CPU use of job %d is %v: want a fraction, 0 to 1", i,
			share))
	}
	errs = append(errs, want(known == 0 || known == len(s.Sites), "got the foresight of %d sites, want %d", known,
		len(s.Sites)))
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	const most = 10 // the same problem often occurs in all rows
	if len(errs) > most {
		errs = append(errs[:most], fmt.Errorf("and %d more", len(errs)-most))
	}
	return errors.Join(errs...)
}

func (q *QueueRules) check() []error {
	return []error{
		want(q.Window >= 0, "queue.window is %d: want a number of jobs, or 0 for all", q.Window),
		want(q.PerStep >= 0, "queue.perStep is %d: want a number of placements, or 0 for all", q.PerStep),
		want(q.Epilog == 0 || q.Epilog > 0 && q.Backfill != 0,
			"queue.epilog is %v: want 0s or more, and queue.backfill", q.Epilog),
		want(q.Backfill == 0 || q.Backfill > 0 && *q == (QueueRules{Backfill: q.Backfill, Epilog: q.Epilog}),
			"queue.backfill is %v: want 0s or more, and none of window, perStep and step", q.Backfill),
		want(q.Step >= 0, "queue.step is %v: want 0s or more", q.Step),
	}
}

func (s *Scenario) checkNodes() (errs []error) {
	if len(s.Nodes) == 0 {
		errs = append(errs, errors.New("scenario has no nodes"))
	}
	names := make(map[string]bool, len(s.Nodes))
	for i := range s.Nodes {
		n := &s.Nodes[i]
		switch {
		case n.Name == "" || names[n.Name]:
			errs = append(errs, fmt.Errorf("node %d: name %q is empty or used twice", i, n.Name))
		case n.Site == nil:
			errs = append(errs, fmt.Errorf("node %s has no site", n.Name))
		case n.Profile == nil:
			errs = append(errs, fmt.Errorf("node %s has no power profile", n.Name))
		case n.Capacity.MilliCPU <= 0 || n.Capacity.Memory < 0 || n.Capacity.GPU < 0 || n.Speed < 0:
			errs = append(errs, fmt.Errorf("node %s: capacity or speed is not positive", n.Name))
		}
		names[n.Name] = true
	}
	return errs
}

func (s *Scenario) checkSites() (errs []error) {
	for _, site := range s.Sites {
		if c := site.Carbon.Series; c != nil && !c.Covers(s.Start, s.Start) {
			errs = append(errs, fmt.Errorf("%sthe series covers %s to %s, but not the start %s",
				site.Heading(), c.Start().Format(time.RFC3339), c.End().Format(time.RFC3339),
				s.Start.Format(time.RFC3339)))
		}
	}
	return errs
}

func (s *Scenario) checkJobs() (errs []error) {
	if len(s.Jobs) == 0 {
		errs = append(errs, errors.New("scenario has no jobs"))
	}
	for i := range s.Jobs {
		j := &s.Jobs[i]
		if j.Duration <= 0 || j.Submitted.Before(s.Start) || j.AllowedDelay < 0 || j.RestartCost < 0 {
			errs = append(errs,
				fmt.Errorf(
					"job %s: want a duration above 0, a submission at or after %s and an allowed delay of 0 or more",
					j.ID, s.Start.Format(time.RFC3339)))
		}
		if err := errors.Join(checkScaling(j), s.checkPlaces(j)); err != nil {
			errs = append(errs, fmt.Errorf("job %s: %w", j.ID, err))
		}
	}
	return errs
}

// checkPlaces returns an error if a job refers to an unknown site.
func (s *Scenario) checkPlaces(j *sched.Job) error {
	for _, name := range j.Sites {
		if !slices.ContainsFunc(s.Sites, func(site *sched.Site) bool { return site.Name == name }) {
			names := sliceutil.Map(s.Sites, func(site *sched.Site) string { return site.Name })
			return fmt.Errorf("sites: unknown site %q%s: have %s", name, spelling.DidYouMean(name, names),
				strings.Join(names, ", "))
		}
	}
	return nil
}

// timelineStep returns the interval of the timeline: about 300 intervals over the time in which jobs can start, but
// at least a minute each.
func (s *Scenario) timelineStep() time.Duration {
	const bins = 300
	return max(time.Minute, (s.LastEnd().Sub(s.Start) / bins).Round(time.Minute))
}

// LastEnd returns the latest completion of any job if no job waits for capacity.
func (s *Scenario) LastEnd() (last time.Time) {
	for i := range s.Jobs {
		last = timeutil.Later(last, s.Jobs[i].LatestStart().Add(s.Jobs[i].Duration))
	}
	return last
}
