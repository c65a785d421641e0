package place

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// score runs the extension points of a cycle up to PreScore.
func score(ctx context.Context, e *Energy, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if _, status := e.PreFilter(ctx, state, pod, nodes); !status.IsSuccess() && !status.IsSkip() {
		return status
	}
	return e.PreScore(ctx, state, pod, nodes)
}

// play runs the scoring part of a scheduling cycle. It returns "skip", or the scores of all nodes.
func play(t *testing.T, e *Energy, pod *v1.Pod, nodes []fwk.NodeInfo) string {
	t.Helper()
	state := newCycle()
	status := score(t.Context(), e, state, pod, nodes)
	switch {
	case status.IsSkip():
		return "skip"
	case !status.IsSuccess():
		t.Fatalf("PreScore rejects the pod: %v", status)
	}
	var parts []string
	for _, s := range points(t, e, state, pod, nodes) {
		parts = append(parts, fmt.Sprintf("%s=%d", s.Name, s.Score))
	}
	return strings.Join(parts, " ")
}

// points runs Score and NormalizeScore.
func points(t *testing.T, e *Energy, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) fwk.NodeScoreList {
	t.Helper()
	var all fwk.NodeScoreList
	for _, n := range nodes {
		score, status := e.Score(t.Context(), state, pod, n)
		if !status.IsSuccess() {
			t.Fatalf("Score rejects the pod: %v", status)
		}
		all = append(all, fwk.NodeScore{Name: n.Node().Name, Score: score})
	}
	if status := e.ScoreExtensions().NormalizeScore(t.Context(), state, pod, all); !status.IsSuccess() {
		t.Fatalf("NormalizeScore rejects the pod: %v", status)
	}
	return all
}

const header = `"apiVersion":"kubescheduler.config.kubenergy.io/v1alpha1","kind":"KubEnergyArgs"`

