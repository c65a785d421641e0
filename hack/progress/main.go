// Program progress runs slow commands of the Makefile and prints their progress every few seconds.
//
//	progress run COMMAND ARGUMENT...   runs a command and prints the elapsed time after five seconds without output
//	progress test ARGUMENT...          runs go test, prints one line per package and the output of failed tests, and
//	                                   with -shuffle also the seed of the test order
//	progress skipped                   prints the tests that were skipped by previous runs, by reason, and clears them
//
// The exit code is the exit code of the command. Skipped tests are stored in out/skipped.txt until they are
// printed.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// silence is the time without output after which the program prints that the command is still running.
const silence = 5 * time.Second

var skippedFile = filepath.Join("out", "skipped.txt")

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: progress run COMMAND..., progress test ARGUMENT..., or progress skipped")
		os.Exit(2)
	}
	var err error
	switch verb, arguments := os.Args[1], os.Args[2:]; {
	case verb == "run" && len(arguments) > 0:
		err = run(exec.Command(arguments[0], arguments[1:]...))
	case verb == "test":
		err = test(arguments)
	case verb == "skipped":
		err = printSkipped(os.Stdout, skippedFile)
	default:
		err = fmt.Errorf("invalid arguments of progress %s: want run COMMAND..., test ARGUMENT... or skipped", verb)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(command *exec.Cmd) error {
	out := newPulse(os.Stdout, func() string { return filepath.Base(command.Path) + " is running" })
	defer out.stop()
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, out, out
	return command.Run()
}

// A pulse is a writer that adds a line with the elapsed time after each period of silence.
type pulse struct {
	lock        sync.Mutex
	to          io.Writer
	description func() string
	started     time.Time
	timer       *time.Timer
	partial     bool // the last write did not end with a newline
}

func newPulse(to io.Writer, description func() string) *pulse {
	p := &pulse{to: to, description: description, started: time.Now()}
	p.timer = time.AfterFunc(silence, p.beat)
	return p
}

func (p *pulse) beat() {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.partial {
		fmt.Fprintln(p.to)
		p.partial = false
	}
	fmt.Fprintf(p.to, "   %3.0f s: %s\n", time.Since(p.started).Seconds(), p.description())
	p.timer.Reset(silence)
}

// Write implements [io.Writer].
func (p *pulse) Write(text []byte) (int, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.timer.Reset(silence)
	p.partial = len(text) > 0 && text[len(text)-1] != '\n'
	return p.to.Write(text)
}

func (p *pulse) stop() { p.timer.Stop() }
