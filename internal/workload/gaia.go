package workload

import (
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// The columns of the traces of GAIA (Hanafy et al., "Going Green for Less Green"), and what its jobs may be put off
// by. A job is submitted to a queue by its length, and nothing else is told of it.
const (
	gaiaArrival = "arrival_time"
	gaiaLength  = "length"
	gaiaCPUs    = "cpus"

	queueShort, delayShort = "short", 6 * time.Hour
	queueLong, delayLong   = "long", 24 * time.Hour
	queueBoundary          = 2 * time.Hour
)

// The authors cut their traces to lengths of five minutes to three days: a file with nothing above 72 is in hours,
// and one with nothing below 300 in seconds.
const (
	gaiaMaxHours   = 72
	gaiaMinSeconds = 300

	formatGAIA        = "gaia" // whose unit the lengths show
	formatGAIAHours   = "gaia-hours"
	formatGAIASeconds = "gaia-seconds"
)

// gaia is the format of a name whose times are in a unit.
func gaia(name string, unit time.Duration) format {
	return format{
		name: name, required: []string{gaiaArrival, gaiaLength, gaiaCPUs},
		add: func(t *Trace, row *rows, start time.Time) { t.gaiaJob(row, start, unit) },
	}
}

func (t *Trace) gaiaJob(row *rows, start time.Time, unit time.Duration) {
	timed := func(text string) (time.Duration, error) { return times(text, unit) }
	job := sched.Job{
		ID:        strconv.Itoa(len(t.Jobs) + 1), // they have none
		Submitted: start.Add(parsed(row, gaiaArrival, timed).Round(time.Microsecond)),
		// hours are written with rounded digits
		Duration: max(time.Microsecond, parsed(row, gaiaLength, positive(timed)).Round(time.Microsecond)),
		Request:  sched.Resources{MilliCPU: parsed(row, gaiaCPUs, cores)},
		Queue:    queueShort, AllowedDelay: delayShort,
	}
	if job.Duration >= queueBoundary {
		job.Queue, job.AllowedDelay = queueLong, delayLong
	}
	t.Jobs = append(t.Jobs, job)
}

// gaiaByLength returns the format whose unit the lengths show.
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
	return format{}, &grid.RowError{File: file, Err: fmt.Errorf("lengths are neither all in hours, up to %d, nor all "+
		"in seconds, from %d: name the format %s or %s", gaiaMaxHours, gaiaMinSeconds, formatGAIAHours,
		formatGAIASeconds)}
}
