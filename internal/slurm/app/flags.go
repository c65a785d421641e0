package app

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// Flags contains the flags of kubenergy-controller that apply without Kubernetes, and the flags for Slurm.
type Flags struct {
	Controller     controller.Options
	client         slurm.ClientOptions
	folder, listen string
	conf           string
	every          time.Duration
	power          slurm.PowerOptions
	powerRecord    string

	ingestToken, ingestCluster string
}

// ofClusters lists the flags of the controller that require a cluster.
var ofClusters = []string{
	"namespace", "agent-namespace", "leader-elect", "agentless", "api-ca-file",
}

// Parse parses and validates arguments. It writes the usage and errors to out.
func (f *Flags) Parse(args []string, out io.Writer) error {
	all := flag.NewFlagSet("kubenergy-controller", flag.ContinueOnError)
	o := controller.NewOptions(all)
	set := flag.NewFlagSet("kubenergy-slurm", flag.ContinueOnError)
	all.VisitAll(func(one *flag.Flag) {
		if !slices.Contains(ofClusters, one.Name) {
			set.Var(one.Value, one.Name, one.Usage)
		}
	})
	set.StringVar(&f.client.URL, "slurm-url", "", "`URL` of slurmrestd: http://HOST:PORT or unix:PATH of its socket")
	set.StringVar(&f.client.TokenFile, "slurm-token-file", "", "`file` with a token of an account with "+
		"AdminLevel=Operator, in the format of scontrol token; not needed for a socket")
	set.StringVar(&f.conf, "slurm-conf", "/etc/slurm/slurm.conf", "`path` of slurm.conf, to check whether jobs age "+
		"while they wait; empty disables the check")
	set.DurationVar(&f.every, "slurm-interval", 10*time.Second, "`interval` between two passes over Slurm's queue")
	f.power.Policy = sleep.DefaultPolicy()
	set.StringVar(&f.power.Program, "slurm-power-program", "", "`program` that makes Slurm suspend and resume "+
		"nodes, such as kubenergy-power.sh; empty disables it")
	set.IntVar(&f.power.Policy.MinAwake, "slurm-min-awake", 1, "minimum `number` of nodes that are awake")
	set.StringVar(&f.powerRecord, "slurm-power-record", "", "`file` for decisions about sleeping nodes, with "+
		"their input, as lines of JSON")
	set.StringVar(&f.ingestToken, "ingest-token-file", "", "`file` with a token of the unprivileged account "+
		"that runs the jobs of POST /ingest in Slurm")
	set.StringVar(&f.ingestCluster, "ingest-kubeconfig", "", "`kubeconfig` of a cluster as an additional backend "+
		"for jobs of POST /ingest; empty runs all of them in Slurm")
	set.StringVar(&f.folder, "config-dir", "/etc/kubenergy/config", "`directory` of YAML files with GridZones, "+
		"EnergyPolicies, EnergyBudgets and PowerProfiles")
	set.StringVar(&f.listen, "objects-bind-address", "127.0.0.1:9444", "loopback `address` from which commands "+
		"of kubenergy read objects, with the kubeconfig in the state directory")
	err := controller.Parse("kubenergy-slurm", set, args, out)
	switch {
	case err != nil:
		return err
	case set.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: only flags are supported", set.Arg(0))
	case f.client.URL == "":
		return errors.New("--slurm-url is missing: want the URL of slurmrestd")
	case len(o.Ingest) == 0 && f.ingestToken+f.ingestCluster != "":
		return errors.New("--ingest-token-file and --ingest-kubeconfig require POST /ingest: enable it with " +
			"--ingest-namespace")
	case len(o.Ingest) > 0 && f.ingestToken == "":
		return errors.New("--ingest-token-file is missing: POST /ingest requires an account for its jobs")
	case o.API == "0":
		return errors.New("--api-bind-address is 0: want an address for decisions and batches of agents")
	case f.every < time.Second:
		return fmt.Errorf("--slurm-interval is %v: want at least one second", f.every)
	}
	f.Controller = *o
	f.Controller.State = cmp.Or(o.State, "/var/lib/kubenergy")
	f.Controller.Worlds = true
	f.Controller.Namespace, f.Controller.LeaderElect, f.Controller.Agentless = v1alpha1.SystemNamespace, false, false
	return f.Controller.Validate()
}
