package karmada

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/daemon"
)

// Limits of open connections. karmada-scheduler opens a connection for each cluster.
const (
	maxEstimates, maxEstimatesPerPeer = 2048, 1024
	maxScrapes, maxScrapesPerPeer     = 512, 32
)

// Flags contains the flags of kubenergy-karmada.
type Flags struct {
	listen, cert, key, clientCA, upstream, metrics string
	anonymous                                      bool
	moves                                          float64
	Records                                        apiclient.Options // the federation's controller
}

// Add adds the flags to a flag set.
func (f *Flags) Add(set *flag.FlagSet) {
	set.StringVar(&f.listen, "estimator-bind-address", ":10352", "`address` of the estimator for karmada-scheduler; "+
		"empty disables it")
	set.StringVar(&f.metrics, "metrics-bind-address", ":8080", "`address` on which /metrics and /healthz are served, "+
		"without TLS; empty disables them")
	set.StringVar(&f.cert, "tls-cert-file", "", "`file` with the certificate of the estimator; if empty, it is served "+
		"without TLS")
	set.StringVar(&f.key, "tls-private-key-file", "", "`file` with the private key of the certificate")
	set.StringVar(&f.clientCA, "estimator-client-ca-file", "", "`file` with CA certificates; clients of the estimator "+
		"need a certificate signed by one of them; required unless it listens on a loopback address")
	set.BoolVar(&f.anonymous, "estimator-allow-anonymous", false, "allow estimator clients without a certificate; "+
		"any client can then read the free capacity of each cluster and send requests without limits")
	set.StringVar(&f.upstream, "official-estimator", "", "`address` of the official estimator of a cluster with "+
		"{cluster} as a placeholder for its name; empty if there is none")
	set.Float64Var(&f.moves, "moves-per-hour", 60, "maximum `number` of running Jobs with the label "+
		"kubenergy.io/interruptible=true that are moved to another cluster per hour; 0 disables moves")
	set.StringVar(&f.Records.URL, "kubenergy-record-url", "", "`URL` of the federation's controller that decisions "+
		"are sent to, with their input; empty disables it")
	set.StringVar(&f.Records.TokenFile, "kubenergy-record-token-file", "", "`file` with the token for that controller")
	set.StringVar(&f.Records.CAFile, "kubenergy-record-ca-file", "", "`file` with CA certificates for that controller")
}

// Options validates the flags and returns the options of a Driver. It opens the listeners and reads the
// certificates.
func (f *Flags) Options(config *rest.Config, log *slog.Logger) (o Options, err error) {
	o = Options{Config: config, Log: log, Clock: time.Now, Moves: f.moves, Upstream: f.upstream}
	if f.moves < 0 {
		return o, errors.New("--moves-per-hour: want a non-negative number")
	}
	if f.upstream != "" && !strings.Contains(f.upstream, "{cluster}") {
		return o, fmt.Errorf("--official-estimator is %q: want {cluster} as a placeholder for the cluster name, e.g. "+
			"karmada-scheduler-estimator-{cluster}:10352", f.upstream)
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return o, fmt.Errorf("--tls-cert-file: %w", err)
		}
		o.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	if f.clientCA != "" {
		pool, err := certutil.NewPool(f.clientCA)
		if err != nil {
			return o, fmt.Errorf("--estimator-client-ca-file: %w", err)
		}
		if o.TLS == nil {
			return o, errors.New("--estimator-client-ca-file requires --tls-cert-file and --tls-private-key-file")
		}
		o.TLS.ClientCAs, o.TLS.ClientAuth = pool, tls.RequireAndVerifyClientCert
	}
	if f.listen != "" {
		if f.clientCA == "" && !f.anonymous && !daemon.Loopback(f.listen) {
			return o, fmt.Errorf("--estimator-bind-address is %q without --estimator-client-ca-file, so any client "+
				"could query it: set that flag, listen on loopback, or set --estimator-allow-anonymous", f.listen)
		}
		if o.Estimator, err = daemon.Listen(f.listen, maxEstimates, maxEstimatesPerPeer); err != nil {
			return o, fmt.Errorf("--estimator-bind-address: %w", err)
		}
	}
	if f.metrics != "" {
		if o.Metrics, err = daemon.Listen(f.metrics, maxScrapes, maxScrapesPerPeer); err != nil {
			return o, fmt.Errorf("--metrics-bind-address: %w", err)
		}
	}
	return o, nil
}
