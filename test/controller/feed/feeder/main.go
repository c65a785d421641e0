// Feeder is an agent with simulated meters and a simulated host. It queues, stores and delivers the usage that
// package feed generates, using the code of the real agent. Tests kill it at arbitrary points. When the file FINISH
// exists, it stops generating usage, delivers the remaining batches and prints the number of steps.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/controller/feed"
)

type options struct {
	node, boot, state, finish string
	step, every               time.Duration
	push                      delivery.PushOptions
}

func main() {
	var o options
	flag.StringVar(&o.node, "node", "", "`name` of the node")
	flag.StringVar(&o.boot, "boot", "boot", "boot `ID` of the kernel")
	flag.StringVar(&o.state, "state", "", "state `directory`")
	flag.StringVar(&o.finish, "finish", "", "`file` that stops the generation of usage if it exists")
	flag.DurationVar(&o.step, "step", 5*time.Millisecond, "approximate `interval` between steps")
	flag.DurationVar(&o.every, "every", 60*time.Millisecond, "`interval` between batches")
	flag.StringVar(&o.push.URL, "url", "", "`URL` of the controller")
	flag.StringVar(&o.push.CAFile, "ca", "", "`file`")
	flag.StringVar(&o.push.TokenFile, "token", "", "`file`")
	flag.Parse()
	steps, err := run(&o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(steps)
}

func run(o *options) (steps uint64, err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	queue, err := delivery.OpenQueue(delivery.QueueOptions{Dir: o.state, Node: o.node, Boot: o.boot}, log)
	if err != nil {
		return 0, err
	}
	defer queue.Close()
	state, err := feed.ReadState(queue.State())
	if err != nil {
		return 0, err
	}
	o.push.Interval, o.push.Timeout = time.Hour, 5*time.Second // batches are sealed below
	pusher, err := delivery.NewPusher(o.push, queue, log)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go pusher.Run(ctx)
	pushing := make(chan struct{})
	go func() {
		defer close(pushing)
		for ctx.Err() == nil {
			_ = pusher.Push(ctx) // failures are retried without backoff
			time.Sleep(o.every)
		}
	}()
	for !finished(o.finish) {
		if err := step(o, queue, &state); err != nil {
			return 0, err
		}
		time.Sleep(o.step/2 + rand.N(o.step))
	}
	for queue.Seal(); queue.Stats().Pending > 0; time.Sleep(time.Millisecond) {
		queue.Seal()
	}
	cancel()
	<-pushing
	return state.Steps, nil
}

// step adds a step to the queue and saves it together with the new state.
func step(o *options, queue *delivery.Queue, state *feed.State) error {
	now, err := sinceBoot()
	if err != nil {
		return err
	}
	if state.At > 0 {
		a := feed.Step(o.node, state.Steps)
		a.Start, a.End, a.Quality = state.At, now, energy.Measured
		if err := queue.Add(a, delivery.Meta{
			Wall: time.Now(), Source: "package (simulated)", IdlePolicy: "requests",
		}); err != nil {
			return err
		}
		state.Steps++
	}
	state.At = now
	return queue.Save(state.Append(nil))
}

func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}

func finished(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, os.ErrNotExist)
}
