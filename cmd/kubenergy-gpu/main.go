// Command kubenergy-gpu loads one of NVIDIA's GPUs for `kubenergy benchmark`, which starts it: for each number that it
// reads, it does so many rounds of work, and writes seconds, billion operations, and the joules that the GPU has drawn
// so far (-1: not known). It needs the driver's libraries and the system's dynamic linker, so it is no part of kubenergy.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubenergy/kubenergy/benchmark/cuda"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-gpu:", err)
		os.Exit(1)
	}
}

func run() error {
	gpu, err := cuda.Open()
	if err != nil {
		return err
	}
	for {
		var rounds int
		if _, err := fmt.Scanln(&rounds); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading how many rounds: %w", err)
		}
		done, took, err := gpu.Work(rounds)
		if err != nil {
			return err
		}
		fmt.Println(took.Seconds(), done, gpu.Joules())
	}
}
