package sim

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/predict"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// knowledge is what strategies are told of what they cannot know: the intensities to come, and how long jobs run.
type knowledge struct {
	sites []*sched.Site // as strategies see them
	views []view        // those of them of which the future is not known
	next  time.Time     // when one of them changes

	learner predict.Learner // nil: true run times are told
	shown   []sched.Job     // without their durations
	begun   []int32         // jobs that began, some of which have ended since
	over    []bool          // by job
	changed bool            // a job arrived or ended at this instant
	refill  time.Time       // when the learner is to take notice of what runs, unless it is at every change
}

// view is a site as a strategy sees it.
type view struct {
	site      *sched.Site
	truth     *grid.Series
	foresight Foresight
}

// newKnowledge has nodes stand at the sites that the strategy sees.
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

// look shows the signals as they are known at now.
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

// expect fills in how long a job is thought to run.
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

// ended notes that a job has ended, and how long it was.
func (k *knowledge) ended(job int, length time.Duration) {
	k.changed = true
	if k.learner != nil {
		k.over[job] = true
		k.learner.Ended(&k.shown[job], length)
	}
}

// refresh has the learner take notice of the jobs that run, if it is time for that.
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

// elapsed returns how much a job that has not ended has worked so far.
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
