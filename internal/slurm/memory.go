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

// memory is the state that survives restarts: the BeginTimes set by the driver, and the queues of partitions. It is
// written before a change is sent to Slurm, so that a BeginTime set just before a crash is not mistaken for one of
// a user.
type memory struct {
	Jobs    map[int64]*entry       `json:"jobs"`
	Queues  map[string]sched.Queue `json:"queues,omitempty"` // by partition
	Lost    int64                  `json:"lost,omitempty"`   // lost the state of jobs submitted before
	file    string
	changed bool
}

// entry is the state of a job.
type entry struct {
	Submit int64  `json:"submit"`           // submit time; job IDs of Slurm may be reused
	Ours   int64  `json:"ours,omitempty"`   // last BeginTime of the driver, possibly not set yet; 0 if none
	Was    int64  `json:"was,omitempty"`    // BeginTime before that
	Before bool   `json:"before,omitempty"` // whether Was was set by the driver
	Final  string `json:"final,omitempty"`  // state if the job must not be changed again
	Reason string `json:"reason,omitempty"` // reason of the delay
	Moved  int64  `json:"moved,omitempty"`  // time of the last change
}

// openMemory reads the state file. If it is unreadable, openMemory returns an error and an empty state. Jobs that
// were submitted before are then never changed, because their BeginTimes may have been set by users.
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
	_ = os.Link(file, aside) // for inspection; the file is replaced in the first pass
	*m = memory{file: file, Jobs: map[int64]*entry{}, Queues: map[string]sched.Queue{}, Lost: now.Unix(), changed: true}
	return m, fmt.Errorf("reading the state file: %w", cmp.Or(err, errors.New("the fields jobs or queues are null")))
}

// write writes the state file if the state has changed.
func (m *memory) write() error {
	if !m.changed {
		return nil
	}
	text, err := json.Marshal(m)
	if err == nil {
		err = renameio.WriteFile(m.file, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the state file, which is required to set BeginTimes: %w", err)
	}
	m.changed = false
	return nil
}

func (m *memory) keep(j *Job, e *entry) { m.Jobs[int64(j.ID)], m.changed = e, true }

// room returns the queues before a restart. The time in between is unknown.
func (m *memory) room() room {
	r := room{}
	for partition, q := range m.Queues {
		q.At = time.Time{}
		r.of(partition).Queue = q
	}
	return r
}

// keepQueues stores queues that have changed significantly.
func (m *memory) keepQueues(r room) {
	const matters = 0.005
	for partition, p := range r {
		if previous, ok := m.Queues[partition]; !ok || math.Abs(p.Queue.Share-previous.Share) > matters {
			m.Queues[partition], m.changed = p.Queue, true
		}
	}
}

// entry returns the state of a job. It is empty for a new job.
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

// forget removes jobs that are no longer waiting.
func (m *memory) forget(waits map[int64]bool) {
	before := len(m.Jobs)
	maps.DeleteFunc(m.Jobs, func(id int64, _ *entry) bool { return !waits[id] })
	m.changed = m.changed || len(m.Jobs) < before
}

// same is the maximum difference of equal BeginTimes, in seconds.
const same = 2

func near(a, b int64) bool { return max(a-b, b-a) <= same }

// whose reports whether the current BeginTime of a job was set by the driver, or whether it was replaced by someone
// else. Slurm may not have received the last change because of a crash or a rejection.
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
