package cmdutil

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// Progress reports the progress of a long-running command on standard error. It starts after two seconds and prints
// a progress bar on a terminal, and a line every ten seconds otherwise.
type Progress struct {
	out             io.Writer
	command, things string
	bar             bool
	now             func() time.Time
	begun           time.Time
	stop            func()

	mu        sync.Mutex
	current   []string // additional long-running tasks, oldest first
	done, all int
	first     time.Time // time of the first update
	before    int       // number of things done before the first update
	last      time.Time // time of the last output
}

// SilentFor is the delay of the first output. Tests change it, because their expected output contains no progress.
var SilentFor = 2 * time.Second

const (
	linesEvery = 10 * time.Second
	barEvery   = 200 * time.Millisecond
)

// Progress starts reporting the progress of a command that processes a number of things.
func (t Terminal) Progress(command, things string) *Progress {
	p := &Progress{
		out: t.Err, command: command, things: things, bar: IsTerminal(t.Err), now: t.Now, begun: t.Now(),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for kube.Pause(ctx, barEvery) {
			p.Show()
		}
	})
	p.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		if p.bar && !p.last.IsZero() {
			p.Show()
			p.Say("\n")
		}
	})
	return p
}

// Close stops the report. It may be called more than once.
func (p *Progress) Close() { p.stop() }

// Say writes a message to the same writer.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

// Update sets the number of things that are done and the total.
func (p *Progress) Update(done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first, p.before = p.now(), done
	}
	p.done, p.all = max(p.done, done), all
}

// Doing registers a long-running task until the returned function is called.
func (p *Progress) Doing(what string) (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = append(p.current, what)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.Index(p.current, what); i >= 0 {
			p.current = slices.Delete(p.current, i, i+1)
		}
	}
}

// Show prints the progress if it is due.
func (p *Progress) Show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if now.Sub(p.begun) < SilentFor || !p.bar && !p.last.IsZero() && now.Sub(p.last) < linesEvery {
		return
	}
	p.last = now
	line := p.command + ": " + p.state(now) + "\n"
	if p.bar {
		const width = 30
		full := width * p.done / max(1, p.all)
		line = "\r[" + strings.Repeat("█", full) + strings.Repeat("·", width-full) + "] " + p.state(now) + "\x1b[K"
	}
	_, _ = io.WriteString(p.out, line) // best effort
}

// state returns the progress, the remaining time and the current task as text.
func (p *Progress) state(now time.Time) string {
	var parts []string
	if p.all > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d %s", p.done, p.all, p.things))
	}
	if here := p.done - p.before; here > 0 && p.done < p.all {
		left := time.Duration(float64(now.Sub(p.first)) / float64(here) * float64(p.all-p.done))
		parts = append(parts, fmt.Sprintf("%v remaining", left.Round(time.Second)))
	}
	if len(p.current) > 0 {
		parts = append(parts, p.current[0])
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("no %s done yet", p.things))
	}
	return strings.Join(parts, ", ")
}
