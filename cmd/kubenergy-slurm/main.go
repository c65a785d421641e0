// Command kubenergy-slurm delays Slurm jobs to the start time with the lowest cost and maintains the ledger of
// clusters without Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	stdsignal "os/signal"
	"syscall"
	_ "time/tzdata" // tariffs refer to time zones

	"github.com/go-logr/logr"
	_ "golang.org/x/crypto/x509roots/fallback" // scratch images have no CA certificates
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubenergy/kubenergy/internal/slurm/app"
)

func main() {
	var f app.Flags
	err, code := f.Parse(os.Args[1:], os.Stderr), 2
	if err == nil {
		ctx, stop := stdsignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		log := f.Controller.Logger(os.Stderr)
		ctrllog.SetLogger(logr.FromSlogHandler(log.Handler()))
		klog.SetLogger(logr.FromSlogHandler(log.Handler()))
		err, code = app.Run(ctx, &f, log), 1
		stop()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "kubenergy-slurm:", err)
		os.Exit(code)
	}
}