func TestEnergyScores(t *testing.T) {
	all := `{` + header + `,"scope":"All"}`
	four := func() []fwk.NodeInfo {
		return []fwk.NodeInfo{
			newMachine("a", "coal", "hungry"), newMachine("b", "coal", "frugal"),
			newMachine("c", "wind", "hungry"), newMachine("d", "wind", "frugal"),
		}
	}
	twins := func() []fwk.NodeInfo {
		return []fwk.NodeInfo{
			newMachine("z", "wind", "frugal"), newMachine("y", "wind", "frugal"), newMachine("x", "coal", "frugal"),
		}
	}
	unknown := func() []fwk.NodeInfo { return append(four(), newMachine("e", "wind", "unheard-of")) }
	fresh, stale := noon, noon.Add(-2*time.Hour)
	for _, tc := range []struct {
		name  string
		args  string
		pod   *v1.Pod
		nodes []fwk.NodeInfo
		asOf  time.Time
		want  string
	}{
		{name: "unmarked", pod: newPod(), nodes: four(), asOf: fresh, want: "skip"},
		{name: "other annotations", pod: newPod("team", "x"), nodes: four(), asOf: fresh, want: "skip"},
		{
			name: "an invalid annotation is ignored", pod: newPod(v1alpha1.AnnotationStrategy, "best"), nodes: four(),
			asOf: fresh,
			want: "skip",
		},
		{
			name: "one of two annotations is invalid", pod: newPod(v1alpha1.AnnotationStrategy, "carbon",
				v1alpha1.AnnotationFinishBy, "?"),
			nodes: four(), asOf: fresh, want: "skip",
		},
		{
			name: "carbon", pod: newPod(v1alpha1.AnnotationStrategy, "carbon"), nodes: four(), asOf: fresh,
			want: "a=0 b=85 c=81 d=100",
		},
		{
			name: "the hold rule is ignored", pod: newPod(v1alpha1.AnnotationStrategy, "carbon+window"),
			nodes: four(), asOf: fresh, want: "a=0 b=85 c=81 d=100",
		},
		{
			name: "energy", pod: newPod(v1alpha1.AnnotationStrategy, "energy"), nodes: four(), asOf: fresh,
			want: "a=0 b=100 c=0 d=99",
		},
		{
			name: "marked by its delay", pod: newPod(v1alpha1.AnnotationAllowedDelay, "1h"), nodes: four(), asOf: fresh,
			want: "a=0 b=85 c=81 d=100",
		},
		{
			name: "the profile's own strategy", args: `{` + header + `,"strategy":"energy"}`,
			pod: newPod(v1alpha1.AnnotationAllowedDelay, "1h"), nodes: four(), asOf: fresh, want: "a=0 b=100 c=0 d=99",
		},
		{
			name: "every pod of the profile", args: all, pod: newPod(), nodes: four(), asOf: fresh,
			want: "a=0 b=85 c=81 d=100",
		},
		{
			name: "an invalid annotation is ignored, too", args: all, pod: newPod(v1alpha1.AnnotationStrategy, "best"),
			nodes: four(), asOf: fresh, want: "a=0 b=85 c=81 d=100",
		},
		{
			name: "stale signals", pod: newPod(v1alpha1.AnnotationStrategy, "carbon"), nodes: four(), asOf: stale,
			want: "skip",
		},
		{
			name: "energy needs no signal", pod: newPod(v1alpha1.AnnotationStrategy, "energy"), nodes: four(),
			asOf: stale,
			want: "a=0 b=100 c=0 d=99",
		},
		{
			name: "a node without a profile", pod: newPod(v1alpha1.AnnotationStrategy, "energy"),
			nodes: unknown(),
			asOf:  fresh, want: "skip",
		},
		{
			name: "ties are broken by name, and one node gets 100", pod: newPod(v1alpha1.AnnotationStrategy, "carbon"),
			nodes: twins(), asOf: fresh, want: "z=99 y=100 x=0",
		},
		{
			name: "all alike", pod: newPod(v1alpha1.AnnotationStrategy, "energy"), nodes: twins(), asOf: fresh,
			want: "z=99 y=99 x=100",
		},
		{
			name: "round-robin begins", pod: newPod(v1alpha1.AnnotationStrategy, "round-robin"), nodes: four(),
			asOf: fresh,
			want: "a=100 b=99 c=99 d=99",
		},
		{name: "no nodes", pod: newPod(v1alpha1.AnnotationStrategy, "carbon"), asOf: fresh, want: "skip"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEnergyPlugin(t, deps(knowledge(t, tc.asOf)), tc.args)
			for range 2 { // buffers are reused
				if got := play(t, e, tc.pod, tc.nodes); got != tc.want {
					t.Errorf("got  %s\nwant %s", got, tc.want)
				}
			}
		})
	}
}

func TestEnergyKnowsNothing(t *testing.T) {
	nodes := []fwk.NodeInfo{newMachine("a", "coal", "hungry"), newMachine("b", "coal", "frugal")}
	e := newEnergyPlugin(t, Deps{}, "")
	if got := play(t, e, newPod(v1alpha1.AnnotationStrategy, "carbon"), nodes); got != "skip" {
		t.Errorf("got %s", got)
	}
}

func TestReserveTurnsTheRoundRobin(t *testing.T) {
	nodes := []fwk.NodeInfo{
		newMachine("a", "coal", "hungry"), newMachine("b", "coal", "frugal"), newMachine("c", "wind", "frugal"),
	}
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	pod := newPod(v1alpha1.AnnotationStrategy, "round-robin")
	for _, step := range []struct{ chosen, want string }{
		{"a", "a=0 b=100 c=99"},
		{"b", "a=0 b=0 c=100"},
		{"c", "a=100 b=99 c=99"},
	} {
		for _, cycle := range []struct {
			pod  *v1.Pod
			node string
		}{{pod, step.chosen}, {newPod(), "b"}} { // unmarked pods are ignored
			state := newCycle()
			e.PreFilter(t.Context(), state, cycle.pod, nodes)
			e.Reserve(t.Context(), state, cycle.pod, cycle.node)
		}
		if got := play(t, e, pod, nodes); got != step.want {
			t.Errorf("after %s: got %s, want %s", step.chosen, got, step.want)
		}
	}
}

