package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of the traces of GAIA (Hanafy et al., "Going Green for Less Green"), and the delays that its jobs
// allow. A job is submitted to a queue according to its length. The traces contain no further data about jobs.
const (
	gaiaArrival = "arrival_time"
	gaiaLength  = "length"
	gaiaCPUs    = "cpus"

	queueShort, delayShort = "short", 6 * time.Hour
	queueLong, delayLong   = "long", 24 * time.Hour
	queueBoundary          = 2 * time.Hour
)

// The authors limited their traces to lengths between five minutes and three days. Therefore a file without values
// above 72 is in hours, and a file without values below 300 is in seconds.
const (
	gaiaMaxHours   = 72
	gaiaMinSeconds = 300

	formatGAIA        = "gaia" // the unit is determined from the lengths
	formatGAIAHours   = "gaia-hours"
	formatGAIASeconds = "gaia-seconds"
)

// gaia returns a format with the given name and unit of time.
func gaia(name string, unit time.Duration) format {
	return format{
		name: name, required: []string{gaiaArrival, gaiaLength, gaiaCPUs},
		add: func(t *Trace, row *rows, start time.Time) { t.gaiaJob(row, start, unit) },
	}
}

func (t *Trace) gaiaJob(row *rows, start time.Time, unit time.Duration) {
	timed := func(text string) (time.Duration, error) { return times(text, unit) }
	job := sched.Job{
		ID:        strconv.Itoa(len(t.Jobs) + 1), // the trace has no IDs
		Submitted: start.Add(parsed(row, gaiaArrival, timed).Round(time.Microsecond)),
		// The hours in the file have rounded digits.
		Duration: max(time.Microsecond, parsed(row, gaiaLength, positive(timed)).Round(time.Microsecond)),
		Request:  sched.Resources{MilliCPU: parsed(row, gaiaCPUs, cores)},
		Queue:    queueShort, AllowedDelay: delayShort,
	}
	if job.Duration >= queueBoundary {
		job.Queue, job.AllowedDelay = queueLong, delayLong
	}
	t.Jobs = append(t.Jobs, job)
}

// gaiaByLength returns the format with the unit determined from the lengths.
func gaiaByLength(file string, text []byte, skipBad bool) (format, error) {
	inHours, inSeconds := gaia(formatGAIAHours, time.Hour), gaia(formatGAIASeconds, time.Second)
	row, err := inHours.open(file, text)
	if err != nil {
		return format{}, err
	}
	if skipBad {
		row.skip = func(error) {}
	}
	hours, seconds := true, true
	err = row.each(func() {
		if length := parsed(row, gaiaLength, notNegative); row.err == nil {
			hours, seconds = hours && length <= gaiaMaxHours, seconds && length >= gaiaMinSeconds
		}
	})
	switch {
	case err != nil:
		return format{}, err
	case hours:
		return inHours, nil
	case seconds:
		return inSeconds, nil
	}
	return format{}, &grid.RowError{File: file, Err: fmt.Errorf("the unit of the lengths is ambiguous: want "+
		"all lengths in hours (at most %d) or all in seconds (at least %d); specify the format %s or %s",
		gaiaMaxHours, gaiaMinSeconds, formatGAIAHours, formatGAIASeconds)}
}
