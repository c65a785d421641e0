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

// Submission is a job that Slurm is to run, of one task.
type Submission struct {
	Name, Account string
	Marks         map[string]string // annotations, which its comment says
	Command       []string
	Request       sched.Resources
}

// Submit submits a job that is held, so that it stays in the queue until it is known here, and let go.
func (c *Client) Submit(ctx context.Context, s *Submission) (id int64, err error) {
	if len(s.Command) == 0 {
		return 0, errors.New("a job for Slurm needs a command")
	}
	if err := c.negotiate(ctx); err != nil { // what is wanted depends on the version
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
		return int64(submitted), nil // old versions call it an error that it is held
	case err == nil:
		err = newFault(garbled, "slurmrestd at %s has submitted a job and names no number", c.o.URL)
	}
	return 0, err
}

// SetHold holds a job that has not started, or lets it go.
func (c *Client) SetHold(ctx context.Context, id int64, hold bool) error {
	return c.change(ctx, http.MethodPost, id, map[string]any{"hold": hold})
}

// Cancel cancels a job.
func (c *Client) Cancel(ctx context.Context, id int64) error {
	return c.change(ctx, http.MethodDelete, id, nil)
}

// SetBegin gives a pending job a BeginTime.
func (c *Client) SetBegin(ctx context.Context, id int64, begin time.Time) error {
	if err := c.negotiate(ctx); err != nil {
		return err
	}
	return c.change(ctx, http.MethodPost, id, map[string]any{"begin_time": c.version.begin(begin)})
}

// change asks for a change of one job.
func (c *Client) change(ctx context.Context, method string, id int64, body any) error {
	err := c.ask(ctx, method, fmt.Sprintf("job/%d", id), body, nil)
	if t, ok := errors.AsType[*Trouble](err); ok && t.mute && c.version != nil && c.version.old {
		return nil // the next look sees what became of it
	}
	return err
}

// State is what a job that POST /ingest took does.
type State uint8

// The states.
const (
	Gone    State = iota // it is not known, or was cancelled before it started
	Waiting              // it may start
	OnHold               // it is held
	Started
	Ended
)

// Does returns what a job does.
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

// LacksRoom reports whether a job waits for nothing but room.
func (j *Job) LacksRoom() bool {
	return j.Does() == Waiting && (j.Reason == "Resources" || j.Reason == "Priority")
}