func TestEmptyNodes(t *testing.T) {
	yes := true
	daemon := runningPod{pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		OwnerReferences: []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}},
	}}}
	for _, tc := range []struct {
		name string
		pods []fwk.PodInfo
		want int
	}{
		{"nothing", nil, 0},
		{"daemons only", []fwk.PodInfo{daemon, daemon}, 0},
		{"a daemon and a job", []fwk.PodInfo{daemon, runningPod{pod: &v1.Pod{}}}, 2},
	} {
		if got := workloads(tc.pods); got != tc.want {
			t.Errorf("%s: %d workloads, want %d", tc.name, got, tc.want)
		}
	}
}

func TestSignPod(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	sign := func(pod *v1.Pod) string {
		fragments, status := e.SignPod(t.Context(), pod)
		if !status.IsSuccess() {
			return status.Code().String()
		}
		text, err := json.Marshal(fragments)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		want string
	}{
		{"unmarked", newPod(), "null"},
		{"nonsense", newPod(v1alpha1.AnnotationStrategy, "best"), "null"},
		{"depends on the pod before", newPod(v1alpha1.AnnotationStrategy, "round-robin"), "Unschedulable"},
		{"depends on the pod's name", newPod(v1alpha1.AnnotationStrategy, "random"), "Unschedulable"},
		{"depends on the other nodes", newPod(v1alpha1.AnnotationStrategy, "ecsched-dp"), "Unschedulable"},
		{
			"scored", newPod(v1alpha1.AnnotationStrategy, "carbon", v1alpha1.AnnotationExpectedDuration, "2h"),
			`[{"Key":"kubenergy.io/KubEnergy","Value":{"Where":"carbon","Duration":7200000000000,"Request":{"MilliCPU":1000,"Memory":1073741824,"GPU":0}}}]`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, sign(tc.pod)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestSignaturesTellApart verifies that pods with different scores have different signatures, for each property
// separately.
func TestSignaturesTellApart(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	seen := map[string]string{}
	for _, extra := range [][]string{
		nil,
		{v1alpha1.AnnotationStrategy, "least-allocated"},
		{v1alpha1.AnnotationExpectedDuration, "2h"},
		{v1alpha1.AnnotationGPUWorkloadType, "inference"},
		{v1alpha1.AnnotationCarbonCounts, "false"},
		{v1alpha1.AnnotationPUE, "1.3"},
		{v1alpha1.AnnotationMaxPower, "300"},
		{v1alpha1.AnnotationMinEfficiency, "2"},
	} {
		pod := newPod(append([]string{v1alpha1.AnnotationStrategy, "carbon"}, extra...)...)
		fragments, status := e.SignPod(t.Context(), pod)
		text, err := json.Marshal(fragments)
		if err != nil || !status.IsSuccess() {
			t.Fatal(status, err)
		}
		if other, twice := seen[string(text)]; twice {
			t.Errorf("the signatures with %q and %q are equal: %s", extra, other, text)
		}
		seen[string(text)] = fmt.Sprint(extra)
	}
}

func TestPanicsMeanStock(t *testing.T) {
	t.Cleanup(panics.Reset)
	d := deps(knowledge(t, noon))
	d.View = func() *kube.View { panic("view source failed") }
	e := newEnergyPlugin(t, d, "")
	pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
	for range 2 {
		if status := score(t.Context(), e, newCycle(), pod, farm(3)); !status.IsSkip() {
			t.Errorf("PreScore: %v", status)
		}
	}
	state := newCycle()
	state.Write(requestKey, notARequest{})
	for _, view := range []func() *kube.View{e.view, func() *kube.View { return knowledge(t, noon) }} {
		e.view = view
		if got := points(t, e, state, pod, farm(1)); got[0].Score != 0 {
			t.Errorf("scores are %v", got)
		}
		if got := points(t, e, newCycle(), pod, farm(1)); got[0].Score != 0 {
			t.Errorf("without PreScore, scores are %v", got)
		}
		if status := e.Reserve(t.Context(), state, pod, "n0000"); !status.IsSuccess() {
			t.Errorf("Reserve: %v", status)
		}
	}
}

// TestAPanicAtEachPoint verifies that a panic at any extension point is counted, and that the result is that of an
// unmodified kube-scheduler.
func TestAPanicAtEachPoint(t *testing.T) {
	ctx, pod, nodes := t.Context(), newPod(v1alpha1.AnnotationStrategy, "carbon"), farm(3)
	scores := fwk.NodeScoreList{{Name: "n0000", Score: 7}, {Name: "n0001", Score: 9}}
	for point, c := range map[string]struct {
		call func(e *Energy, s fwk.CycleState) *fwk.Status
		want fwk.Code
	}{
		"PreFilter": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			result, status := e.PreFilter(ctx, s, pod, nodes)
			if result != nil {
				t.Errorf("the cycle is narrowed to %v", result)
			}
			return status
		}, fwk.Skip},
		"Filter": {func(e *Energy, s fwk.CycleState) *fwk.Status { return e.Filter(ctx, s, pod, nodes[0]) }, fwk.Success},
		"PostFilter": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			_, status := e.PostFilter(ctx, s, pod, nil)
			return status
		}, fwk.Unschedulable},
		"PreScore": {func(e *Energy, s fwk.CycleState) *fwk.Status { return e.PreScore(ctx, s, pod, nodes) }, fwk.Skip},
		"NormalizeScore": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			return e.NormalizeScore(ctx, s, pod, scores)
		}, fwk.Success},
		"Reserve": {func(e *Energy, s fwk.CycleState) *fwk.Status { return e.Reserve(ctx, s, pod, "n0000") }, fwk.Success},
		"Unreserve": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			e.Unreserve(ctx, s, pod, "n0000")
			return nil
		}, fwk.Success},
		"PostBind": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			e.PostBind(ctx, s, pod, "n0000")
			return nil
		}, fwk.Success},
		"SignPod": {func(e *Energy, s fwk.CycleState) *fwk.Status {
			_, status := e.SignPod(ctx, pod)
			return status
		}, fwk.Unschedulable},
	} {
		panics.Reset()
		e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
		e.view, e.recorder = func() *kube.View { panic("planted") }, new(record.Recorder)
		state := newCycle()
		state.Write(requestKey, notARequest{})
		state.Write(draftKey, notARequest{})
		if status := c.call(e, state); status.Code() != c.want {
			t.Errorf("the result of %s is %v", point, status)
		}
		if again := panics.Note("plugin"); again != 2 {
			t.Errorf("%s: %d panics are counted", point, again-1)
		}
	}
	if scores[0].Score != 0 || scores[1].Score != 0 {
		t.Errorf("scores are %v", scores)
	}
	panics.Reset()
}

