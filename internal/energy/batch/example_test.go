package batch_test

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Two consecutive batches are folded into one while the controller is unavailable, without losing energy.
func ExampleFold() {
	fn := func(number uint64, used energy.Microjoules) *batch.Batch {
		b := &batch.Batch{
			Version: batch.Version, Stream: batch.Stream{Node: "worker1", Boot: "b", Epoch: "e"},
			First: number, Last: number, Source: "psys (rapl)", IdlePolicy: "apart", Measured: used,
			StartSinceBoot: time.Duration(number) * time.Minute, EndSinceBoot: time.Duration(number+1) * time.Minute,
			Shares: []energy.Share{{ID: energy.System, Dynamic: used}},
		}
		b.SetWall(time.Date(2026, 11, 3, 10, int(number), 0, 0, time.UTC))
		return b
	}
	folded, err := batch.Fold(fn(1, 2_000_000_000), fn(2, 1_000_000_000))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(folded.First, folded.Last, folded.Measured.Joules())
	// Output: 1 2 3000 J
}
