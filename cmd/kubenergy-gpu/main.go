//go:build linux && (amd64 || arm64)

// Command kubenergy-gpu reads NVIDIA's boards for kubenergy-agent, which starts it and names the driver's library and
// the interval. Each line that it writes is all that was read at one instant, in JSON.
package main

import (
	"log"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/agent/nvml"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kubenergy-gpu: ")
	if len(os.Args) != 3 {
		log.Fatal("want the driver's library and an interval, as: kubenergy-gpu libnvidia-ml.so.1 1s")
	}
	interval, err := time.ParseDuration(os.Args[2])
	if err != nil || interval <= 0 {
		log.Fatalf("the interval %q is no time: want one as 1s", os.Args[2])
	}
	log.Fatal(nvml.Serve(os.Stdout, os.Args[1], interval))
}
