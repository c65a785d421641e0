// Command kubenergy-karmada has Karmada send work to the cluster where it costs least, when it costs least.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	stdsignal "os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // with the flag --kubeconfig

	"github.com/kubenergy/kubenergy/karmada"
)

func main() {
	var f karmada.Flags
	f.Add(flag.CommandLine)
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	ctx, stop := stdsignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	api, err := config.GetConfig()
	if err == nil {
		err = run(ctx, &f, api, log)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-karmada:", err)
		os.Exit(1)
	}
}

// run runs all parts until ctx or one of them ends.
func run(ctx context.Context, f *karmada.Flags, api *rest.Config, log *slog.Logger) error {
	parts, err := newParts(f, api, log)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ended <- part(ctx) }()
	}
	for range parts {
		err = errors.Join(err, <-ended)
		stop()
	}
	return err
}
