package layers

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// module is the import path of this repository.
const module = "github.com/kubenergy/kubenergy"

// A folder stands in the root or below internal/: what its packages may import, of this module and of others.
type folder struct {
	own     []string // root folders, and exact packages such as "kube"; the folder itself is always allowed
	outside outside
}

// outside says how far a folder may reach beyond this module.
type outside int

const (
	stdlib      outside = iota // the standard library alone
	anything                   // libraries, except Kubernetes
	kinds                      // also the types of Kubernetes' API, without a client
	clients                    // also client-go and controller-runtime
	everything                 // also k8s.io/kubernetes, API server, etcd and simulated nodes
	heavyInMain                // clients; everything in its sub-folders named in mayLinkKubernetes
)

var (
	ground = []string{"energy", "grid", "mincost", "humanize", "sliceutil", "spelling", "timeutil"}
	middle = slices.Concat(ground, []string{"sched", "forecast", "predict", "workload"})
	upper  = slices.Concat(middle, []string{"document", "sim", "ledger"})
	known  = []string{"api", "hardware", "policy", "kube"} // what the wings in a cluster share
	wings  = slices.Concat(upper, known, []string{
		"report", "study", "apiclient", "daemon", "dashboard", "scheduler", "karmada", "slurm", "agent", "controller", "power",
		"benchmark", "child",
	})
	data = []string{"scenarios", "examples", "charts", "dashboards", "deploy"}
)

// public are the folders of the root that hold Go code. All others are below internal/.
var public = []string{"api", "charts", "cmd", "deploy", "examples", "hack", "scenarios", "test"}

