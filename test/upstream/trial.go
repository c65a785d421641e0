package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// A trial runs suites with and without the KubEnergy plugins.
type trial struct {
	runner
	stock, ours *sources
	modes       []enabled.Mode
	out         io.Writer // receives the progress
}

func (t *trial) prepare(ctx context.Context) (err error) {
	for _, m := range t.modes {
		if !slices.Contains(enabled.Modes, m) {
			return fmt.Errorf("no mode %q, want some of %q", m, enabled.Modes)
		}
	}
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	if t.stock, err = published(ctx); err != nil {
		return err
	}
	t.ours, err = t.stock.grafted(ctx, t.dir)
	return err
}

// suite runs one suite without the plugins and then with the plugins in every mode. It returns one result for each
// mode.
func (t *trial) suite(ctx context.Context, suite string) ([]*result, error) {
	name := strings.ReplaceAll(suite, "/", "-")
	stock := &binary{suite: suite, path: filepath.Join(t.dir, name+".stock.test"), dir: t.stock.directory(suite)}
	ours := binary{suite: suite, path: filepath.Join(t.dir, name+".ours.test"), dir: stock.dir}
	// The binaries have several hundred megabytes. Linking them again takes half a minute.
	defer os.Remove(stock.path)
	defer os.Remove(ours.path)
	for _, b := range []struct {
		from *sources
		path string
	}{{t.stock, stock.path}, {t.ours, ours.path}} {
		began := time.Now()
		if err := b.from.compile(ctx, suite, b.path); err != nil {
			return nil, err
		}
		t.say("%s: built %s in %v", suite, filepath.Base(b.path), time.Since(began).Round(time.Second))
	}
	first, err := t.all(ctx, stock)
	if err != nil {
		return nil, err
	}
	var results []*result
	for _, mode := range t.modes {
		b := ours
		b.mode = mode
		r, err := t.mode(ctx, stock, &b, first)
		if err != nil {
			return nil, err
		}
		results = append(results, r)
		for _, w := range r.Wrong {
			t.say("%s, %s: %s", suite, mode, w)
		}
		if err := r.write(t.dir); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// all runs all tests of a binary.
func (t *trial) all(ctx context.Context, b *binary) (*observed, error) {
	if err := os.Remove(t.logFile(b)); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	o, err := t.run(ctx, b, whole)
	if err != nil {
		return nil, err
	}
	again := ""
	if o.again > 0 {
		again = fmt.Sprintf(" after %d runs in which the API server did not start", o.again)
	}
	t.say("%s, %s: %s passed/failed/skipped in %v%s", b.suite, b.variant(), count(o.outcomes),
		o.took.Round(time.Second), again)
	return o, nil
}

// mode runs the tests with the plugins in one mode and compares them with the first run.
func (t *trial) mode(ctx context.Context, stock, ours *binary, first *observed) (*result, error) {
	mine, err := t.all(ctx, ours)
	if err != nil {
		return nil, err
	}
	r := &result{
		Suite: ours.suite, Mode: ours.mode, Kubernetes: t.stock.version, Counts: mine.Counts,
		Stock: count(first.outcomes), Ours: count(mine.outcomes), StockTook: first.took.Seconds(),
		OursTook: mine.took.Seconds(),
		StockCPU: first.cpu.Seconds(), OursCPU: mine.cpu.Seconds(), Again: first.again + mine.again,
	}
	found := suspects(first.outcomes, mine.outcomes)
	for _, test := range found {
		s := suspect{Test: test, Stock: []outcome{first.outcomes[test]}, Ours: []outcome{mine.outcomes[test]}}
		if _, known := excuse(ours.suite, ours.mode, test); !known && len(found) <= maxSuspects {
			if err := t.again(ctx, &s, stock, ours); err != nil {
				return nil, err
			}
		}
		s.judge(ours.suite, ours.mode)
		t.say("%s, %s: %s: stock %v, ours %v: %s", ours.suite, ours.mode, describe(test), s.Stock, s.Ours, s.Verdict)
		r.Suspects = append(r.Suspects, s)
	}
	r.settle()
	return r, nil
}

// again repeats a suspect test alternately without and with the plugins.
func (t *trial) again(ctx context.Context, s *suspect, stock, ours *binary) error {
	for range reruns {
		a, err := t.run(ctx, stock, s.Test)
		if err != nil {
			return err
		}
		b, err := t.run(ctx, ours, s.Test)
		if err != nil {
			return err
		}
		s.Stock, s.Ours = append(s.Stock, a.outcomes[s.Test]), append(s.Ours, b.outcomes[s.Test])
	}
	return nil
}

func (t *trial) say(format string, args ...any) {
	fmt.Fprintf(t.out, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
