// Command kubenergy-gpu loads one of NVIDIA's GPUs for `kubenergy benchmark`, which starts it: for each number that it
// reads, it does so many rounds of work, and writes seconds and billion operations. It needs the driver's libraries and
// the system's dynamic linker, so it is no part of kubenergy.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/kubenergy/kubenergy/benchmark/cuda"
)

func main() {
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
	if !errors.Is(err, io.EOF) {
		fmt.Fprintln(os.Stderr, "kubenergy-gpu:", err)
		os.Exit(1)
	}
}
