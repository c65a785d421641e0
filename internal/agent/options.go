package agent

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// Options are the options of the agent's command line.
type Options struct {
	Node     string
	Interval time.Duration     // of ticks; 0 defaults to 1 s, or 500 ms if VMs are enabled
	StateDir string            // if empty, no state is persisted
	Idle     energy.IdlePolicy // distribution of idle energy

	Host   host.Options
	Meters meter.Config

	Listen    string // address of /metrics, /healthz and /forward-metrics; "0" disables the server
	WebConfig string // TLS and authentication settings of Listen
	// MetricsTokenFile contains the bearer token required of scrapers. If empty, no token is required.
	MetricsTokenFile string
	MaxConsumers     int // maximum number of consumers in /metrics
	BatchInterval    time.Duration
	Push             delivery.PushOptions // if the URL is empty, batches are not pushed

	GuestsDir string // directory for the counters of virtual machines

	daemon.Logging
}

// DefaultOptions returns the default options.
func DefaultOptions() Options {
	name := os.Getenv("NODE_NAME")
	if name == "" {
		name, _ = os.Hostname()
	}
	return Options{
		Node: name, Idle: energy.IdleByRequests,
		Host:   host.Options{Root: "/sys/fs/cgroup", Proc: "/proc", Max: 5000},
		Meters: meter.DefaultConfig(),
		Listen: ":2112", MaxConsumers: 2000, BatchInterval: 15 * time.Second,
		GuestsDir: "/run/kubenergy/guests", Logging: daemon.Logging{LogFormat: "json"},
	}
}

// AddFlags adds a flag for each option to fs.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Node, "node-name", o.Node,
		"`name` of this node in all reports (default: $NODE_NAME, or the host name)")
	fs.DurationVar(&o.Interval, "interval", o.Interval,
		"interval at which meters and control groups are read (default 1s, 500ms with --vms)")
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir,
		"`folder` for persistent state: the open batch, unacknowledged batches and the last values of counters")
	fs.TextVar(&o.Idle, "idle", o.Idle,
		"distribution of idle energy: apart (no consumer), requests (pods by requested CPU) or equal (all pods)")

	fs.StringVar(&o.Host.Root, "cgroup-root", o.Host.Root, "`folder` where control groups (v1 or v2) are mounted")
	fs.StringVar(&o.Host.Proc, "proc-root", o.Host.Proc, "`folder` where procfs is mounted")
	fs.Func("cgroup", "`glob` of additional control groups to meter, relative to the cgroup root; may be repeated",
		meter.AppendTo(&o.Host.Groups))
	fs.BoolVar(&o.Host.VMs, "vms", o.Host.VMs, "find QEMU virtual machines and publish their counters")
	fs.StringVar(&o.GuestsDir, "guests-dir", o.GuestsDir, "`folder` for the published counters of virtual machines")

	o.Meters.AddFlags(fs)

	fs.StringVar(&o.Listen, "listen", o.Listen, "`address` of /metrics, /healthz and /forward-metrics (0 to disable)")
	fs.StringVar(&o.WebConfig, "web-config", o.WebConfig,
		"`file` with TLS and authentication settings of --listen, in the format of the Prometheus exporter toolkit")
	fs.StringVar(&o.MetricsTokenFile, "metrics-token-file", o.MetricsTokenFile,
		"`file` with the bearer token required by --listen (default: none)")
	fs.IntVar(&o.MaxConsumers, "max-consumers", o.MaxConsumers,
		"maximum number of consumers with their own series in /metrics")
	fs.DurationVar(&o.BatchInterval, "batch-interval", o.BatchInterval, "period covered by a pushed batch")
	fs.StringVar(&o.Push.URL, "push-url", o.Push.URL, "`URL` to push batches to (default: batches are not pushed)")
	fs.StringVar(&o.Push.TokenFile, "push-token-file", o.Push.TokenFile,
		"`file` with the bearer token for --push-url; read for every batch")
	fs.StringVar(&o.Push.CAFile, "push-ca-file", o.Push.CAFile, "`file` with the CA certificates for --push-url")
	fs.StringVar(&o.Push.CertFile, "push-cert-file", o.Push.CertFile, "`file` with a client certificate for --push-url")
	fs.StringVar(&o.Push.KeyFile, "push-key-file", o.Push.KeyFile, "`file` with the key of --push-cert-file")

	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "json or text")
	fs.TextVar(&o.LogLevel, "log-level", o.LogLevel, "DEBUG, INFO, WARN or ERROR")
}

// Intervals below the update interval of the fastest meter yield only noise; long intervals miss short-lived
// containers and counter wraparounds.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Minute
)

// Validate returns an error that lists all invalid options.
func (o Options) Validate() error {
	o = o.complete()
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	bad(o.Interval < minInterval || o.Interval > maxInterval, "--interval is %v: want %v to %v", o.Interval,
		minInterval, maxInterval)
	bad(o.BatchInterval < o.Interval || o.BatchInterval > time.Hour,
		"--batch-interval is %v: want the interval (%v) to 1h", o.BatchInterval, o.Interval)
	bad(!nodeName.MatchString(o.Node),
		"--node-name is %q: want at most 253 printable ASCII characters without spaces and slashes", o.Node)
	bad(o.MaxConsumers < 1, "--max-consumers is %d: want at least 1", o.MaxConsumers)
	_, _, err := net.SplitHostPort(o.Listen)
	bad(err != nil && o.Listen != "0", "--listen is %q: want host:port, :port or 0", o.Listen)
	bad(o.Push.URL != "" && !meter.IsURL(o.Push.URL), "--push-url is %q: want http://… or https://…", o.Push.URL)
	bad((o.Push.CertFile == "") != (o.Push.KeyFile == ""), "--push-cert-file and --push-key-file must be set together")
	return errors.Join(errors.Join(errs...), o.Logging.Validate(), o.Meters.Validate())
}

// nodeName matches names without spaces and slashes.
var nodeName = regexp.MustCompile(`^[!-.0-~]{1,253}$`)

// complete sets options that are derived from other options.
func (o Options) complete() Options {
	if o.Interval == 0 {
		o.Interval = time.Second
		if o.Host.VMs {
			o.Interval = guests.Cadence
		}
	}
	o.Meters.Interval = o.Interval
	return o
}
