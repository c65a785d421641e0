// Command kubenergy-agent meters a node: it reads energy counters, attributes every joule to pods and virtual machines,
// serves the sums as metrics and pushes them to the central unit. It needs no rights in Kubernetes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubenergy/kubenergy/agent"
)

func main() {
	options := agent.DefaultOptions()
	options.AddFlags(flag.CommandLine)
	version := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *version {
		fmt.Println(agent.Version())
		return
	}
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-agent:", err)
		os.Exit(1)
	}
}

func run(options agent.Options) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only", flag.Arg(0))
	}
	if err := options.Validate(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return agent.Run(ctx, options, options.Logger(os.Stderr))
}
