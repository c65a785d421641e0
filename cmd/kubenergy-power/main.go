// Command kubenergy-power sends machines to sleep that nothing needs, and wakes them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	_ "golang.org/x/crypto/x509roots/fallback"         // an image from scratch has no certificate authorities
	"sigs.k8s.io/controller-runtime/pkg/client/config" // with the flag --kubeconfig

	"github.com/kubenergy/kubenergy/controller/power"
)

func main() {
	options := power.NewFlags(flag.CommandLine)
	flag.Parse()
	if err := run(options); err != nil {
		fmt.Fprintln(os.Stderr, "kubenergy-power:", err)
		os.Exit(1)
	}
}

func run(f *power.Flags) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only", flag.Arg(0))
	}
	api, err := config.GetConfig()
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return power.RunProcess(ctx, api, f, os.Stderr)
}
