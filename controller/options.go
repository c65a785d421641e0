package controller

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/kube"
)

// Options are what the command line says.
type Options struct {
	Namespace      string // of the Lease and of the count of calls
	MetricsAddress string // HTTPS, for whoever the API server allows to get /metrics; "0": nowhere
	ProbeAddress   string // HTTP: /healthz and /readyz; "0": nowhere
	LeaderElect    bool
	Keys           string // folder of key files
	Data           string // folder of files that GridZones name
	LogFormat      string // json or text
	LogLevel       slog.Level
}

// DefaultOptions returns what holds where the command line says nothing.
func DefaultOptions() Options {
	return Options{
		Namespace: cmp.Or(os.Getenv("POD_NAMESPACE"), kube.Namespace), MetricsAddress: ":8443", ProbeAddress: ":8081", LeaderElect: true,
		Keys: "/etc/kubenergy/keys", Data: "/etc/kubenergy/data", LogFormat: "json",
	}
}

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "`namespace` of the Lease and of the count of calls to providers")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress, "`address` of /metrics, over HTTPS, for clients that the API server lets get it (0: none)")
	fs.StringVar(&o.ProbeAddress, "health-probe-bind-address", o.ProbeAddress, "`address` of /healthz and /readyz (0: none)")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "let one of several replicas ask providers and write statuses")
	fs.StringVar(&o.Keys, "keys-dir", o.Keys, "`folder` with a file for each key that a GridZone names")
	fs.StringVar(&o.Data, "data-dir", o.Data, "`folder` of the files that GridZones name")
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "json or text")
	fs.TextVar(&o.LogLevel, "log-level", o.LogLevel, "DEBUG, INFO, WARN or ERROR")
}

// Validate reports everything that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if why := validation.IsDNS1123Label(o.Namespace); len(why) > 0 {
		errs = append(errs, fmt.Errorf("--namespace is %q: %s", o.Namespace, why[0]))
	}
	for name, address := range map[string]string{"metrics-bind-address": o.MetricsAddress, "health-probe-bind-address": o.ProbeAddress} {
		if address == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("--%s is %q: want host:port, :port or 0", name, address))
		}
	}
	if o.LogFormat != "json" && o.LogFormat != "text" {
		errs = append(errs, fmt.Errorf("--log-format is %q: want json or text", o.LogFormat))
	}
	return errors.Join(errs...)
}

// Logger returns a logger that writes to w as the options say.
func (o *Options) Logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: o.LogLevel}
	if o.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
