package controller

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFlagsAreDocumented checks that docs/reference/controller.md tells of every flag.
func TestFlagsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/controller.md")
	if err != nil {
		t.Fatal(err)
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	NewOptions(fs)
	fs.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(string(doc), "`--"+f.Name+"`") {
			t.Errorf("docs/reference/controller.md says nothing of --%s", f.Name)
		}
	})
}

func TestOptionsAreRead(t *testing.T) {
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	o := NewOptions(fs)
	if err := fs.Parse([]string{
		"--api-name=a", "--api-name=b", "--keep-windows=1h", "--keep-days=0", "--agentless=false",
		"--node-default-watts=idle:50,max:300",
	}); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(o.APINames) != 2 || o.Keep.Windows != time.Hour || o.Keep.Days != 0 || o.Agentless ||
		o.AnyPower.Idle != 50 || o.AnyPower.Max != 300 || o.AnyPower.Validate() != nil {
		t.Errorf("read %+v", o)
	}
	for name, wrong := range map[string]func(*Options){
		"a certificate without a key":   func(o *Options) { o.APICert = "cert" },
		"a node of no power":            func(o *Options) { o.NodeMaxPower = 0 },
		"an address that is none":       func(o *Options) { o.API = "nowhere" },
		"a database and no certificate": func(o *Options) { o.LedgerDSN, o.State = "postgres://x", "" },
		"a namespace that cannot be":    func(o *Options) { o.Namespace = "A" },
		"one of agents that cannot be":  func(o *Options) { o.AgentNamespace = "A" },
		"a cluster that cannot be":      func(o *Options) { o.Cluster = "a/b" },
		"forwarding without a token": func(o *Options) {
			o.Cluster, o.State, o.Forward.URL = "alpha", "state", "https://home.example.org"
		},
		"nothing kept for a federation":    func(o *Options) { o.Forward.Most = 0 },
		"logs in a format that is unknown": func(o *Options) { o.LogFormat = "xml" },
	} {
		o := NewOptions(flag.NewFlagSet("", flag.ContinueOnError))
		wrong(o)
		if o.Validate() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// A flag that there is not is told in one line; help lists all flags.
func TestParse(t *testing.T) {
	for args, want := range map[string]string{
		"--bogus":             "flag provided but not defined: -bogus (see --help)",
		"--leader-elect=what": `invalid boolean value "what" for -leader-elect: parse error (see --help)`,
		"--namespace=here":    "",
		"--node-default-watts=50": `invalid value "50" for flag -node-default-watts: node power "50": want ` +
			"idle:watts,max:watts with a max above 0 (see --help)",
	} {
		var out strings.Builder
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		NewOptions(flags)
		err := Parse("kubenergy-controller", flags, []string{args}, &out)
		if err == nil && want != "" || err != nil && err.Error() != want || out.String() != "" {
			t.Errorf("%s: %v, and %q; want %q", args, err, &out, want)
		}
	}
	var out strings.Builder
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	NewOptions(flags)
	if err := Parse("kubenergy-controller", flags, []string{"--help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "\n  -leader-elect\n") {
		t.Errorf("help: %v\n%s", err, &out)
	}
}
