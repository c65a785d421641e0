package cmdutil

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Progress tells on standard error what a long command does, once it has taken two seconds: on a terminal by a bar,
// elsewhere by a line every ten seconds.
type Progress struct {
	out             io.Writer
	command, things string
	bar             bool
	now             func() time.Time
	begun           time.Time
	stop            func()

	mu        sync.Mutex
	current   []string // what takes long besides things, the oldest first
	done, all int
	first     time.Time // when the first thing was done here
	before    int       // things that were done before
	last      time.Time // when it was told
}

// SilentFor is a variable for tests, whose scripts have no progress in their expected output.
var SilentFor = 2 * time.Second

const (
	linesEvery = 10 * time.Second
	barEvery   = 200 * time.Millisecond
)

// Progress begins to tell of a command and of how many of some things it has done.
func (t Terminal) Progress(command, things string) *Progress {
	p := &Progress{
		out: t.Err, command: command, things: things, bar: IsTerminal(t.Err), now: t.Now, begun: t.Now(),
	}
	ticks, ended := time.NewTicker(barEvery), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-ended:
				return
			case <-ticks.C:
				p.Show()
			}
		}
	})
	p.stop = sync.OnceFunc(func() {
		ticks.Stop()
		close(ended)
		all.Wait()
		if p.bar && !p.last.IsZero() {
			p.Show()
			p.Say("\n")
		}
	})
	return p
}

// Close ends the telling. It may be called more than once.
func (p *Progress) Close() { p.stop() }

// Say writes a message beside what Show writes.
func (p *Progress) Say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, format, args...)
}

// Update is called after each thing.
func (p *Progress) Update(done, all int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first.IsZero() {
		p.first, p.before = p.now(), done
	}
	p.done, p.all = max(p.done, done), all
}

// Doing says what takes long, until the function that it returns is called.
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

// Show tells how far it is, if it is time to.
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
	_, _ = io.WriteString(p.out, line) // which may be lost
}

// state says what is done, what is left and what is being done besides.
func (p *Progress) state(now time.Time) string {
	var parts []string
	if p.all > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d %s", p.done, p.all, p.things))
	}
	if here := p.done - p.before; here > 0 && p.done < p.all {
		left := time.Duration(float64(now.Sub(p.first)) / float64(here) * float64(p.all-p.done))
		parts = append(parts, fmt.Sprintf("%v left", left.Round(time.Second)))
	}
	if len(p.current) > 0 {
		parts = append(parts, p.current[0])
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("no %s done yet", p.things))
	}
	return strings.Join(parts, ", ")
}
