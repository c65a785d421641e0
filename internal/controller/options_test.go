package controller

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFlagsAreDocumented checks that docs/reference/controller.md describes every flag.
func TestFlagsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/reference/controller.md")
	if err != nil {
		t.Fatal(err)
	}
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	NewOptions(fs)
	fs.VisitAll(func(f *flag.Flag) {
		if !strings.Contains(string(doc), "`--"+f.Name+"`") {
			t.Errorf("docs/reference/controller.md does not describe --%s", f.Name)
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
		t.Errorf("unexpected options %+v", o)
	}
	for name, wrong := range map[string]func(*Options){
		"a certificate without a key":      func(o *Options) { o.APICert = "cert" },
		"a node without power":             func(o *Options) { o.NodeMaxPower = 0 },
		"an invalid address":               func(o *Options) { o.API = "nowhere" },
		"a database without a certificate": func(o *Options) { o.LedgerDSN, o.State = "postgres://x", "" },
		"an invalid namespace":             func(o *Options) { o.Namespace = "A" },
		"an invalid namespace of agents":   func(o *Options) { o.AgentNamespace = "A" },
		"an invalid cluster":               func(o *Options) { o.Cluster = "a/b" },
		"forwarding without a token": func(o *Options) {
			o.Cluster, o.State, o.Forward.URL = "alpha", "state", "https://home.example.org"
		},
		"no bookings retained for a federation": func(o *Options) { o.Forward.Most = 0 },
		"an unknown log format":                 func(o *Options) { o.LogFormat = "xml" },
	} {
		o := NewOptions(flag.NewFlagSet("", flag.ContinueOnError))
		wrong(o)
		if o.Validate() == nil {
			t.Errorf("Validate() accepted %s", name)
		}
	}
}

// An unknown flag causes an error of one line. Help lists all flags.
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
			t.Errorf("%s: error = %v, output %q; want %q", args, err, &out, want)
		}
	}
	var out strings.Builder
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	NewOptions(flags)
	if err := Parse("kubenergy-controller", flags, []string{"--help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "\n  -leader-elect\n") {
		t.Errorf("unexpected help: %v\n%s", err, &out)
	}
}
