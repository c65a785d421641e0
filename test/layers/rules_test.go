package layers

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// module is the import path of this module.
const module = "github.com/kubenergy/kubenergy"

// A folder is a directory in the root or in internal/ with the packages that it may import.
type folder struct {
	own     []string // top-level directories and packages such as "kube"; the directory itself is always allowed
	outside outside
}

// outside is the set of packages of other modules that a directory may import.
type outside int

const (
	stdlib      outside = iota // only the standard library
	anything                   // libraries except Kubernetes
	kinds                      // also the API types of Kubernetes without clients
	clients                    // also client-go and controller-runtime
	everything                 // also k8s.io/kubernetes, the API server, etcd and simulated nodes
	heavyInMain                // clients, and everything in the subdirectories listed in mayLinkKubernetes
)

var (
	ground = []string{"energy", "grid", "mincost", "humanize", "sliceutil", "spelling", "timeutil"}
	middle = slices.Concat(ground, []string{"sched", "forecast", "predict", "workload"})
	upper  = slices.Concat(middle, []string{"document", "sim", "ledger"})
	known  = []string{"api", "hardware", "policy", "kube"} // shared by the components that run in a cluster
	wings  = slices.Concat(upper, known, []string{
		"report", "study", "apiclient", "daemon", "dashboard", "scheduler", "karmada", "slurm", "agent", "controller", "power",
		"benchmark", "child",
	})
	data = []string{"scenarios", "examples", "charts", "dashboards", "deploy"}
)

// public lists the top-level directories that contain Go code. All other code is below internal/.
var public = []string{"api", "charts", "cmd", "deploy", "examples", "hack", "scenarios", "test"}

