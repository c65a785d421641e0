package karmada

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"k8s.io/client-go/rest"
)

// Flags are those of kubenergy-karmada.
type Flags struct{ listen, service, cert, key, upstream string }

// Add adds the flags.
func (f *Flags) Add(set *flag.FlagSet) {
	set.StringVar(&f.listen, "estimator-bind-address", ":10352", "`address` on which karmada-scheduler asks how much room a "+
		"cluster has; empty: it is not answered")
	set.StringVar(&f.service, "estimator-service", "", "host `name` under which karmada-scheduler reaches that address: a "+
		"Service karmada-scheduler-estimator-CLUSTER is made for each cluster that has none; empty: none is made")
	set.StringVar(&f.cert, "tls-cert-file", "", "`file` with the estimator's certificate; without one it answers without TLS")
	set.StringVar(&f.key, "tls-private-key-file", "", "`file` with its key")
	set.StringVar(&f.upstream, "official-estimator", "", "`address` of the official estimator of a cluster, in which "+
		"{cluster} stands for its name; empty: there is none")
}

// Options reads the flags.
func (f *Flags) Options(config *rest.Config, log *slog.Logger) (o Options, err error) {
	o = Options{Config: config, Log: log, Service: f.service}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return o, fmt.Errorf("--tls-cert-file: %w", err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if f.upstream != "" {
		o.Upstream = func(cluster string) string { return strings.ReplaceAll(f.upstream, "{cluster}", cluster) }
	}
	if f.listen != "" {
		if o.Estimator, err = net.Listen("tcp", f.listen); err != nil {
			return o, fmt.Errorf("--estimator-bind-address: %w", err)
		}
	}
	return o, nil
}
