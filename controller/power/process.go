package power

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/controller/signal"
	"github.com/kubenergy/kubenergy/kube"
)

// Flags are those of the process.
type Flags struct {
	Config, Keys, LogFormat string
	LogLevel                slog.Level
}

// NewFlags returns what holds where the command line says nothing, and adds a flag for each.
func NewFlags(fs *flag.FlagSet) *Flags {
	f := &Flags{}
	fs.StringVar(&f.Config, "config", "/etc/kubenergy/power/machines.yaml", "`file` with the mode, the policy and the machines")
	fs.StringVar(&f.Keys, "keys-dir", "/etc/kubenergy/power-keys", "`folder` with a file for each passwordKey")
	fs.StringVar(&f.LogFormat, "log-format", "json", "json or text")
	fs.TextVar(&f.LogLevel, "log-level", f.LogLevel, "DEBUG, INFO, WARN or ERROR")
	return f
}

// RunProcess runs as the flags say until ctx ends.
func RunProcess(ctx context.Context, api *rest.Config, f *Flags, out io.Writer) error {
	text, err := os.ReadFile(f.Config)
	if err != nil {
		return fmt.Errorf("reading machines: %w", err)
	}
	c, err := ParseConfig(text)
	if err != nil {
		return err
	}
	var handler slog.Handler = slog.NewJSONHandler(out, &slog.HandlerOptions{Level: f.LogLevel})
	if f.LogFormat == "text" {
		handler = slog.NewTextHandler(out, &slog.HandlerOptions{Level: f.LogLevel})
	}
	klog.SetLogger(logr.FromSlogHandler(handler))
	client, err := kubernetes.NewForConfig(api)
	if err != nil {
		return fmt.Errorf("building a client: %w", err)
	}
	objects, err := kube.NewObjects(api, slog.New(handler))
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading the host's name: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return objects.Run(ctx) })
	group.Go(func() error {
		return Run(ctx, Options{
			Client: client, View: objects.View, Machines: c.Machines, Policy: c.Policy.core(), Mode: c.Mode,
			Identity: fmt.Sprintf("%s_%d", host, os.Getpid()), Keys: signal.KeyFolder(f.Keys), Log: slog.New(handler),
		})
	})
	return group.Wait()
}