// house is the architecture: the folders of the root and of internal/, and the direction of imports. A folder that is
// missing here may not hold Go code.
var house = map[string]folder{
	"energy":  {own: ground},
	"grid":    {own: ground},
	"mincost": {own: ground},
	// Utilities, which import nothing of ours.
	"humanize":  {},
	"sliceutil": {},
	"spelling":  {},
	"timeutil":  {},
	// Child processes that end with this one.
	"child": {outside: anything},
	// The YAML files that commands read.
	"document": {own: []string{"spelling"}, outside: anything},

	// How fast a machine is, and what it draws meanwhile.
	"benchmark": {own: []string{"energy", "api", "hardware"}, outside: kinds},

	// What our API and the hardware are called, before any client of Kubernetes.
	"api":      {outside: kinds},
	"hardware": {own: slices.Concat(ground, []string{"api"}), outside: kinds},

	"sched":    {own: ground},
	"forecast": {own: ground, outside: anything},
	"predict":  {own: slices.Concat(ground, []string{"sched"}), outside: anything},
	"workload": {own: slices.Concat(ground, []string{"sched"}), outside: anything},

	"ledger": {own: middle, outside: anything},
	"sim":    {own: slices.Concat(middle, []string{"document", "ledger"}), outside: anything},
	"report": {own: upper, outside: anything},
	"study":  {own: slices.Concat(upper, []string{"report"}), outside: anything},
	// What every long-running process has: listeners with limits, timeouts, heartbeats.
	"daemon":    {},
	"apiclient": {own: slices.Concat(middle, []string{"ledger"}), outside: anything},
	// The page of what the books and the results say.
	"dashboard": {own: slices.Concat(upper, []string{"report", "daemon"}), outside: anything},

	// Who may wait for what, then the conversion between Kubernetes and the core.
	"policy": {own: slices.Concat(middle, []string{"api", "hardware"}), outside: kinds},
	"kube":   {own: slices.Concat(middle, []string{"ledger", "api", "hardware", "policy", "daemon"}), outside: clients},

	// Wings do not import each other.
	"scheduler":  {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	"karmada":    {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	"controller": {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	// Machines are switched by the same management controllers that tell the controller their energy.
	"power": {
		own:     slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon", "controller"}),
		outside: clients,
	},
	// Slurm's jobs obey the policies that Kubernetes' obey; it has no other part of Kubernetes.
	"slurm": {
		own:     slices.Concat(middle, []string{"api", "hardware", "policy", "ledger", "apiclient", "daemon"}),
		outside: anything,
	},
	"agent": {own: slices.Concat(middle, []string{"ledger", "apiclient", "daemon"}), outside: anything},

	"cli":  {own: slices.Concat(wings, data), outside: clients},
	"lab":  {own: slices.Concat(wings, data), outside: everything},
	"app":  {own: slices.Concat(wings, data), outside: clients},
	"cmd":  {own: slices.Concat(wings, data, []string{"app", "cli", "lab"}), outside: heavyInMain},
	"test": {own: slices.Concat(wings, data, []string{"app", "cli", "lab"}), outside: everything},

	// Programs that build what is released. That of the hardware tables scores them as the catalogue reads them.
	"hack": {own: []string{"energy", "grid", "hardware"}, outside: anything},

	// Folders of data, which may hold a file of Go that embeds them.
	"scenarios":  {},
	"examples":   {},
	"charts":     {},
	"dashboards": {},
	"deploy":     {},
}

// mayLinkKubernetes are the mains that link k8s.io/kubernetes, and what wraps the scheduler's own queue and profiles.
var mayLinkKubernetes = []string{
	"cmd/kubenergy-scheduler", "cmd/kubenergy-lab", "scheduler/app", "scheduler/fallback", "scheduler/parking",
}

// checkImport returns what is wrong with package from importing package to, or "". Packages of this module are named
// by their folder ("scheduler/place"), others by their import path. Test files may reach for any package of this
// module that does not import them, and for any library; they obey the rules about Kubernetes, which keep their
// builds short.
func checkImport(from, to string, test bool) string {
	root := partOf(from)
	f, known := house[root]
	if !known {
		return fmt.Sprintf("%s: the root folder %s is not part of the house: put the code where it belongs, or add "+
			"the folder to the table in test/layers and to the architecture", from, root)
	}
	if own, isOwn := strings.CutPrefix(to, module+"/"); isOwn {
		if test {
			return ""
		}
		return checkOwn(from, own, f)
	}
	if !strings.Contains(strings.Split(to, "/")[0], ".") {
		return checkStandard(from, to, test)
	}
	reach := f.outside
	if test {
		reach = max(reach, anything)
	}
	if reach == heavyInMain {
		reach = clients
	}
	if slices.Contains(mayLinkKubernetes, from) {
		reach = everything
	}
	return checkOutside(from, to, reach)
}

// partOf returns the entry of house that a folder belongs to. What a main is made of is in a folder app of its own
// part, and may import all parts, as the main might.
func partOf(folder string) string {
	if path.Base(folder) == "app" {
		return "app"
	}
	root, _, _ := strings.Cut(folder, "/")
	return root
}

// checkOwn holds the direction of imports inside the module.
func checkOwn(from, to string, f folder) string {
	fromRoot, toRoot := partOf(from), partOf(to)
	switch {
	case fromRoot == "scheduler" && toRoot == "scheduler":
		return checkScheduler(from, to)
	case fromRoot == "cmd" && toRoot == "cmd":
		return fmt.Sprintf("%s imports %s: mains do not import each other", from, to)
	case fromRoot == toRoot, fromRoot == "hack" && to == "test/paired": // statistics of benchmarks
		return ""
	case !slices.Contains(f.own, toRoot):
		return fmt.Sprintf("%s imports %s: imports point down only; %s may import %s",
			from, to, fromRoot, orNothing(f.own))
	}
	return ""
}

// checkScheduler holds the order inside the wing scheduler: fallback and parking, then place, then all else.
func checkScheduler(from, to string) string {
	floors := map[string]int{"scheduler/place": 1, "scheduler/fallback": 2, "scheduler/parking": 2}
	if floors[to] > floors[from] || floors[to] == 2 {
		return fmt.Sprintf("%s imports %s: inside scheduler, imports point from fallback and parking to place to the "+
			"other packages", from, to)
	}
	return ""
}

// impure is what the core does not import: with it, a decision would depend on more than its snapshot.
var impure = []string{
	"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
	"os/signal", "runtime", "sync", "sync/atomic", "syscall", "unsafe",
}

// isPure reports whether a folder belongs to what must be a function of its inputs.
func isPure(folder string) bool {
	root, _, _ := strings.Cut(folder, "/")
	return slices.Contains(ground, root) || root == "sched"
}

func checkStandard(from, to string, test bool) string {
	if test || !isPure(from) || !slices.Contains(impure, to) {
		return ""
	}
	if root, _, _ := strings.Cut(from, "/"); root == "grid" && to == "os" {
		return "" // grid reads its own file format
	}
	return fmt.Sprintf(
		"%s imports %s: the core is a pure function; time, logs, randomness and I/O belong to its drivers", from, to)
}

// mayListen are the folders and files that open listeners or make servers themselves, and why they may.
var mayListen = map[string]string{
	"daemon":               "the one place for limits and timeouts",
	"karmada/estimator.go": "its gRPC server, whose limits stand beside it; daemon is standard library only",
	"lab/kubelet":          "forwards to processes of an experiment on this machine, and needs the raw connection",
	"test":                 "tests and what they start",
	"hack":                 "programs of this repository's own",
}

// listens are the calls and types, by package, with which a process would serve without limits.
var listens = map[string][]string{
	"net":                    {"Listen", "ListenTCP", "ListenConfig", "ListenUnix"},
	"net/http":               {"Server", "ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS"},
	"net/http/httptest":      {"NewServer", "NewTLSServer", "NewUnstartedServer"},
	"crypto/tls":             {"Listen"},
	"google.golang.org/grpc": {"NewServer"},
}

// checkListens returns the violation if file uses name of package to, or "".
func checkListens(file, to, name string) string {
	for allowed := range mayListen {
		if within(file, allowed) {
			return ""
		}
	}
	if !slices.Contains(listens[to], name) {
		return ""
	}
	return fmt.Sprintf("%s uses %s.%s: listen with daemon.Listen and serve with daemon.NewServer, which have limits and "+
		"timeouts", file, to, name)
}

// A guard keeps libraries to the folders that may use them.
type guard struct {
	prefixes []string
	least    outside
	instead  string
}

var guards = []guard{
	{
		[]string{
			"k8s.io/kubernetes", "k8s.io/apiserver", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
			"k8s.io/kube-controller-manager", "k8s.io/controller-manager", "k8s.io/cloud-provider", "go.etcd.io/etcd",
			"sigs.k8s.io/kwok",
		},
		everything, "only lab, test, scheduler/fallback, scheduler/parking and the scheduler's main link Kubernetes " +
			"itself: use k8s.io/kube-scheduler/framework in scheduler/place, client-go elsewhere",
	},
	{
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers/resource"},
		kinds,
		"only api, hardware, policy, kube and what stands above know Kubernetes: take the values of package sched",
	},
	{
		[]string{"k8s.io", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff"},
		clients,
		"only kube, scheduler, karmada, controller, lab, cli, cmd and test use a client of Kubernetes: take values",
	},
	{
		[]string{""},
		anything,
		"only the standard library is imported here: a library's work belongs to a driver or a wing",
	},
}

func checkOutside(from, to string, reach outside) string {
	const framework = "k8s.io/kube-scheduler/framework"
	if within(to, framework) && reach == clients && !within(from, "scheduler/place") && !within(from, "cmd") {
		return fmt.Sprintf("%s imports %s: only scheduler/place speaks the scheduler's framework", from, to)
	}
	for _, g := range guards {
		for _, prefix := range g.prefixes {
			if within(to, prefix) {
				if reach < g.least {
					return fmt.Sprintf("%s imports %s: %s", from, to, g.instead)
				}
				return ""
			}
		}
	}
	return ""
}

// within reports whether an import path or folder is prefix or lies below it.
func within(name, prefix string) bool {
	return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
}

// A ban is a dependency that a main may not have even through others.
type ban struct {
	main     string
	prefixes []string
	reason   string
}

var bans = []ban{
	{
		"cmd/kubenergy",
		[]string{"k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/etcd"},
		"the CLI stays small and starts at once",
	},
	{
		"cmd/kubenergy-agent",
		[]string{"k8s.io", "go.etcd.io/etcd", "sigs.k8s.io/controller-runtime"},
		"the agent runs on every node, armv7 included, without rights in Kubernetes",
	},
	{
		"cmd/kubenergy-agent",
		[]string{"github.com/ebitengine/purego"},
		"the agent is static: in its image there is no loader, which what links this needs (decision 34)",
	},
	{
		"cmd/kubenergy-controller",
		[]string{"k8s.io/kubernetes", "go.etcd.io/etcd"},
		"the controller is a client of the cluster, not a part of it",
	},
}

// checkLinked returns the first dependency of a main that its bans forbid, or "".
func checkLinked(main string, dependencies []string) string {
	for _, b := range bans {
		if b.main != main {
			continue
		}
		for _, d := range dependencies {
			for _, prefix := range b.prefixes {
				if within(d, prefix) {
					return fmt.Sprintf("%s links %s: %s; `go list -deps` and `go mod why` show the way in", main, d,
						b.reason)
				}
			}
		}
	}
	return ""
}

var emptyNames = []string{
	"types", "utils", "util", "helpers", "helper", "interface", "interfaces", "constants", "common", "misc",
}

// checkFileName refuses files that are named after Go instead of their subject.
func checkFileName(file string) string {
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(file), ".go"), "_test")
	if slices.Contains(emptyNames, base) {
		return fmt.Sprintf("%s: name the file for its subject, as in tariff.go; nothing is found in a file called %s",
			file, path.Base(file))
	}
	return ""
}

func orNothing(own []string) string {
	if len(own) == 0 {
		return "nothing of this module"
	}
	return strings.Join(own, ", ")
}
