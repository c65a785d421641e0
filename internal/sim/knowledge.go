package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// knowledge provides the estimates given to strategies for unknown values: future intensities and run times.
type knowledge struct {
	sites []*sched.Site // as seen by strategies
	views []view        // the sites with an unknown future
	next  time.Time     // time of the next change of a view

	learner predict.Learner // nil if strategies are given the true run times
	shown   []sched.Job     // jobs without their durations
	begun   []int32         // jobs that have started; some may have ended since
	over    []bool          // per job: whether it has ended
	changed bool            // a job arrived or ended at the current time
	refill  time.Time       // time of the next update of the learner, unless it is updated at every change
}

// view is a site as seen by strategies.
type view struct {
	site      *sched.Site
	truth     *grid.Series
	foresight Foresight
}

// newKnowledge returns the knowledge for a run and assigns nodes to the sites as seen by the strategy.
func newKnowledge(s *Scenario, strategy strategy.Strategy, nodes []sched.Node) knowledge {
	k := knowledge{sites: s.Sites}
	if strategy == nil {
		return k
	}
	k.hideFuture(s, nodes)
	if clairvoyant, ok := strategy.(interface{ Clairvoyant() bool }); s.Learner == nil ||
		ok && clairvoyant.Clairvoyant() {
		return k
	}
	k.learner, k.over = s.Learner(), make([]bool, len(s.Jobs))
	k.shown = append([]sched.Job(nil), s.Jobs...)
	for i := range k.shown {
		k.shown[i].Duration, k.shown[i].Runtimes = 0, nil
	}
	k.refill = s.Start
	return k
}

func (k *knowledge) hideFuture(s *Scenario, nodes []sched.Node) {
	shadows := map[*sched.Site]*sched.Site{}
	for i, foresight := range s.Foresight {
		if foresight == nil {
			continue
		}
		shadow := *s.Sites[i]
		shadow.Carbon = grid.Signal{}
		shadows[s.Sites[i]] = &shadow
		k.views = append(k.views, view{site: &shadow, truth: s.Sites[i].Carbon.Series, foresight: foresight})
	}
	if len(shadows) == 0 {
		return
	}
	k.sites = append([]*sched.Site(nil), s.Sites...)
	for i, site := range k.sites {
		if shadow := shadows[site]; shadow != nil {
			k.sites[i] = shadow
		}
	}
	for i := range nodes {
		if shadow := shadows[nodes[i].Site]; shadow != nil {
			nodes[i].Site = shadow
		}
	}
}

// look updates the signals to those known at now.
func (k *knowledge) look(now time.Time) {
	if len(k.views) == 0 || now.Before(k.next) {
		return
	}
	for i := range k.views {
		v := &k.views[i]
		v.site.Carbon = v.foresight.At(now)
		step := v.truth.Step()
		into := now.Sub(v.truth.Start()) % step
		if next := now.Add(step - into); i == 0 || next.Before(k.next) {
			k.next = next
		}
	}
}

// expect sets the estimated run time of a job.
func (k *knowledge) expect(j *sched.Job) {
	if k.learner != nil {
		j.Duration, j.Runtimes = 0, nil
		k.learner.Expect(j)
	}
}

func (k *knowledge) begins(job int) {
	if k.learner != nil {
		k.begun = append(k.begun, int32(job))
	}
}

// ended updates the learner with the run time of a job that has ended.
func (k *knowledge) ended(job int, length time.Duration) {
	k.changed = true
	if k.learner != nil {
		k.over[job] = true
		k.learner.Ended(&k.shown[job], length)
	}
}

// refresh updates the learner with the running jobs, if an update is due.
func (k *knowledge) refresh(e *engine, now time.Time) {
	changed := k.changed
	k.changed = false
	if k.learner == nil {
		return
	}
	if every := k.learner.Every(); every > 0 {
		if now.Before(k.refill) {
			return
		}
		k.refill = now.Add(every - now.Sub(e.scenario.Start)%every)
	} else if !changed {
		return
	}
	k.learner.Refresh(now, func(yield func(*sched.Job, time.Duration) bool) {
		left := k.begun[:0]
		for i, job := range k.begun {
			if k.over[job] {
				continue
			}
			left = append(left, job)
			if !yield(&k.shown[job], e.elapsed(now, int(job))) {
				left = append(left, k.begun[i+1:]...)
				break
			}
		}
		k.begun = left
	})
}

// elapsed returns the work done so far by a job that has not ended.
func (e *engine) elapsed(now time.Time, job int) time.Duration {
	if e.tasks != nil {
		done, _ := e.done(now, job)
		return done
	}
	ran := now.Sub(e.result.Outcomes[job].Start)
	if speed := e.nodes[e.on[job]].Speed; speed != 0 && speed != 1 {
		ran = time.Duration(float64(ran) * speed)
	}
	return ran
}