// TestThreePanicsBreakTheCircuit verifies that after three panics within a minute, all pods are scheduled as by an
// unmodified kube-scheduler.
func TestThreePanicsBreakTheCircuit(t *testing.T) {
	t.Cleanup(panics.Reset)
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
	healthy := e.view
	scores := func() bool { return score(t.Context(), e, newCycle(), pod, farm(3)).IsSuccess() }
	planted := 0
	for planted < 3 {
		e.view = healthy
		if !scores() {
			t.Fatalf("the plugin does not score after %d panics", planted)
		}
		e.view = func() *kube.View { planted++; panic("planted") }
		if scores() {
			t.Fatal("the plugin scores despite a panic")
		}
	}
	e.view = healthy
	if scores() {
		t.Errorf("the plugin scores after %d panics", planted)
	}
}

type notARequest struct{}

func (n notARequest) Clone() fwk.StateData { return n }

// TestEnergyWaitsForNodesOnly verifies that a pod rejected by Filter is only retried when nodes are added or
// updated.
func TestEnergyWaitsForNodesOnly(t *testing.T) {
	events, err := newEnergyPlugin(t, Deps{}, "").EventsToRegister(t.Context())
	if err != nil || len(events) != 1 || events[0].Event.Resource != fwk.Node {
		t.Errorf("events %v, %v, want those of nodes", events, err)
	}
}

