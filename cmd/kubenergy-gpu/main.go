//go:build linux && (amd64 || arm64)

// Command kubenergy-gpu reads NVIDIA's boards for kubenergy-agent, which starts it and names the driver's library and
// the interval. Each line that it writes is all that was read at one instant, in JSON.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/agent/nvml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-gpu:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return errors.New("want the driver's library and an interval, as: kubenergy-gpu libnvidia-ml.so.1 1s")
	}
	interval, err := time.ParseDuration(args[1])
	if err != nil || interval <= 0 {
		return fmt.Errorf("the interval %q is no time: want one as 1s", args[1])
	}
	return nvml.Serve(os.Stdout, args[0], interval)
}
