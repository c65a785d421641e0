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
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	var built compiled
	out := newPulse(os.Stdout, func() string { return filepath.Base(command.Path) + " is running" + built.String() })
	defer out.stop()
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, out, out
	if a := command.Args; filepath.Base(a[0]) == "go" && len(a) > 1 && a[1] == "build" {
		command.Args = slices.Insert(a, 2, "-v")
		built.to, command.Stderr = out, &built
	}
	return command.Run()
}

// compiled removes the package names that go build -v prints, and remembers the last one.
type compiled struct {
	to    io.Writer
	lock  sync.Mutex
	last  string
	count int
}

// Write implements [io.Writer].
func (c *compiled) Write(text []byte) (int, error) {
	for line := range bytes.Lines(text) {
		name := string(bytes.TrimSpace(line))
		if name == "" || strings.ContainsAny(name, " \t:") { // an error
			if _, err := c.to.Write(line); err != nil {
				return 0, err
			}
			continue
		}
		c.lock.Lock()
		c.last = name
		c.count++
		c.lock.Unlock()
	}
	return len(text), nil
}

func (c *compiled) String() string {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.count == 0 {
		return ""
	}
	return fmt.Sprintf(", %d packages compiled, the last is %s", c.count, c.last)
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
