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
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/controller/relay"
	"github.com/kubenergy/kubenergy/ledger"
)

const day = 24 * time.Hour

// Options are what the command line says.
type Options struct {
	Namespace      string // of the Lease and of the count of calls
	MetricsAddress string // HTTPS, for clients that the API server lets get /metrics; "0": nowhere
	ProbeAddress   string // HTTP: /healthz and /readyz; "0": nowhere
	LeaderElect    bool
	Keys           string // folder of key files
	Data           string // folder of files that GridZones name

	// folder of the ledger and of the API's certificate; "": neither is kept, and no batches are taken
	State string
	// of a PostgreSQL; "": SQLite in State. From the environment only: command lines are read by others
	LedgerDSN    string
	API          string // HTTPS, for agents, schedulers and people; "0": nowhere
	APICert      string // files; "": a certificate of our own
	APICA        string // what other replicas' certificates are verified by, where they were given
	APIKey       string
	APINames     []string // of our own certificate, besides those of the Service
	CSV          string   // folder for raw metrics and decisions as CSV; "": none
	HostTokens   string   // file with the tokens of agents outside the cluster; "": there are none
	Meters       string   // file with the meters on the network; "": there are none
	Agentless    bool     // estimate what nodes without an agent use
	Ingest       []string // namespaces in which POST /ingest may create Jobs
	Webhook      string   // that budgets notify where they name none
	Webhooks     []string // hosts inside that budgets may notify
	NodeMaxPower float64  // watts that a node of which nothing is known may draw
	Keep         ledger.Retention
	LogFormat    string // json or text
	LogLevel     slog.Level
}

// DefaultOptions returns what holds where the command line says nothing.
func DefaultOptions() Options {
	return Options{
		Namespace: cmp.Or(os.Getenv("POD_NAMESPACE"), v1alpha1.SystemNamespace), MetricsAddress: ":8443",
		ProbeAddress: ":8081",
		LeaderElect:  true,
		Keys:         "/etc/kubenergy/keys", Data: "/etc/kubenergy/data", LogFormat: "json",
		LedgerDSN: os.Getenv("KUBENERGY_LEDGER_DSN"), API: ":9443", Agentless: true, NodeMaxPower: 2000,
		Keep: ledger.Retention{
			Windows: 14 * day, Hours: 400 * day, Records: 90 * day, Snapshots: 14 * day, Streams: 400 * day,
		},
	}
}

// keepsLedger reports whether there is somewhere to keep a ledger.
func (o *Options) keepsLedger() bool { return o.State != "" || o.LedgerDSN != "" }

// AddFlags adds a flag for each option.
func (o *Options) AddFlags(fs *flag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", o.Namespace,
		"`namespace` of the Lease and of the count of calls to providers")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"`address` of /metrics, over HTTPS, for clients that the API server lets get it (0: none)")
	fs.StringVar(&o.ProbeAddress, "health-probe-bind-address", o.ProbeAddress,
		"`address` of /healthz and /readyz (0: none)")
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"let one of several replicas ask providers and write statuses; not with an SQLite ledger, which has one "+
			"process")
	fs.StringVar(&o.Keys, "keys-dir", o.Keys, "`folder` with a file for each key that a GridZone names")
	fs.StringVar(&o.Data, "data-dir", o.Data, "`folder` of the files that GridZones name")
	fs.StringVar(&o.State, "state-dir", o.State,
		"`folder` of the ledger and of the certificate of the HTTP API; without it no batches are taken")
	fs.StringVar(&o.API, "api-bind-address", o.API, "`address` of the HTTP API, over HTTPS (0: none)")
	fs.StringVar(&o.APICert, "api-cert-file", o.APICert,
		"`file` with the certificate of the HTTP API; by default one of its own, told in the ConfigMap "+
			relay.AuthorityName)
	fs.StringVar(&o.APIKey, "api-key-file", o.APIKey, "`file` with its key")
	fs.StringVar(&o.APICA, "api-ca-file", o.APICA,
		"`file` with what the certificates of other replicas are verified by, where they are not their own")
	fs.Var(listFlag{&o.APINames}, "api-name",
		"further DNS `name` of the certificate of its own; may be given several times")
	fs.StringVar(&o.CSV, "csv-dir", o.CSV, "`folder` for raw metrics and decisions as CSV")
	fs.StringVar(&o.HostTokens, "host-tokens-file", o.HostTokens,
		"`file` with the tokens of agents outside the cluster")
	fs.StringVar(&o.Meters, "meters-file", o.Meters, "`file` with the meters to poll over the network")
	fs.BoolVar(&o.Agentless, "agentless", o.Agentless, "estimate what nodes use on which no agent runs")
	fs.Var(listFlag{&o.Ingest}, "ingest-namespace",
		"`namespace` in which POST /ingest may create Jobs; may be given several times")
	fs.StringVar(&o.Webhook, "budget-webhook", o.Webhook, "`URL` that budgets notify where they name none")
	fs.Var(listFlag{&o.Webhooks}, "webhook-host",
		"`host` at a private address that budgets may notify, also without TLS; may be given several times")
	fs.Float64Var(&o.NodeMaxPower, "node-max-watts", o.NodeMaxPower,
		"`watts` that a node may draw of whose hardware nothing is known; agents that claim more are refused")
	for _, keep := range []struct {
		what, help string
		d          *time.Duration
	}{
		{"windows", "five minutes by pod", &o.Keep.Windows},
		{"hours", "sums by hour", &o.Keep.Hours},
		{"days", "sums by day", &o.Keep.Days},
		{"decisions", "decisions", &o.Keep.Records},
		{"snapshots", "what decisions depended on", &o.Keep.Snapshots},
	} {
		fs.DurationVar(keep.d, "keep-"+keep.what, *keep.d, "`how long` the ledger keeps "+keep.help+" (0: for good)")
	}
	fs.StringVar(&o.LogFormat, "log-format", o.LogFormat, "json or text")
	fs.TextVar(&o.LogLevel, "log-level", o.LogLevel, "DEBUG, INFO, WARN or ERROR")
}

// Validate reports everything that is wrong.
func (o *Options) Validate() error {
	var errs []error
	if why := validation.IsDNS1123Label(o.Namespace); len(why) > 0 {
		errs = append(errs, fmt.Errorf("--namespace is %q: %s", o.Namespace, why[0]))
	}
	for name, address := range map[string]string{
		"metrics-bind-address": o.MetricsAddress, "health-probe-bind-address": o.ProbeAddress,
		"api-bind-address": o.API,
	} {
		if address == "0" {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			errs = append(errs, fmt.Errorf("--%s is %q: want host:port, :port or 0", name, address))
		}
	}
	if (o.APICert == "") != (o.APIKey == "") {
		errs = append(errs, errors.New("--api-cert-file and --api-key-file go together"))
	}
	if !(o.NodeMaxPower > 0) {
		errs = append(errs, fmt.Errorf("--node-max-watts is %v: want more than 0", o.NodeMaxPower))
	}
	if o.LedgerDSN != "" && o.State == "" && o.API != "0" && o.APICert == "" {
		errs = append(errs, errors.New("--state-dir is not given: the certificate of the HTTP API is kept there"))
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

// listFlag is a flag that may be given several times.
type listFlag struct{ values *[]string }

func (f listFlag) String() string {
	if f.values == nil {
		return ""
	}
	return strings.Join(*f.values, ",")
}

// Set implements flag.Value.
func (f listFlag) Set(value string) error {
	if value == "" {
		return errors.New("want something")
	}
	*f.values = append(*f.values, value)
	return nil
}
