// Command kubenergy-karmada selects the cluster and the start time with the lowest cost for the workloads of a
// Karmada federation.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	stdsignal "os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // registers the flag --kubeconfig

	"github.com/kubenergy/kubenergy/internal/karmada"
)

func main() {
	var f karmada.Flags
	f.Add(flag.CommandLine)
	flag.Parse()
	if err := start(&f); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-karmada:", err)
		os.Exit(1)
	}
}

func start(f *karmada.Flags) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are supported", flag.Arg(0))
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	api, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("loading the kubeconfig of Karmada, set --kubeconfig or KUBECONFIG: %w", err)
	}
	ctx, stop := stdsignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, f, api, log)
}
