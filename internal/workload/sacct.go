package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// FormatSacct is the format of the output of Slurm's sacct. It is the only one with local times.
const FormatSacct = "sacct"

// sacct is the output of sacct --parsable2 of Slurm. Its columns are compared in lower case and without the suffix
// Raw, so that raw job IDs and durations are accepted.
var sacct = format{
	name: FormatSacct, id: "jobid", dated: true, wide: true, add: (*Trace).sacctJob,
	required: []string{"jobid", "submit"},
	optional: []string{"elapsed", "alloccpus", "reqmem", "timelimit", "state", "user", "partition"},
}

func (t *Trace) sacctJob(row *rows, start time.Time) {
	job := sched.Job{
		ID: strings.Clone(row.text("jobid")), AllowedDelay: NoDelayGiven, Owner: strings.Clone(row.text("user")),
		Queue: strings.Clone(row.text("partition")),
	}
	has := func(column string) bool {
		return !slices.Contains([]string{"", "Unknown", "None", "N/A", "0"}, row.text(column))
	}
	unfinished := []string{"PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "RESIZING"}
	switch {
	case strings.Contains(job.ID, "."):
		t.skip(row, "is a step of a job")
		return
	case !has("submit"):
		t.skip(row, swfNoSubmit)
		return
	case slices.Contains(unfinished, row.text("state")) || row.text("end") == "Unknown":
		t.skip(row, "has not finished")
		return
	}
	job.Submitted = parsed(row, "submit", row.slurmTime)
	row.refuse("submit", notBefore(start, job.Submitted))
	if has("elapsed") {
		job.Duration = parsed(row, "elapsed", slurmDuration)
	} else if has("start") && has("end") {
		began, ended := parsed(row, "start", row.slurmTime), parsed(row, "end", row.slurmTime)
		if row.repeats(began) || row.repeats(ended) {
			t.Repeated++
		}
		if ended.Before(began) && row.repeats(ended) {
			ended = ended.Add(time.Hour)
		}
		job.Duration = max(0, ended.Sub(began))
	}
	if strings.Contains(row.text("timelimit"), ":") { // otherwise e.g. UNLIMITED
		job.TimeLimit = parsed(row, "timelimit", slurmDuration)
	}
	for _, column := range []string{"alloccpus", "ncpus", "reqcpus"} {
		if job.Request.MilliCPU == 0 && has(column) {
			job.Request.MilliCPU = parsed(row, column, cores)
		}
	}
	row.allocated(&job.Request)
	switch {
	case job.Duration == 0:
		t.skip(row, swfNoRun)
	case job.Request.MilliCPU == 0:
		t.skip(row, swfNoCPU)
	default:
		t.Jobs = append(t.Jobs, job)
	}
}

// allocated adds the memory and the GPUs on all nodes, and the CPUs if they are in no other column.
func (r *rows) allocated(request *sched.Resources) {
	memory, times, typed := r.text("reqmem"), int64(1), int64(0)
	amount := func(text string, parse func(string) (int64, error)) int64 {
		n, err := parse(text)
		r.refuse("alloctres", err)
		return n
	}
	for entry := range strings.SplitSeq(r.text("alloctres"), ",") {
		switch name, value, _ := strings.Cut(entry, "="); {
		case name == "mem":
			memory = value
		case name == "cpu" && request.MilliCPU == 0:
			request.MilliCPU = amount(value, cores)
		case name == "gres/gpu":
			request.GPU = amount(value, whole)
		case strings.HasPrefix(name, "gres/gpu:"): // included in gres/gpu, unless only types are recorded
			typed += amount(value, whole)
		}
	}
	request.GPU = max(request.GPU, typed)
	// Before Slurm 21.08, the memory is per CPU (4Gc) or per node (4Gn).
	if rest, ok := strings.CutSuffix(memory, "c"); ok {
		memory, times = rest, max(1, request.MilliCPU/1000)
	} else if memory, ok = strings.CutSuffix(memory, "n"); ok {
		times = max(1, given(r, "nnodes", 1, whole))
	}
	if memory != "" && strings.ContainsAny(memory[len(memory)-1:], "KMGTP") {
		memory += "i" // Slurm's units are powers of 1024
	}
	bytes, err := size(cmp.Or(memory, "0"))
	if err == nil && bytes > maxMemory/times {
		err = fmt.Errorf("%d times %q is more than any machine has", times, memory)
	}
	r.refuse("reqmem", err)
	request.Memory = bytes * times
}

// slurmTime parses Unix seconds, a time with an offset, or a time in the zone of the trace: the first one if clocks
// show it twice.
func (r *rows) slurmTime(text string) (time.Time, error) {
	if isNumber(text) {
		d, err := seconds(text)
		return time.Unix(0, 0).UTC().Add(d), err
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05"} {
		if t, err := time.ParseInLocation(layout, text, cmp.Or(r.zone, time.UTC)); err != nil {
			continue
		} else if r.zone == nil && !strings.Contains(layout, "Z") {
			return t, fmt.Errorf("%q has no time zone: set --time-zone, e.g. Europe/Berlin or UTC, or run sacct with "+
				"SLURM_TIME_FORMAT=%%s", text)
		} else if r.zone != nil && !strings.Contains(layout, "Z") && t.Format(layout) != text {
			return t, fmt.Errorf("%q does not exist in %s, because clocks are put forward: want another time zone",
				text, r.zone)
		} else if first := t.Add(-time.Hour); !strings.Contains(layout, "Z") && r.repeats(first) {
			return first.UTC(), nil
		} else {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q: want a time such as 2026-10-01T12:00:00", text)
}

// repeats reports whether the local time of t also occurs one hour later, because clocks are put back.
func (r *rows) repeats(t time.Time) bool {
	const clock = time.DateOnly + time.TimeOnly
	return r.zone != nil && t.In(r.zone).Format(clock) == t.Add(time.Hour).In(r.zone).Format(clock)
}

// slurmDuration parses [days-]hours:minutes:seconds, minutes:seconds or seconds.
func slurmDuration(text string) (sum time.Duration, err error) {
	units := []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second}
	parts := strings.Split(strings.Replace(text, "-", ":", 1), ":")
	for i, part := range parts {
		d, wrong := times(part, units[max(0, len(units)-len(parts)+i)])
		if sum += d; wrong != nil || len(parts) > len(units) || sum > longest {
			return 0, fmt.Errorf("%q: want [days-]hours:minutes:seconds", text)
		}
	}
	return sum, nil
}
