package workload

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// ecsched is the format of the trace files of the ECSched experiments (Hu et al., "Concurrent container scheduling
// on heterogeneous clusters with multi-resource constraints"): no header, separated by spaces, with the order of
// rows preserved.
var ecsched = format{
	name: "ecsched", id: columnID, comment: '#', ordered: true, add: (*Trace).ecschedJob,
	required: []string{columnID, ecschedSubmit, columnDuration, columnCPU, columnMemory},
}

const ecschedSubmit = "submit"

// A slot is a fraction of a machine. A CPU slot is mapped to a core and a memory slot to a GiB.
const (
	milliPerSlot  = 1000
	memoryPerSlot = 1 << 30
	maxSlots      = 1 << 20
)

// longest limits times to a hundred years, which is within the range of time.Duration.
const longest = 36_525 * 24 * time.Hour

// maxSeconds is longest in seconds.
const maxSeconds = float64(longest / time.Second)

func (t *Trace) ecschedJob(row *rows, start time.Time) {
	t.Jobs = append(t.Jobs, sched.Job{
		ID: row.text(columnID), AllowedDelay: NoDelayGiven,
		Submitted: start.Add(parsed(row, ecschedSubmit, seconds)),
		Duration:  parsed(row, columnDuration, positive(seconds)),
		Request: sched.Resources{
			MilliCPU: milliPerSlot * parsed(row, columnCPU, slots),
			Memory:   memoryPerSlot * parsed(row, columnMemory, slots),
		},
	})
}

func slots(text string) (int64, error) {
	v, err := number(text)
	switch {
	case err != nil:
		return 0, err
	case v < 0 || v > maxSlots || v != math.Trunc(v):
		return 0, fmt.Errorf("%q: want a whole number of slots, 0 to %d", text, maxSlots)
	}
	return int64(v), nil
}

// seconds parses a nonnegative number of seconds.
func seconds(text string) (time.Duration, error) { return times(text, time.Second) }

// times parses a nonnegative number of the given unit.
func times(text string, unit time.Duration) (time.Duration, error) {
	v, err := notNegative(text)
	v *= unit.Seconds()
	switch {
	case err != nil:
		return 0, err
	case v > maxSeconds:
		return 0, fmt.Errorf("%q is more than a hundred years", text)
	}
	return time.Duration(math.Round(v * float64(time.Second))), nil
}
