package policy

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/kubenergy/kubenergy/sched"
)

// KeptWork is a [Work] for those who keep a hundred thousand: what is the same in many, as runs of one CronJob and
// Jobs of one template are, is there once. It is made with [Work.Keep].
type KeptWork struct {
	alike     unique.Handle[alike]
	name      string
	submitted time.Time
	finishBy  time.Time // of the marks: an instant, so many differ in it
}

// alike is what says nothing of the one object: all of a Work but its name and its times.
type alike struct {
	namespace, kind, scheduler, class string
	marks                             Marks
	owner                             string // of the name of the object there is only a trace: see ownName
	parent, team                      string
	request                           sched.Resources
	selector                          string // as labels are written: key=value, sorted
}

// ownName stands for the object's own name in the name of its owner: most objects are charged to themselves. No name
// holds such a byte.
const ownName = "\x00"

// Keep returns w in little space.
func (w *Work) Keep() KeptWork {
	name := strings.TrimPrefix(w.job.ID, w.Namespace+"/")
	owner := w.Owners.Owner
	if kind, ok := strings.CutSuffix(owner, "/"+name); ok {
		owner = kind + "/" + ownName
	}
	marks := w.Marks
	marks.FinishBy = time.Time{}
	return KeptWork{
		name: name, submitted: w.job.Submitted, finishBy: w.Marks.FinishBy,
		alike: unique.Make(alike{
			namespace: w.Namespace, kind: w.Type, scheduler: w.Scheduler, class: w.Class, marks: marks,
			owner: owner, parent: w.Owners.Parent, team: w.Owners.Team,
			request: w.job.Request, selector: joinSelector(w.job.Selector),
		}),
	}
}

// Work returns what was kept.
func (k KeptWork) Work() Work {
	a := k.alike.Value()
	a.marks.FinishBy = k.finishBy
	return Work{
		Namespace: a.namespace, Type: a.kind, Scheduler: a.scheduler, Class: a.class, Marks: a.marks,
		Owners: Owners{Owner: strings.Replace(a.owner, ownName, k.name, 1), Parent: a.parent, Team: a.team},
		job: sched.Job{
			ID: a.namespace + "/" + k.name, Submitted: k.submitted, Request: a.request,
			Selector: splitSelector(a.selector),
		},
	}
}

// Unnamed returns what is the same in works that differ in their names only. It is comparable.
func (k KeptWork) Unnamed() KeptWork {
	k.name = ""
	return k
}

// Namespace returns the namespace of the object.
func (k KeptWork) Namespace() string { return k.alike.Value().namespace }

// Name returns the name of the object.
func (k KeptWork) Name() string { return k.name }

// Submitted returns when the object was created.
func (k KeptWork) Submitted() time.Time { return k.submitted }

func joinSelector(selector map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(selector[key])
	}
	return b.String()
}

func splitSelector(text string) map[string]string {
	if text == "" {
		return nil
	}
	selector := map[string]string{}
	for label := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(label, "=")
		selector[key] = value
	}
	return selector
}
