// Command kubenergy-lab runs a real Kubernetes control plane with simulated nodes and KubEnergy's scheduler in one
// process, and replays traces on it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kubenergy/kubenergy/lab"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := lab.Main(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
