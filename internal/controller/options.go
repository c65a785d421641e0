package controller

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/forward"
	"github.com/kubenergy/kubenergy/internal/controller/relay"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const day = 24 * time.Hour

// Options are the settings of the command line.
type Options struct {
	Namespace      string // namespace of the Lease and of the ConfigMap with calls to providers
	AgentNamespace string // namespace of the agents; defaults to Namespace
	MetricsAddress string // HTTPS, for clients that may get /metrics; "0" disables it
	ProbeAddress   string // HTTP, for /healthz and /readyz; "0" disables it
	LeaderElect    bool
	Keys           string // directory of the key files of signals
	MeterKeys      string // directory of the key files of meters
	Data           string // directory of the files that GridZones refer to

	// State is the directory of the ledger and of the certificate of the API. If it is empty, neither is stored.
	// Without LedgerDSN no batches are accepted then.
	State string
	// LedgerDSN is the data source name of a PostgreSQL ledger. If it is empty, an SQLite ledger in State is used.
	// It is read from the environment, because other users can read command lines.
	LedgerDSN    string
	API          string // HTTPS address of the API; "0" disables it
	APICert      string // certificate file; if empty, the controller creates a certificate
	APICA        string // CA file for the certificates of other replicas if they were provided
	APIKey       string
	APINames     []string // further names in the certificate of the controller
	CSV          string   // directory for raw metrics and decisions as CSV; disabled if empty
	HostTokens   string   // file with the tokens of agents outside the cluster; optional
	Cluster      string   // name of this cluster in a federation
	Members      string   // file with the clusters that forward their bookings; optional
	Forward      forward.Options
	Meters       string          // file with the meters on the network; optional
	Agentless    bool            // estimate the usage of nodes without an agent
	Ingest       []string        // namespaces in which POST /ingest may create Jobs
	Webhook      string          // default webhook of budgets
	WebhookDir   string          // directory of the webhook URLs that budgets refer to
	WebhookKey   string          // file with the key that signs webhook requests; unsigned if empty
	Webhooks     []string        // hosts that budgets may notify
	LabelNodes   bool            // with the hardware that their agents report
	AnyPower     *energy.Profile // of nodes with unknown hardware, in the ledger; nil if their usage is unknown
	NodeMaxPower float64         // maximum power in watts of nodes with unknown hardware
	Keep         ledger.Retention
	// Worlds is set if another program decides in which world the jobs of POST /ingest run. No flag sets it.
	Worlds bool
	// Group is passed to [intake.PodIndexOptions]. No flag sets it.
	Group func(node, path string) (name string, a ledger.Account, ok bool)
	// Beats are the heartbeats that /healthz checks. Nil means only those of the controller's own loops. No flag
	// sets it.
	Beats *daemon.Heartbeats
	daemon.Logging
}

// keepsLedger reports whether a ledger is configured.
func (o *Options) keepsLedger() bool { return o.State != "" || o.LedgerDSN != "" }

func (o *Options) agentNamespace() string { return cmp.Or(o.AgentNamespace, o.Namespace) }

// Parse parses the flags of a program. It prints usage to out if help is requested. Errors fit on one line.
func Parse(program string, flags *flag.FlagSet, args []string, out io.Writer) error {
	flags.Init(program, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(out, "Usage of %s:\n", program)
		flags.SetOutput(out)
		flags.PrintDefaults()
	} else if err != nil {
		err = fmt.Errorf("%w (see --help)", err)
	}
	return err
}

