package layers

import (
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// TestRulesCanFail applies the rules to imports that stand in no file: a rule that cannot fail holds nothing.
func TestRulesCanFail(t *testing.T) {
	own := func(folder string) string { return module + "/" + folder }
	for _, c := range []struct {
		from, to string
		test     bool
		wrong    string // part of the sentence; "" if the import is fine
	}{
		{from: "energy", to: "math"},
		{from: "grid", to: own("energy")},
		{from: "energy", to: own("sched"), wrong: "imports point down only; energy may import energy, grid, mincost"},
		{from: "energy", to: "github.com/google/go-cmp/cmp", wrong: "only the standard library"},
		{from: "energy", to: "github.com/google/go-cmp/cmp", test: true},
		{from: "mincost", to: "gonum.org/v1/gonum/mat", wrong: "only the standard library"},

		{from: "sched", to: own("mincost")},
		{from: "sched", to: own("workload"), wrong: "imports point down only"},
		{from: "sched", to: own("sim"), wrong: "imports point down only"},
		{from: "sched", to: own("workload"), test: true},
		{from: "sched", to: "pgregory.net/rapid", wrong: "only the standard library"},
		{from: "sched", to: "pgregory.net/rapid", test: true},
		{from: "sched", to: "k8s.io/api/core/v1", test: true, wrong: "take the values of package sched"},
		{from: "sched", to: "context", wrong: "pure function"},
		{from: "sched", to: "log/slog", wrong: "pure function"},
		{from: "sched", to: "os", wrong: "pure function"},
		{from: "sched", to: "os", test: true},
		{from: "sched", to: "math/rand/v2", wrong: "pure function"},
		{from: "sched", to: "sync/atomic", wrong: "pure function"},
		{from: "energy", to: "net", wrong: "pure function"},
		{from: "grid", to: "os"},
		{from: "grid", to: "log", wrong: "pure function"},

		{from: "workload", to: own("sched")},
		{from: "forecast", to: own("sched"), wrong: "imports point down only"},
		{from: "predict", to: own("sim"), wrong: "imports point down only"},
		{from: "sim", to: own("sched")},
		{from: "sim", to: own("report"), wrong: "imports point down only"},
		{from: "sim", to: own("kube"), wrong: "imports point down only"},
		{from: "sim", to: "k8s.io/api/core/v1", wrong: "take the values of package sched"},
		{from: "report", to: own("sim")},
		{from: "report", to: own("kube"), wrong: "imports point down only"},
		{from: "report", to: "gonum.org/v1/plot"},

		{from: "policy", to: own("sched")},
		{from: "policy", to: own("kube"), wrong: "imports point down only"},
		{from: "policy", to: "k8s.io/api/batch/v1"},
		{from: "policy", to: "k8s.io/client-go/rest", wrong: "use a client of Kubernetes"},
		{from: "kube", to: own("policy")},
		{from: "kube", to: own("sched")},
		{from: "kube", to: own("scheduler/place"), wrong: "imports point down only"},
		{from: "kube", to: own("api/v1alpha1")},
		{from: "api/v1alpha1", to: own("kube"), wrong: "imports point down only"},
		{from: "kube", to: own("hardware")},
		{from: "hardware", to: own("api/v1alpha1")},
		{from: "hardware", to: own("kube"), wrong: "imports point down only"},
		{from: "hardware", to: own("scheduler/hold"), wrong: "imports point down only"},
		{from: "api/v1alpha1", to: own("hardware"), wrong: "imports point down only"},
		{from: "scheduler/place", to: own("kube")},
		{from: "scheduler/place", to: own("scheduler/hold")},
		{from: "scheduler/hold", to: own("scheduler/place"), wrong: "inside scheduler"},
		{from: "scheduler/hold", to: own("sim"), wrong: "imports point down only"},
		{from: "scheduler/hold", to: "k8s.io/client-go/kubernetes"},
		{
			from: "scheduler/hold", to: "k8s.io/kube-scheduler/framework",
			wrong: "only scheduler/place speaks the scheduler's framework",
		},
		{from: "scheduler/place", to: "k8s.io/kube-scheduler/framework"},
		{from: "scheduler/place", to: "k8s.io/kubernetes/pkg/scheduler", wrong: "link Kubernetes itself"},
		{from: "scheduler/parking", to: "k8s.io/kubernetes/pkg/scheduler"},
		{from: "scheduler/parking", to: own("scheduler/place")},
		{from: "scheduler/fallback", to: own("scheduler/place")},
		{from: "scheduler/fallback", to: own("scheduler/parking"), wrong: "inside scheduler"},
		{from: "scheduler/place", to: own("scheduler/parking"), wrong: "inside scheduler"},
		{from: "cmd/kubenergy", to: "k8s.io/kubernetes/pkg/scheduler", wrong: "link Kubernetes itself"},
		{from: "scheduler/place", to: "k8s.io/kubernetes/pkg/scheduler", test: true, wrong: "link Kubernetes itself"},
		{from: "karmada", to: own("kube")},
		{from: "karmada", to: own("scheduler/hold"), wrong: "imports point down only"},
		{from: "karmada", to: own("hardware")},
		{from: "controller", to: own("hardware")},
		{from: "controller", to: own("scheduler/place"), wrong: "imports point down only"},
		{from: "controller/signal", to: own("api/v1alpha1")},
		{from: "controller/server", to: own("agent/meter"), wrong: "imports point down only"},
		{from: "controller", to: "sigs.k8s.io/controller-runtime/pkg/client"},
		{from: "agent", to: "sigs.k8s.io/controller-runtime/pkg/client", wrong: "use a client of Kubernetes"},
		{from: "agent/meter", to: own("kube"), wrong: "imports point down only"},
		{from: "slurm", to: "k8s.io/client-go/rest", wrong: "use a client of Kubernetes"},
		{from: "slurm", to: "sigs.k8s.io/yaml"},

		{from: "cli", to: own("sim")},
		{from: "cli", to: own("lab"), wrong: "imports point down only"},
		{from: "cli", to: "k8s.io/client-go/rest"},
		{from: "cli", to: "k8s.io/apiserver/pkg/server", wrong: "link Kubernetes itself"},
		{from: "lab", to: "k8s.io/kubernetes/cmd/kube-apiserver/app"},
		{from: "lab", to: "go.etcd.io/etcd/server/v3/embed"},
		{from: "lab", to: own("scheduler/place")},
		{from: "lab", to: own("cli"), wrong: "imports point down only"},
		{from: "cmd/kubenergy-scheduler", to: "k8s.io/kubernetes/cmd/kube-scheduler/app"},
		{from: "cmd/kubenergy", to: "k8s.io/kubernetes/pkg/scheduler", wrong: "link Kubernetes itself"},
		{from: "cmd/kubenergy-agent", to: "go.etcd.io/etcd/client/v3", wrong: "link Kubernetes itself"},
		{from: "cmd/kubenergy", to: own("cmd/kubenergy-lab"), wrong: "mains do not import each other"},
		{from: "test/parity", to: own("lab")},
		{from: "test/parity", to: "k8s.io/kubernetes/pkg/scheduler", test: true},
		{from: "scenarios", to: "embed"},
		{from: "pkg/sched", to: "fmt", wrong: "not part of the house"},
	} {
		got := checkImport(c.from, c.to, c.test)
		if c.wrong == "" && got != "" || !strings.Contains(got, c.wrong) {
			t.Errorf("%s imports %s (test: %v): got %q, want %q", c.from, c.to, c.test, got, c.wrong)
		}
	}
}

func TestLinkedRulesCanFail(t *testing.T) {
	for _, c := range []struct {
		main, links string
		fine        bool
	}{
		{main: "cmd/kubenergy", links: "k8s.io/apiserver/pkg/server"},
		{main: "cmd/kubenergy", links: "k8s.io/kubernetes"},
		{main: "cmd/kubenergy", links: "go.etcd.io/etcd/api/v3/mvccpb"},
		{main: "cmd/kubenergy", links: "k8s.io/kubernetesque", fine: true},
		{main: "cmd/kubenergy", links: "k8s.io/client-go/rest", fine: true},
		{main: "cmd/kubenergy-agent", links: "k8s.io/client-go/rest"},
		{main: "cmd/kubenergy-agent", links: "github.com/ebitengine/purego"},
		{main: "cmd/kubenergy-scheduler", links: "k8s.io/kubernetes/pkg/scheduler", fine: true},
	} {
		if got := checkLinked(c.main, []string{"fmt", c.links}); (got == "") != c.fine {
			t.Errorf("%s links %s: got %q", c.main, c.links, got)
		}
	}
}

func TestNameRuleCanFail(t *testing.T) {
	for file, fine := range map[string]bool{
		"sched/types.go": false, "kube/utils.go": false, "sim/helpers_test.go": false, "grid/common.go": false,
		"grid/tariff.go": true, "sched/constantsignal.go": true, "kube/interface.go": false,
		"energy/constants.go": false,
	} {
		if got := checkFileName(file); (got == "") != fine {
			t.Errorf("%s: got %q", file, got)
		}
	}
}

func TestPurityRuleCanFail(t *testing.T) {
	for text, want := range map[string]string{
		`import "time"; var t = time.Now()`:                                                   "time.Now in the core",
		`import "time"; func f(t time.Time) time.Duration { return time.Since(t) }`:           "time.Since in the core",
		`import clock "time"; var t = clock.Now()`:                                            "time.Now in the core",
		`import . "time"; var t = Now()`:                                                      "dot import",
		`import "time"; func f() { <-time.After(1) }`:                                         "time.After in the core",
		`func f() { go f() }`:                                                                 "goroutine",
		`import "fmt"; func f() { fmt.Println() }`:                                            "fmt.Println in the core",
		`import "time"; func f(t, u time.Time) time.Time { return t.Add(time.Until) }`:        "time.Until in the core",
		`import "time"; func f(s struct{ Now time.Time }) bool { return s.Now.After(s.Now) }`: "",
		`import "fmt"; var s = fmt.Sprint(1)`:                                                 "",
	} {
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, "synthetic.go", "package p\n"+text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(checkPure(set, file), "\n")
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

func TestListenRuleCanFail(t *testing.T) {
	for _, c := range []struct {
		file, to, name string
		wrong          bool
	}{
		{"karmada/metrics.go", "net/http", "Server", true},
		{"karmada/flags.go", "net", "Listen", true},
		{"cmd/kubenergy-power/main.go", "net/http", "ListenAndServe", true},
		{"controller/server/server.go", "google.golang.org/grpc", "NewServer", true},
		{"karmada/estimator.go", "google.golang.org/grpc", "NewServer", false},
		{"daemon/serve.go", "net/http", "Server", false},
		{"karmada/flags.go", "net", "Dial", false},
	} {
		if wrong := checkListens(c.file, c.to, c.name); (wrong != "") != c.wrong {
			t.Errorf("%+v: %q", c, wrong)
		}
	}
}
