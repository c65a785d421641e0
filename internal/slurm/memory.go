package slurm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"time"

	"github.com/google/renameio/v2"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// memory is what is remembered over restarts: which BeginTimes are ours, and how much was waited for. It is written
// before Slurm is told, so that a BeginTime that was told just before we were killed is not taken for another's.
type memory struct {
	Jobs    map[int64]*entry       `json:"jobs"`
	Queues  map[string]sched.Queue `json:"queues,omitempty"` // by partition
	Lost    int64                  `json:"lost,omitempty"`   // what was known of jobs submitted until then is lost
	file    string
	changed bool
}

// entry is what is remembered of a job.
type entry struct {
	Submit int64  `json:"submit"`           // Slurm begins its numbers anew some day
	Ours   int64  `json:"ours,omitempty"`   // the BeginTime that we gave it last, or were about to; 0: none
	Was    int64  `json:"was,omitempty"`    // the one before that
	Before bool   `json:"before,omitempty"` // and that was ours too
	Final  string `json:"final,omitempty"`  // it is left alone from now on, and why
	Reason string `json:"reason,omitempty"` // why it waits
	Moved  int64  `json:"moved,omitempty"`  // when it was given the last one
}

// openMemory reads a file. If it is unreadable, the memory begins anew, and jobs that were submitted until now are left
// alone for good: their BeginTimes may be their users'. openMemory then returns an error and a usable memory.
func openMemory(file string, now time.Time) (*memory, error) {
	m := &memory{file: file, Jobs: map[int64]*entry{}, Queues: map[string]sched.Queue{}}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err == nil && m.Jobs != nil && m.Queues != nil {
		return m, nil
	}
	aside := file + ".unreadable"
	_ = os.Remove(aside)
	_ = os.Link(file, aside) // for people; the file is replaced at the first look
	*m = memory{file: file, Jobs: map[int64]*entry{}, Queues: map[string]sched.Queue{}, Lost: now.Unix(), changed: true}
	return m, fmt.Errorf("reading which BeginTimes are ours: %w", cmp.Or(err, errors.New("jobs or queues are null")))
}

// write writes what has changed.
func (m *memory) write() error {
	if !m.changed {
		return nil
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = renameio.WriteFile(m.file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("remembering BeginTimes, without which none is given: %w", err)
	}
	m.changed = false
	return nil
}

func (m *memory) keep(j *Job, e *entry) { m.Jobs[int64(j.ID)], m.changed = e, true }

// room returns what was waited for before a restart. While we were away is not known.
func (m *memory) room() room {
	r := room{}
	for partition, q := range m.Queues {
		q.At = time.Time{}
		r.of(partition).Queue = q
	}
	return r
}

// keepQueues remembers what is waited for, where that has changed so that it matters.
func (m *memory) keepQueues(r room) {
	const matters = 0.005
	for partition, p := range r {
		if previous, ok := m.Queues[partition]; !ok || math.Abs(p.Queue.Share-previous.Share) > matters {
			m.Queues[partition], m.changed = p.Queue, true
		}
	}
}

// entry returns what is remembered of a job; an empty one of a job that is new.
func (m *memory) entry(j *Job) *entry {
	e := m.Jobs[int64(j.ID)]
	if e == nil || e.Submit != int64(j.Submit) {
		e = &entry{Submit: int64(j.Submit)}
		if e.Submit <= m.Lost {
			e.Final = isTheirs
		}
	}
	return e
}

// forget drops jobs that do not wait any more.
func (m *memory) forget(waits map[int64]bool) {
	before := len(m.Jobs)
	maps.DeleteFunc(m.Jobs, func(id int64, _ *entry) bool { return !waits[id] })
	m.changed = m.changed || len(m.Jobs) < before
}

// same is how far apart two readings of one BeginTime may be.
const same = 2

func near(a, b int64) bool { return max(a-b, b-a) <= same }

// whose reports whether the BeginTime that a job has is ours, or whether another has replaced it. We may have been
// killed, or refused, before Slurm was told of the last one.
func (e *entry) whose(j *Job) (ours, others bool) {
	begin := int64(j.Eligible)
	switch {
	case e.Ours == 0:
		return false, false
	case near(begin, e.Ours):
		return true, false
	case near(begin, e.Was):
		return e.Before, false
	}
	return false, true
}
