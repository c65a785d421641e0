//go:build linux && (amd64 || arm64)

// Command kubenergy-gpu calls the libraries of the NVIDIA driver for static binaries, which cannot load shared
// libraries. kubenergy-agent starts it with the path of the NVML library and an interval. In this mode, it writes
// one line of JSON with the readings of all GPUs per interval. `kubenergy benchmark` starts it without arguments.
// In this mode, it reads a number of rounds from each line of standard input, performs this work on a GPU, and
// writes the duration in seconds and the number of operations in billions.
package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/nvml"
	"github.com/kubenergy/kubenergy/internal/benchmark/cuda"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("kubenergy-gpu: ")
	const usage = "want a library and an interval, as in kubenergy-gpu libnvidia-ml.so.1 1s, or no arguments"
	if len(os.Args) == 2 && slices.Contains([]string{"-h", "-help", "--help"}, os.Args[1]) {
		fmt.Println("kubenergy-gpu is started by kubenergy-agent and by kubenergy benchmark:", usage)
		return
	}
	switch len(os.Args) {
	case 1:
		if err := work(); !errors.Is(err, io.EOF) {
			log.Fatal(err)
		}
	case 3:
		interval, err := time.ParseDuration(os.Args[2])
		if err != nil || interval <= 0 {
			log.Fatalf("invalid interval %q: want a positive duration such as 1s", os.Args[2])
		}
		log.Fatal(nvml.Serve(os.Stdout, os.Args[1], interval))
	default:
		log.Fatal(usage)
	}
}

// work performs the requested rounds of work on a GPU until the end of standard input.
func work() error {
	gpu, err := cuda.Open()
	for rounds := 0; err == nil; {
		if _, err = fmt.Scanln(&rounds); err != nil {
			break
		}
		began, done := time.Now(), 0.0
		if done, err = gpu.Work(rounds); err == nil {
			fmt.Println(time.Since(began).Seconds(), done)
		}
	}
	return err
}
