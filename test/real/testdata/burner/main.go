// Burner is all that stands in the images of tests with real pods: it burns CPU, or it waits, as the container that
// holds a pod's namespaces does. It takes how many loops burn, and for how long; for ever, if that is not said.
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
		runtime.GOMAXPROCS(loops + 1) // by itself it would follow the limit, and the limit is what is to be reached
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
		if x == 0 { // never: the period is 2^64
			fmt.Println(x)
		}
	}
}
