// Command kubenergy-agent measures the energy of a node. It reads energy counters, attributes the energy to pods
// and virtual machines, serves the results as metrics and pushes them to the controller. It needs no permissions in
// Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubenergy/kubenergy/internal/agent"
)

func main() {
	options := agent.DefaultOptions()
	flags := flag.NewFlagSet("kubenergy-agent", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed without the list of flags
	options.AddFlags(flags)
	version := flags.Bool("version", false, "print the version and exit")
	err := flags.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("kubenergy-agent measures the energy of this node. See docs/reference/agent.md. Flags:")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
	case err == nil && *version:
		fmt.Println(agent.Version())
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: only flags are supported", flags.Arg(0))
		fallthrough
	case err != nil:
		exit(fmt.Errorf("%w (see --help)", err), 2)
	default:
		if err := options.Validate(); err != nil {
			exit(err, 2)
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := agent.Run(ctx, options, options.Logger(os.Stderr)); err != nil {
			exit(err, 1)
		}
	}
}

// exit prints an error and exits. Code 2 indicates errors that a restart cannot fix.
func exit(err error, code int) {
	fmt.Fprintln(os.Stderr, "kubenergy-agent:", err)
	os.Exit(code)
}
