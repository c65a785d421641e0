// Command images builds the container images of KubEnergy from source, without a container daemon. It builds one
// image from scratch for each binary, with all of its architectures. It must be run in the root of the repository.
// See `make images`.
//
// It writes OCI layouts as tar archives and lists their digests. The digests depend only on the source: the same
// commit built with the same version of Go produces the same digests.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	out := flag.String("out", "out/images", "output `directory` for the archives")
	arches := flag.String("arch", "",
		"architectures, such as amd64,arm/v7 (default: amd64 and arm64, and also arm/v7 for the agent)")
	names := flag.String("images", "kubenergy,kubenergy-scheduler,kubenergy-controller,kubenergy-karmada,"+
		"kubenergy-power,kubenergy-agent,kubenergy-gpu", "comma-separated names of commands in cmd")
	registry := flag.String("registry", "", "registry and path to use in the names of the images")
	tag := flag.String("tag", "", "tag (default: the appVersion of the chart)")
	ldflags := flag.String("ldflags", "", "additional flags of the linker")
	flag.Parse()
	if err := run(ctx, *out, list(*names), list(*arches),
		source{registry: *registry, tag: *tag, ldflags: *ldflags}); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
