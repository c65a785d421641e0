// Command kubenergy-power puts unused machines to sleep and wakes them up when they are needed.
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
	_ "golang.org/x/crypto/x509roots/fallback" // scratch images have no CA certificates
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client/config" // registers the flag --kubeconfig

	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/power"
)

func main() {
	file := flag.String("config", "/etc/kubenergy/power/machines.yaml",
		"`file` with the mode, the policy and the list of machines")
	keys := flag.String("keys-dir", power.KeysDir, "`directory` with one file for each passwordKey")
	record := flag.String("record", "", "`file` to append decisions and their input to, as one line of JSON "+
		"for each\ndecision that differs from the previous one; - is standard output")
	probes := flag.String("health-probe-bind-address", ":8081", "`address` to serve /healthz on (0 to disable)")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	klog.SetLogger(logr.FromSlogHandler(log.Handler()))
	if err := run(*file, *record, *probes, signal.KeyFolder(*keys), log); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-power:", err)
		os.Exit(1)
	}
}

func run(file, record, probes string, keys signal.KeyFolder, log *slog.Logger) error {
	o, err := power.Configured(file, record, probes, log)
	api, errAPI := config.GetConfig()
	if err = errors.Join(err, errAPI); err != nil {
		return err
	}
	objects, err := kube.NewObjects(api, log)
	if err != nil {
		return err
	}
	o.View, o.Keys, o.Client = objects.View, keys, kubernetes.NewForConfigOrDie(api)
	ctx, stop := stdsignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The view is empty until the caches are synced. No machine is put to sleep with an empty view.
	go func() { _ = objects.Run(o.Beats.Loop(ctx, "objects")) }()
	return power.Run(ctx, o)
}
