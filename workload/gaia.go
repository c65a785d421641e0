package workload

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
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
	gaiaMostHours    = 72
	gaiaLeastSeconds = 300
)

// gaiaRow is a row as it stands there, in whatever unit.
type gaiaRow struct {
	line            int
	arrival, length float64
	milliCPU        int64
}

func (t *Trace) readGAIA(file string, text []byte, start time.Time) error {
	in, err := newRows(file, text, []string{gaiaArrival, gaiaLength, gaiaCPUs}, nil)
	if err != nil {
		return err
	}
	var all []gaiaRow
	err = in.each(func() (string, error) {
		row, field, err := parseGAIA(in)
		all = append(all, row)
		return field, err
	})
	if err != nil {
		return err
	}
	unit, err := gaiaUnit(t.Format, all)
	if err != nil {
		return &grid.RowError{File: file, Err: err}
	}
	for i, row := range all {
		arrival, length := row.arrival*unit.Seconds(), row.length*unit.Seconds()
		job := sched.Job{
			ID:       strconv.Itoa(i + 1), // they have none
			Duration: time.Duration(length * float64(time.Second)),
			Request:  sched.Resources{MilliCPU: row.milliCPU},
			Queue:    queueShort, AllowedDelay: delayShort,
		}
		for _, f := range [...]struct {
			column string
			v      float64
		}{{gaiaArrival, arrival}, {gaiaLength, length}} {
			if f.v > maxSeconds {
				return &grid.RowError{
					File: file, Line: row.line, Field: f.column, Err: errors.New("is more than a hundred years"),
				}
			}
		}
		if job.Duration <= 0 {
			return &grid.RowError{File: file, Line: row.line, Field: gaiaLength, Err: errors.New("must be more than 0")}
		}
		job.Submitted = start.Add(time.Duration(arrival * float64(time.Second)).Round(time.Microsecond))
		// hours are written with rounded digits
		job.Duration = max(time.Microsecond, job.Duration.Round(time.Microsecond))
		if job.Duration >= queueBoundary {
			job.Queue, job.AllowedDelay = queueLong, delayLong
		}
		t.Jobs = append(t.Jobs, job)
	}
	return nil
}

func parseGAIA(in *rows) (row gaiaRow, field string, err error) {
	row.line = in.line
	if row.arrival, err = notNegative(in.text(gaiaArrival)); err != nil {
		return row, gaiaArrival, err
	}
	if row.length, err = notNegative(in.text(gaiaLength)); err != nil {
		return row, gaiaLength, err
	}
	if row.milliCPU, err = cores(in.text(gaiaCPUs)); err != nil {
		return row, gaiaCPUs, err
	}
	return row, "", nil
}

// gaiaUnit returns what times are counted in: what the format says, else what the lengths show.
func gaiaUnit(format string, all []gaiaRow) (time.Duration, error) {
	switch format {
	case formatGAIAHours:
		return time.Hour, nil
	case formatGAIASeconds:
		return time.Second, nil
	}
	hours, inSeconds := true, true
	for i := range all {
		hours = hours && all[i].length <= gaiaMostHours
		inSeconds = inSeconds && all[i].length >= gaiaLeastSeconds
	}
	switch {
	case hours:
		return time.Hour, nil
	case inSeconds:
		return time.Second, nil
	}
	return 0,
		fmt.Errorf("lengths are neither all in hours, up to %d, nor all in seconds, from %d: name the format %s or %s",
			gaiaMostHours, gaiaLeastSeconds, formatGAIAHours, formatGAIASeconds)
}
