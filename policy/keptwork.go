package policy

import (
	"strings"
	"time"
	"unique"
)

// KeptWork is a [Work] for a caller that keeps a hundred thousand: what is the same in many, as runs of one CronJob and
// Jobs of one template are, is there once. It is made with [Work.Keep].
type KeptWork struct {
	alike     unique.Handle[Work] // without what follows
	name      string
	submitted time.Time
	finishBy  time.Time // of the marks: an instant, so many differ in it
}

// ownName stands for the object's own name in the name of its owner: most objects are charged to themselves. No name
// holds such a byte.
const ownName = "\x00"

// Keep returns w in little space.
func (w Work) Keep() KeptWork {
	k := KeptWork{name: w.Name, submitted: w.Submitted, finishBy: w.Marks.FinishBy}
	if kind, ok := strings.CutSuffix(w.Owners.Owner, "/"+w.Name); ok {
		w.Owners.Owner = kind + "/" + ownName
	}
	w.Name, w.Submitted, w.Marks.FinishBy = "", time.Time{}, time.Time{}
	k.alike = unique.Make(w)
	return k
}

// Work returns what was kept.
func (k KeptWork) Work() Work {
	w := k.alike.Value()
	w.Name, w.Submitted, w.Marks.FinishBy = k.name, k.submitted, k.finishBy
	w.Owners.Owner = strings.Replace(w.Owners.Owner, ownName, k.name, 1)
	return w
}

// Unnamed returns what is the same in works that differ in their names only. It is comparable.
func (k KeptWork) Unnamed() KeptWork {
	k.name = ""
	return k
}

// Namespace returns the namespace of the object.
func (k KeptWork) Namespace() string { return k.alike.Value().Namespace }

// Name returns the name of the object.
func (k KeptWork) Name() string { return k.name }

// Submitted returns when the object was created.
func (k KeptWork) Submitted() time.Time { return k.submitted }