func TestFilter(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	frugal, hungry, unknown := newMachine("a", "coal", "frugal"), newMachine("b", "coal", "hungry"),
		newMachine("c", "coal", "other")
	nodes := []fwk.NodeInfo{frugal, hungry, unknown}
	for _, tc := range []struct {
		name string
		pod  *v1.Pod
		skip bool
		want string // nodes that pass the filter
	}{
		{name: "nothing asked", pod: newPod(v1alpha1.AnnotationStrategy, "carbon"), skip: true, want: "a b c"},
		{name: "power", pod: newPod(v1alpha1.AnnotationMaxPower, "150"), want: "a c"},
		{
			name: "alias", pod: newPod("compute-gardener-scheduler.kubernetes.io/max-power-watts",
				"150"),
			want: "a c",
		},
		{name: "efficiency", pod: newPod(v1alpha1.AnnotationMinEfficiency, "1000"), want: "c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := newCycle()
			if _, status := e.PreFilter(t.Context(), state, tc.pod, nodes); status.IsSkip() != tc.skip {
				t.Fatalf("PreFilter() = %v", status)
			}
			var pass []string
			for _, n := range nodes {
				if e.Filter(t.Context(), state, tc.pod, n).IsSuccess() {
					pass = append(pass, n.Node().Name)
				}
			}
			if got := strings.Join(pass, " "); got != tc.want {
				t.Errorf("%s pass, want %s", got, tc.want)
			}
			if points := play(t, e, tc.pod, nodes[:2]); points == "skip" {
				t.Error("the pod is not scored")
			}
		})
	}
}

// TestNodesComeAndGo verifies that the plugin only uses the nodes that the scheduler passes to it when nodes are
// deleted and recreated.
func TestNodesComeAndGo(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
	for range 3 {
		both := []fwk.NodeInfo{newMachine("a", "coal", "hungry"), newMachine("b", "coal", "frugal")}
		if got := play(t, e, pod, both); got != "a=0 b=100" {
			t.Errorf("with both: %s", got)
		}
		// A different machine has the same name.
		if got := play(t, e, pod, []fwk.NodeInfo{newMachine("a", "wind", "frugal"), both[1]}); got != "a=100 b=0" {
			t.Errorf("with another a: %s", got)
		}
		if got := play(t, e, pod, both[1:]); got != "b=100" {
			t.Errorf("without a: %s", got)
		}
	}
}

