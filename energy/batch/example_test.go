package batch_test

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// A central unit adds up what a host and the virtual machine on it have reported.
func ExampleSum() {
	start := time.Date(2026, 11, 3, 10, 15, 0, 0, time.UTC)
	end := start.Add(15 * time.Second)
	host := &batch.Batch{
		Stream: batch.Stream{Node: "rack1"}, First: 1, Last: 1, Start: start, End: end, EndSinceBoot: 15 * time.Second,
		Measured: 3_000_000_000, Idle: 1_000_000_000,
		Shares: []energy.Share{{ID: energy.VMID("worker1"), Dynamic: 2_000_000_000}},
	}
	guest := &batch.Batch{
		Stream: batch.Stream{Node: "worker1"}, First: 1, Last: 1, Start: start, End: end,
		EndSinceBoot: 15 * time.Second,
		Parent:       &batch.Parent{Host: "rack1", VM: "worker1"},
		Measured:     2_000_000_000,
		Shares:       []energy.Share{{ID: energy.System, Dynamic: 2_000_000_000}},
	}
	fmt.Println(batch.Sum([]*batch.Batch{host, guest}).Measured.Joules())
	// Output: 3000 J
}
