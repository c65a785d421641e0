// Command kubenergy-lab runs a real Kubernetes control plane with simulated nodes and the KubEnergy scheduler in
// one process, and replays traces on it. If it is called through a link named kubectl, it behaves like kubectl.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/lab/kubectl"
)

func main() {
	args := os.Args[1:]
	linked := filepath.Base(os.Args[0]) == "kubectl"
	if linked {
		args = append([]string{"kubectl"}, args...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := lab.Main(ctx, args, os.Stdout, os.Stderr, kubectl.New(linked, lab.IsRunning))
	stop()
	os.Exit(code)
}
