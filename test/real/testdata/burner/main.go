// Burner is the only program in the images of tests with real pods. It burns CPU or, when used as the pause
// container, waits. Its arguments are the number of busy loops and their duration, which is unlimited by default.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

func main() {
	loops := 0
	if len(os.Args) > 1 {
		loops, _ = strconv.Atoi(os.Args[1])
	}
	if loops > 0 {
		runtime.GOMAXPROCS(loops + 1) // the default follows the CPU limit, which the loops have to reach
	}
	for range loops {
		go burn()
	}
	var over <-chan time.Time
	if len(os.Args) > 2 {
		length, err := time.ParseDuration(os.Args[2])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		over = time.After(length)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	select {
	case by := <-stop:
		fmt.Println("stopped by", by)
	case <-over:
	}
}

func burn() {
	for x := uint64(1); ; x = x*6364136223846793005 + 1442695040888963407 {
		if x == 0 { // never happens because the period is 2^64
			fmt.Println(x)
		}
	}
}
