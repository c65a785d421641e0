//go:build linux && (amd64 || arm64)

// Command kubenergy-gpu uses the libraries of NVIDIA's driver for programs that do without the system's dynamic linker.
// kubenergy-agent starts it with the driver's library and an interval: each line that it writes then is all that was
// read of the boards at one instant, in JSON. `kubenergy benchmark` starts it with nothing: for each number that it
// reads, it does so many rounds of work on a board, and writes seconds and billion operations.
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
	const usage = "want the driver's library and an interval, as: kubenergy-gpu libnvidia-ml.so.1 1s; or nothing"
	if len(os.Args) == 2 && slices.Contains([]string{"-h", "-help", "--help"}, os.Args[1]) {
		fmt.Println("kubenergy-gpu is started by kubenergy-agent and kubenergy benchmark:", usage)
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
			log.Fatalf("the interval %q is no time: want one as 1s", os.Args[2])
		}
		log.Fatal(nvml.Serve(os.Stdout, os.Args[1], interval))
	default:
		log.Fatal(usage)
	}
}

// work loads a board until there is no more to read.
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
