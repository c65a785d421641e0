// Command kubenergy-karmada has Karmada send work to the cluster where it costs least.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	stdsignal "os/signal"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // with the flag --kubeconfig

	"github.com/kubenergy/kubenergy/karmada"
	"github.com/kubenergy/kubenergy/kube"
)

func main() {
	var f karmada.Flags
	f.Add(flag.CommandLine)
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	if err := run(&f, log); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-karmada:", err)
		os.Exit(1)
	}
}

func run(f *karmada.Flags, log *slog.Logger) error {
	api, err := config.GetConfig()
	if err != nil {
		return err
	}
	objects, errObjects := kube.NewObjects(api, log)
	o, recorder, errFlags := f.Options(api, log)
	if err := errors.Join(errObjects, errFlags); err != nil {
		return err
	}
	o.View = objects.View
	ctx, stop := stdsignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() { _ = objects.Run(ctx) }() // what it knows at first is nothing: Karmada decides alone
	var recording sync.WaitGroup
	recording.Go(func() { _ = recorder.Run(ctx) })
	defer recording.Wait()
	return karmada.Run(ctx, o)
}
