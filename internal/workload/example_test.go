package workload_test

import (
	"fmt"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// This example lists a bundled fleet and writes a trace as a table that Load can read.
func Example() {
	nodes, err := workload.Nodes("demo24", 0, &sched.Site{Name: "home"})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(nodes), "nodes, the first", nodes[0].Name, "with profile", nodes[0].Profile.Name)

	start := time.Date(2022, 6, 1, 0, 0, 0, 0, time.UTC)
	jobs := []sched.Job{{
		ID: "nightly", Submitted: start.Add(time.Hour), Duration: 45 * time.Minute,
		Request: sched.Resources{MilliCPU: 1500, Memory: 4 << 30}, AllowedDelay: 6 * time.Hour,
	}}
	if err := (&workload.Trace{Jobs: jobs}).WriteCSV(os.Stdout, start); err != nil {
		panic(err)
	}
	// Output:
	// 24 nodes, the first n13-edge with profile tx100-2012
	// id,submit_time,duration,cpu,memory,gpu,allowed_delay,deadline
	// nightly,3600,2700,1500m,4294967296,0,21600,
}
