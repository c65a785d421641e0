// Command kubenergy-controller runs the controller, which updates grid signals, profiles, policies and budgets and
// maintains the ledger.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // tariffs refer to time zones, and scratch images have no zone data

	"github.com/go-logr/logr"
	_ "golang.org/x/crypto/x509roots/fallback" // scratch images have no CA certificates
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // registers the flag --kubeconfig
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubenergy/kubenergy/internal/controller"
)

func main() {
	options := controller.NewOptions(flag.CommandLine)
	err, code := controller.Parse("kubenergy-controller", flag.CommandLine, os.Args[1:], os.Stderr), 2
	if err == nil {
		err, code = run(*options), 1
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubenergy-controller:", err)
		os.Exit(code)
	}
}

func run(options controller.Options) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: only flags are supported", flag.Arg(0))
	}
	if err := options.Validate(); err != nil {
		return err
	}
	log := options.Logger(os.Stderr)
	ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	api, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.Info("Starting", "namespace", options.Namespace, "leaderElect", options.LeaderElect, "server", api.Host)
	return controller.Run(ctx, api, options, log)
}
