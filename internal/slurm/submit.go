package slurm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Submission is a job to submit to Slurm. It has a single task.
type Submission struct {
	Name, Account string
	Marks         map[string]string // annotations for its comment
	Command       []string
	Request       sched.Resources
}

// Submit submits a job in state held, so that it does not start before the caller has stored its ID and released
// it.
func (c *Client) Submit(ctx context.Context, s *Submission) (id int64, err error) {
	if len(s.Command) == 0 {
		return 0, errors.New("a Slurm job requires a command")
	}
	if err := c.negotiate(ctx); err != nil { // the request depends on the version
		return 0, err
	}
	var marks, words []string
	for key, value := range s.Marks {
		if word, ours := strings.CutPrefix(key, v1alpha1.Prefix); ours && !strings.ContainsAny(value, ", \t\n") {
			marks = append(marks, word+"="+value)
		}
	}
	for _, word := range s.Command {
		words = append(words, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	const path = "/usr/local/bin:/usr/bin:/bin"
	job := map[string]any{
		"name": s.Name, "account": s.Account, "hold": true, "tasks": 1, "current_working_directory": "/tmp",
		"cpus_per_task": (s.Request.MilliCPU + milli - 1) / milli, "environment": c.version.env(path),
		"comment": "kubenergy:" + strings.Join(slices.Sorted(slices.Values(marks)), ","),
	}
	if mebi := s.Request.Memory >> 20; mebi > 0 {
		job["memory_per_node"] = c.version.amount(mebi)
	}
	if s.Request.GPU > 0 {
		job["tres_per_node"] = fmt.Sprintf("gres:gpu:%d", s.Request.GPU)
	}
	var submitted number
	err = c.ask(ctx, http.MethodPost, "job/submit", map[string]any{
		"script": "#!/bin/sh\nexec " + strings.Join(words, " ") + "\n", "job": job,
	}, map[string]any{"job_id": &submitted})
	switch {
	case submitted > 0:
		return int64(submitted), nil // old versions return an error for held jobs
	case err == nil:
		err = newFault(garbled, "slurmrestd at %s submitted a job but did not return its ID", c.o.URL)
	}
	return 0, err
}

// SetHold holds or releases a job that has not started.
func (c *Client) SetHold(ctx context.Context, id int64, hold bool) error {
	return c.change(ctx, http.MethodPost, id, map[string]any{"hold": hold})
}

// Cancel cancels a job.
func (c *Client) Cancel(ctx context.Context, id int64) error {
	return c.change(ctx, http.MethodDelete, id, nil)
}

// SetBegin sets the BeginTime of a pending job.
func (c *Client) SetBegin(ctx context.Context, id int64, begin time.Time) error {
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	return c.change(ctx, http.MethodPost, id, map[string]any{"begin_time": c.version.begin(begin)})
}

// change sends a change of a job.
func (c *Client) change(ctx context.Context, method string, id int64, body any) error {
	err := c.ask(ctx, method, fmt.Sprintf("job/%d", id), body, nil)
	if t, ok := errors.AsType[*Trouble](err); ok && t.mute && c.version != nil && c.version.old {
		return nil // the next pass shows the result
	}
	return err
}

// State is the state of a job that was submitted by POST /ingest.
type State uint8

// States of a job.
const (
	Gone    State = iota // unknown, or canceled before its start
	Waiting              // pending and not held
	OnHold               // held
	Started
	Ended
)

// Does returns the state of a job.
func (j *Job) Does() State {
	switch {
	case j.State.has("PENDING") && strings.HasPrefix(j.Reason, "JobHeld"):
		return OnHold
	case j.State.has("PENDING"):
		return Waiting
	case j.State.has("CANCELLED") && j.Hosts == "":
		return Gone
	case j.State.has("cancelled", "completed", "failed", "timeout", "node_fail", "preempted", "boot_fail", "deadline",
		"out_of_memory", "revoked") && !j.State.has("completing"):
		return Ended
	}
	return Started
}

// LacksRoom reports whether a job only waits for resources.
func (j *Job) LacksRoom() bool {
	return j.Does() == Waiting && (j.Reason == "Resources" || j.Reason == "Priority")
}