// NewOptions returns the default options and registers a flag for each of them.
func NewOptions(fs *flag.FlagSet) *Options {
	o := &Options{LedgerDSN: os.Getenv("KUBENERGY_LEDGER_DSN")}
	fs.StringVar(&o.Namespace, "namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), v1alpha1.SystemNamespace),
		"`namespace` of the Lease and of the ConfigMap with calls to providers")
	fs.StringVar(&o.AgentNamespace, "agent-namespace", "",
		"`namespace` of the agents in the cluster (default: value of --namespace)")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", ":8443",
		"`address` of /metrics over HTTPS, for clients that may get it (0: none)")
	fs.StringVar(&o.ProbeAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz (0: none)")
	fs.StringVar(&o.Keys, "keys-dir", "/etc/kubenergy/keys", "`directory` with a file for each key of a GridZone")
	fs.StringVar(&o.MeterKeys, "meter-keys-dir", "/etc/kubenergy/meter-keys",
		"`directory` with a file for each passwordKey of a meter")
	fs.StringVar(&o.Data, "data-dir", "/etc/kubenergy/data", "`directory` of the files that GridZones refer to")
	fs.StringVar(&o.State, "state-dir", "",
		"`directory` of the SQLite ledger and the certificate of the HTTP API; without a ledger batches are rejected")
	fs.StringVar(&o.API, "api-bind-address", ":9443", "`address` of the HTTP API over HTTPS (0: none)")
	fs.StringVar(&o.APICert, "api-cert-file", "", "`file` with the certificate of the HTTP API (default: a generated "+
		"one, published in the ConfigMap "+relay.AuthorityName+")")
	fs.StringVar(&o.APIKey, "api-key-file", "", "`file` with the key of the certificate")
	fs.StringVar(&o.APICA, "api-ca-file", "",
		"`file` with the CA of the certificates of other replicas, if they were provided with --api-cert-file")
	fs.StringVar(&o.CSV, "csv-dir", "", "`directory` for raw metrics and decisions as CSV")
	fs.StringVar(&o.HostTokens, "host-tokens-file", "", "`file` with the tokens of agents outside the cluster")
	fs.StringVar(&o.Cluster, "cluster", "", "`name` of this cluster in a federation")
	fs.StringVar(&o.Members, "members-file", "", "`file` with the clusters that forward their bookings")
	fs.StringVar(&o.Forward.URL, "forward-to", "",
		"`URL` of the federation's controller that receives all bookings")
	fs.StringVar(&o.Forward.TokenFile, "forward-token-file", "", "`file` with the token of this cluster")
	fs.StringVar(&o.Forward.CAFile, "forward-ca-file", "",
		"`file` with the CA of the federation's certificate (default: CAs of the system)")
	fs.StringVar(&o.Meters, "meters-file", "", "`file` with the meters to poll over the network")
	fs.StringVar(&o.Webhook, "budget-webhook", "", "default webhook `URL` of budgets")
	fs.StringVar(&o.WebhookDir, "budget-webhook-dir", "",
		"`directory` with a file for each URL that budgets refer to as secret:NAME")
	fs.StringVar(&o.WebhookKey, "budget-webhook-key-file", "", "`file` with the key that signs webhook requests")
	fs.StringVar(&o.LogFormat, "log-format", "json", "log `format`: json or text")
	list := func(to *[]string, name, help string) {
		fs.Func(name, help+" (repeatable)", func(value string) error {
			if value == "" {
				return errors.New("want a value")
			}
			*to = append(*to, value)
			return nil
		})
	}
	list(&o.APINames, "api-name", "additional DNS `name` in the certificate of the controller")
	list(&o.Ingest, "ingest-namespace", "`namespace` in which POST /ingest may create Jobs")
	list(&o.Webhooks, "webhook-host", "`host` that budgets may notify even at a private address or without TLS")
	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "elect a leader to call providers and write statuses; "+
		"has no effect with an SQLite ledger")
	fs.BoolVar(&o.Agentless, "agentless", true, "estimate the usage of nodes without an agent")
	fs.BoolVar(&o.LabelNodes, "label-nodes", false, "label nodes with the hardware that their agents report")
	fs.Func("node-default-watts", "`watts`, e.g. idle:100,max:400, of nodes with unknown hardware "+
		"in the ledger and in metrics; the scheduler does not use them (default: unknown)",
		func(value string) error {
			idle, most, err := hardware.ParseNodePower(value)
			o.AnyPower = &energy.Profile{
				Name: policy.UnknownHardware, Idle: idle, Max: most, Sleep: idle,
				Source: "default for nodes with unknown hardware",
			}
			return err
		})
	fs.Float64Var(&o.NodeMaxPower, "node-max-watts", 2000,
		"maximum `watts` of nodes with unknown hardware; batches with more are rejected")
	fs.Int64Var(&o.Forward.Most, "forward-keep", 1_000_000,
		"maximum `number` of bookings retained for an unavailable federation; the oldest ones are dropped")
	o.Keep.Streams = 400 * day
	keep := func(to *time.Duration, name, what string, usual time.Duration) {
		fs.DurationVar(to, name, usual, "retention `time` of "+what+" in the ledger (0: forever)")
	}
	keep(&o.Keep.Windows, "keep-windows", "five-minute windows by pod", 14*day)
	keep(&o.Keep.Hours, "keep-hours", "hourly sums", 400*day)
	keep(&o.Keep.Days, "keep-days", "daily sums", 0)
	keep(&o.Keep.Records, "keep-decisions", "decisions", 90*day)
	keep(&o.Keep.Snapshots, "keep-snapshots", "snapshots of decisions", 14*day)
	fs.TextVar(&o.LogLevel, "log-level", o.LogLevel, "log `level`: DEBUG, INFO, WARN or ERROR")
	return o
}

// Validate returns an error with all invalid options.
func (o *Options) Validate() error {
	errs := []error{o.Logging.Validate()}
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for name, label := range map[string]string{
		"namespace": o.Namespace, "agent-namespace": o.agentNamespace(), "cluster": o.Cluster,
	} {
		why := validation.IsDNS1123Label(label)
		bad(len(why) > 0 && (name != "cluster" || label != ""), "--%s is %q: %s", name, label, strings.Join(why, "; "))
	}
	for name, address := range map[string]string{
		"metrics-bind-address": o.MetricsAddress, "health-probe-bind-address": o.ProbeAddress,
		"api-bind-address": o.API,
	} {
		_, _, err := net.SplitHostPort(address)
		bad(err != nil && address != "0", "--%s is %q: want host:port, :port or 0", name, address)
	}
	bad(o.Forward.URL != "" && (o.Cluster == "" || o.Forward.TokenFile == "" || !o.keepsLedger()),
		"--forward-to needs --cluster, --forward-token-file and a ledger (--state-dir)")
	bad(o.Forward.Most < 1, "--forward-keep is %d: want 1 or more", o.Forward.Most)
	bad((o.APICert == "") != (o.APIKey == ""), "--api-cert-file and --api-key-file must be given together")
	bad(!(o.NodeMaxPower > 0), "--node-max-watts is %v: want more than 0", o.NodeMaxPower)
	bad(o.LedgerDSN != "" && o.State == "" && o.API != "0" && o.APICert == "",
		"--state-dir is missing: the certificate of the HTTP API is stored there")
	return errors.Join(errs...)
}
