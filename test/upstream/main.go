package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

var errWrong = errors.New("tests that pass without the plugins do not pass with them")

func run(ctx context.Context, args []string, w io.Writer) error {
	flags := flag.NewFlagSet("upstream", flag.ContinueOnError)
	asked := flags.String("suites",
		"", "comma-separated suites below test/integration/scheduler and those below them; \"scheduler\" is "+
			"the package itself (default: all)")
	modes := flags.String("modes", join(enabled.Modes), "comma-separated modes")
	dir := flags.String("dir", filepath.Join("out", "upstream"), "`directory` for results, logs and binaries")
	timeout := flags.Duration("timeout", 30*time.Minute, "timeout for one run of one suite")
	if err := flags.Parse(args); err != nil {
		return err
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	t := &trial{runner: runner{dir: abs, timeout: *timeout}, out: w}
	for _, m := range split(*modes) {
		t.modes = append(t.modes, enabled.Mode(m))
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	suites, err := t.stock.suites(ctx, split(*asked))
	if err != nil {
		return err
	}
	var results []*result
	wrong := false
	for _, suite := range suites {
		judged, err := t.suite(ctx, suite)
		if err != nil {
			return err
		}
		for _, r := range judged {
			wrong = wrong || len(r.Wrong) > 0
		}
		results = append(results, judged...)
	}
	if err := printTable(w, results); err != nil {
		return err
	}
	if wrong {
		return errWrong
	}
	return nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

func join(modes []enabled.Mode) string {
	var names []string
	for _, m := range modes {
		names = append(names, string(m))
	}
	return strings.Join(names, ",")
}
