package workload

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The trace files of the ECSched experiments (Hu et al., "Concurrent container scheduling on heterogeneous clusters
// with multi-resource constraints"): no header, separated by space, in the user's own order.
var ecsched = format{
	name: "ecsched", id: columnID, comment: '#', ordered: true, add: (*Trace).ecschedJob,
	required: []string{columnID, ecschedSubmit, columnDuration, columnCPU, columnMemory},
}

const ecschedSubmit = "submit"

// A slot of that format is a share of a machine. We read a CPU slot as a core and a memory slot as a GiB.
const (
	milliPerSlot  = 1000
	memoryPerSlot = 1 << 30
	maxSlots      = 1 << 20
)

// longest keeps times within what time.Duration can hold: a hundred years.
const longest = 36_525 * 24 * time.Hour

// maxSeconds is the same for those that are given in seconds.
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

// seconds parses a number of seconds that is not negative.
func seconds(text string) (time.Duration, error) { return times(text, time.Second) }

// times parses a number of some unit that is not negative.
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