// house defines the directories of the root and of internal/ and the direction of imports. Directories that are not
// listed must not contain Go code.
var house = map[string]folder{
	"energy":  {own: ground},
	"grid":    {own: ground},
	"mincost": {own: ground},
	// Utilities without imports from this module.
	"humanize":  {},
	"sliceutil": {},
	"spelling":  {},
	"timeutil":  {},
	// Child processes that are stopped with their parent.
	"child": {outside: anything},
	// YAML files that commands read.
	"document": {own: []string{"spelling"}, outside: anything},

	// Measurements of the speed and power of a machine.
	"benchmark": {own: []string{"energy", "api", "hardware"}, outside: kinds},

	// Names of the API and the hardware, without Kubernetes clients.
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
	// Common parts of long-running processes, such as listeners with limits, timeouts and heartbeats.
	"daemon":    {},
	"apiclient": {own: slices.Concat(middle, []string{"ledger"}), outside: anything},
	// Web pages for the ledger and results.
	"dashboard": {own: slices.Concat(upper, []string{"report", "daemon"}), outside: anything},

	// Rules for delaying work, and the conversion between Kubernetes objects and the core.
	"policy": {own: slices.Concat(middle, []string{"api", "hardware"}), outside: kinds},
	"kube":   {own: slices.Concat(middle, []string{"ledger", "api", "hardware", "policy", "daemon"}), outside: clients},

	// Components that must not import each other.
	"scheduler":  {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	"karmada":    {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	"controller": {own: slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon"}), outside: clients},
	// The same management controllers are used to switch machines and to read their energy.
	"power": {
		own:     slices.Concat(middle, known, []string{"ledger", "apiclient", "daemon", "controller"}),
		outside: clients,
	},
	// Slurm jobs use the same policies as Kubernetes Jobs. No other part of Kubernetes is used.
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

	// Programs for developers. The program for hardware tables uses the same scores as the catalog, and another one
	// compares strategies on unseen data.
	"hack": {own: slices.Concat(upper, []string{"hardware", "policy", "report"}), outside: anything},

	"scenarios": {own: upper, outside: anything},

	// Data directories that may contain a Go file with embedded data.
	"examples":   {},
	"charts":     {},
	"dashboards": {},
	"deploy":     {},
}

// mayLinkKubernetes lists the main packages that link k8s.io/kubernetes and the packages that wrap the scheduling
// queue and the profiles of the scheduler.
var mayLinkKubernetes = []string{
	"cmd/kubenergy-scheduler", "cmd/kubenergy-lab", "scheduler/app", "scheduler/fallback", "scheduler/parking",
}

// checkImport returns the violation if package from imports package to, or "". Packages of this module are
// identified by their directory, for example "scheduler/place", and other packages by their import path. Test files
// may import any library and any package of this module that does not import them. They must follow the rules for
// Kubernetes to keep build times short.
func checkImport(from, to string, test bool) string {
	root := partOf(from)
	f, known := house[root]
	if !known {
		return fmt.Sprintf("%s: unknown top-level directory %s, move the code to an existing one or add "+
			"the directory to the table in test/layers and to ARCHITECTURE.md", from, root)
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

// partOf returns the key of house for a directory. The directory app of a component contains the code of its main
// package and may import all components, like a main package.
func partOf(folder string) string {
	if path.Base(folder) == "app" {
		return "app"
	}
	root, _, _ := strings.Cut(folder, "/")
	return root
}

// checkOwn checks the direction of imports within the module.
func checkOwn(from, to string, f folder) string {
	fromRoot, toRoot := partOf(from), partOf(to)
	switch {
	case fromRoot == "scheduler" && toRoot == "scheduler":
		return checkScheduler(from, to)
	case fromRoot == "cmd" && toRoot == "cmd":
		return fmt.Sprintf("%s imports %s: main packages must not import each other", from, to)
	case fromRoot == toRoot, fromRoot == "hack" && to == "test/paired": // statistics of benchmarks
		return ""
	case !slices.Contains(f.own, toRoot):
		return fmt.Sprintf("%s imports %s: imports must follow the layers; %s may import %s",
			from, to, fromRoot, orNothing(f.own))
	}
	return ""
}

// checkScheduler checks the order of imports within scheduler: fallback and parking, then place, then all other
// packages.
func checkScheduler(from, to string) string {
	floors := map[string]int{"scheduler/place": 1, "scheduler/fallback": 2, "scheduler/parking": 2}
	if floors[to] > floors[from] || floors[to] == 2 {
		return fmt.Sprintf("%s imports %s: inside scheduler, fallback and parking may import place, and place the "+
			"other packages", from, to)
	}
	return ""
}

// impure lists the packages that the core must not import, because decisions would otherwise depend on more than
// the snapshot.
var impure = []string{
	"context", "crypto/rand", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec",
	"os/signal", "runtime", "sync", "sync/atomic", "syscall", "unsafe",
}

// isPure reports whether the packages of a directory must be deterministic functions of their inputs.
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
		"%s imports %s: the core must be a pure function; use time, logs, randomness and I/O in its drivers", from, to)
}

// mayListen maps the directories and files that may open listeners or create servers to the reasons.
var mayListen = map[string]string{
	"daemon":               "defines the limits and timeouts",
	"karmada/estimator.go": "its gRPC server has its own limits because daemon only uses the standard library",
	"lab/kubelet":          "forwards raw connections to local processes of an experiment",
	"test":                 "tests and their helper programs",
	"hack":                 "development programs",
}

// listens lists the functions and types, by package, that create listeners or servers without limits.
var listens = map[string][]string{
	"net":                    {"Listen", "ListenTCP", "ListenConfig", "ListenUnix"},
	"net/http":               {"Server", "ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS"},
	"net/http/httptest":      {"NewServer", "NewTLSServer", "NewUnstartedServer"},
	"crypto/tls":             {"Listen"},
	"google.golang.org/grpc": {"NewServer"},
}

// checkListens returns the violation if file uses the given name of package to, or "".
func checkListens(file, to, name string) string {
	for allowed := range mayListen {
		if within(file, allowed) {
			return ""
		}
	}
	if !slices.Contains(listens[to], name) {
		return ""
	}
	return fmt.Sprintf("%s uses %s.%s, use daemon.Listen and daemon.NewServer, which set limits and "+
		"timeouts", file, to, name)
}

// A guard restricts libraries to directories with at least the given value of outside.
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
		everything, "only lab, test, scheduler/fallback, scheduler/parking and cmd/kubenergy-scheduler may link Kubernetes " +
			"itself, use k8s.io/kube-scheduler/framework in scheduler/place and client-go elsewhere",
	},
	{
		[]string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/component-helpers/resource"},
		kinds,
		"only api, hardware, policy, kube and higher layers may use Kubernetes types, use the types of package sched",
	},
	{
		[]string{"k8s.io", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff"},
		clients,
		"only kube, scheduler, karmada, controller, lab, cli, cmd and test may use a Kubernetes client, pass values",
	},
	{
		[]string{""},
		anything,
		"only the standard library may be imported here, use libraries in a driver or a component",
	},
}

func checkOutside(from, to string, reach outside) string {
	const framework = "k8s.io/kube-scheduler/framework"
	if within(to, framework) && reach == clients && !within(from, "scheduler/place") && !within(from, "cmd") {
		return fmt.Sprintf("%s imports %s: only scheduler/place may use the scheduler framework", from, to)
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

// within reports whether an import path or directory equals prefix or is below it.
func within(name, prefix string) bool {
	return prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
}

// A ban is a dependency that a main package must not have, directly or indirectly.
type ban struct {
	main     string
	prefixes []string
	reason   string
}

var bans = []ban{
	{
		"cmd/kubenergy",
		[]string{"k8s.io/kubernetes", "k8s.io/apiserver", "go.etcd.io/etcd"},
		"the CLI must be small and start quickly",
	},
	{
		"cmd/kubenergy-agent",
		[]string{"k8s.io", "go.etcd.io/etcd", "sigs.k8s.io/controller-runtime"},
		"the agent runs on every node, including armv7, without access to Kubernetes",
	},
	{
		"cmd/kubenergy-agent",
		[]string{"github.com/ebitengine/purego"},
		"the agent must be static because its image contains no dynamic loader (decision 34)",
	},
	{
		"cmd/kubenergy-controller",
		[]string{"k8s.io/kubernetes", "go.etcd.io/etcd"},
		"the controller must only be a client of the cluster",
	},
}

// checkLinked returns the violation for the first banned dependency of a main package, or "".
func checkLinked(main string, dependencies []string) string {
	for _, b := range bans {
		if b.main != main {
			continue
		}
		for _, d := range dependencies {
			for _, prefix := range b.prefixes {
				if within(d, prefix) {
					return fmt.Sprintf("%s links %s: %s; find the import with `go list -deps` and `go mod why`",
						main, d,
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

// checkFileName rejects file names that describe Go constructs instead of the subject of the file.
func checkFileName(file string) string {
	base := strings.TrimSuffix(strings.TrimSuffix(path.Base(file), ".go"), "_test")
	if slices.Contains(emptyNames, base) {
		return fmt.Sprintf("%s: name the file after its subject, for example tariff.go, instead of %s",
			file, path.Base(file))
	}
	return ""
}

func orNothing(own []string) string {
	if len(own) == 0 {
		return "no package of this module"
	}
	return strings.Join(own, ", ")
}