func TestScoringAllocatesNothing(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	pod, nodes, state, ctx := newPod(v1alpha1.AnnotationStrategy, "carbon"), farm(50), newCycle(), context.Background()
	if status := score(ctx, e, state, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := points(t, e, state, pod, nodes)
	for point, run := range map[string]func(){
		"Score":          func() { e.Score(ctx, state, pod, nodes[17]) },
		"NormalizeScore": func() { e.NormalizeScore(ctx, state, pod, scores) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times", point, n)
		}
	}
	// Regardless of the number of nodes, memory is only allocated by the strategy when it prices nodes, once per
	// site.
	if n := testing.AllocsPerRun(100, func() { e.PreScore(ctx, state, pod, nodes) }); n > 2 {
		t.Errorf("PreScore allocates %v times", n)
	}
}

// TestOthersPodsCostNothing verifies that unmarked pods are skipped wherever possible without allocating memory.
func TestOthersPodsCostNothing(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	pod, nodes, ctx := newPod("team", "x"), farm(50), context.Background()
	state := newCycle()
	if _, status := e.PreFilter(ctx, state, pod, nodes); !status.IsSkip() {
		t.Errorf("PreFilter: %v", status)
	}
	if status := e.PreScore(ctx, state, pod, nodes); !status.IsSkip() {
		t.Errorf("PreScore: %v", status)
	}
	if fragments, status := e.SignPod(ctx, pod); fragments != nil || status != nil {
		t.Errorf("SignPod: %v, %v", fragments, status)
	}
	for point, run := range map[string]func(){
		"PreFilter": func() { e.PreFilter(ctx, state, pod, nodes) },
		"PreScore":  func() { e.PreScore(ctx, state, pod, nodes) },
		"Reserve":   func() { e.Reserve(ctx, state, pod, "n0001") },
		"PostBind":  func() { e.PostBind(ctx, state, pod, "n0001") },
		"SignPod":   func() { e.SignPod(ctx, pod) },
	} {
		if n := testing.AllocsPerRun(100, run); n != 0 {
			t.Errorf("%s allocates %v times", point, n)
		}
	}
	if len(state.stored) > 0 {
		t.Errorf("the cycle state contains %v", state.stored)
	}
}

// BenchmarkPoints measures each extension point with 500 feasible nodes out of 5,000, which is the number that
// kube-scheduler scores by default.
func BenchmarkPoints(b *testing.B) {
	e := newEnergyPlugin(b, deps(knowledge(b, noon)), "")
	cluster, ctx := farm(5000), context.Background()
	nodes := cluster[2000:2500]
	for _, bc := range []struct {
		name string
		pod  *v1.Pod
	}{{"unmarked", newPod("team", "x")}, {"carbon", newPod(v1alpha1.AnnotationStrategy, "carbon")}} {
		state, pod := newCycle(), bc.pod
		e.PreFilter(ctx, state, pod, cluster)
		e.PreScore(ctx, state, pod, nodes)
		scores := make(fwk.NodeScoreList, len(nodes))
		for i, n := range nodes {
			scores[i].Name = n.Node().Name
		}
		for _, point := range []struct {
			name string
			run  func()
		}{
			{"SignPod", func() { e.SignPod(ctx, pod) }},
			{"PreFilter", func() { e.PreFilter(ctx, state, pod, cluster) }},
			{"PreScore", func() { e.PreScore(ctx, state, pod, nodes) }},
			{"Score", func() { e.Score(ctx, state, pod, nodes[7]) }},
			{"NormalizeScore", func() { e.NormalizeScore(ctx, state, pod, scores) }},
			{"Reserve", func() { e.Reserve(ctx, state, pod, "n0001") }},
			{"PostBind", func() { e.PostBind(ctx, state, pod, "n0001") }},
		} {
			b.Run(bc.name+"/"+point.name, func(b *testing.B) {
				e.PreFilter(ctx, state, pod, cluster)
				e.PreScore(ctx, state, pod, nodes)
				b.ReportAllocs()
				for b.Loop() {
					point.run()
				}
			})
		}
	}
}

// BenchmarkPreScore measures PreScore by strategy and number of nodes.
func BenchmarkPreScore(b *testing.B) {
	cluster, ctx := farm(5000), context.Background()
	for _, strategy := range []string{"carbon", "energy", "ecsched-dp"} {
		for _, n := range []int{500, 5000} {
			b.Run(fmt.Sprintf("%s/%d", strategy, n), func(b *testing.B) {
				e, state, pod := newEnergyPlugin(b, deps(knowledge(b, noon)), ""), newCycle(),
					newPod(v1alpha1.AnnotationStrategy, strategy)
				e.PreFilter(ctx, state, pod, cluster)
				b.ReportAllocs()
				for b.Loop() {
					if status := e.PreScore(ctx, state, pod, cluster[:n]); !status.IsSuccess() {
						b.Fatal(status)
					}
				}
			})
		}
	}
}
