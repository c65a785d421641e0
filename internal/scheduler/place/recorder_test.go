package place

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// recorded runs a test with a recorder and returns the records that the controller receives.
func recorded(t *testing.T, test func(*record.Recorder)) []ledger.Record {
	t.Helper()
	arrived := make(chan []ledger.Record, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		var body struct{ Decisions []ledger.Record }
		if err := json.NewDecoder(q.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		arrived <- body.Decisions
	}))
	defer server.Close()
	r, err := record.New(apiclient.Options{URL: server.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	test(r)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // Run delivers the pending records and returns
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	close(arrived)
	var all []ledger.Record
	for batch := range arrived {
		all = append(all, batch...)
	}
	return all
}

func reserve(t *testing.T, e *Energy, pod *v1.Pod, nodes []fwk.NodeInfo, chosen string) {
	t.Helper()
	state := newCycle()
	score(t.Context(), e, state, pod, nodes)
	if status := e.Reserve(t.Context(), state, pod, chosen); !status.IsSuccess() {
		t.Fatal(status)
	}
	e.PostBind(t.Context(), state, pod, chosen)
}

// unpacked decodes the snapshot of a record.
func unpacked(t *testing.T, packed []byte) *sched.Snapshot {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	s, err := codec.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDecisionsAreRecorded(t *testing.T) {
	nodes := []fwk.NodeInfo{
		newMachine("a", "coal", "hungry"), newMachine("b", "wind", "frugal"), newMachine("c", "wind", "hungry"),
	}
	got := recorded(t, func(r *record.Recorder) {
		d := deps(knowledge(t, noon))
		d.Recorder = r
		e := newEnergyPlugin(t, d, "")
		pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
		pod.UID = "uid-1"
		reserve(t, e, pod, nodes, "b")
		reserve(t, e, newPod(), nodes, "a") // an unmarked pod
		single := newPod(v1alpha1.AnnotationStrategy, "energy")
		single.UID = "uid-2"
		state := newCycle() // a single feasible node is not scored
		e.PreFilter(t.Context(), state, single, nodes)
		e.Reserve(t.Context(), state, single, "c")
		e.PostBind(t.Context(), state, single, "c")
	})
	if len(got) != 2 {
		t.Fatalf("%d records", len(got))
	}
	first, second := got[0], got[1]
	if first.UID != "uid-1" || first.Node != "b" || first.Strategy != "carbon" || first.OwnerName() != "Pod/p" ||
		first.Energy <= 0 || first.Intensity != 100 {
		t.Errorf("recorded %+v", first)
	}
	s := unpacked(t, first.Snapshot)
	plan, err := replay(s, first.Strategy)
	if err != nil || plan[0].Node != "b" || plan[0].Cost.Energy != first.Energy {
		t.Errorf("the replayed decision is %+v, error %v", plan, err)
	}
	if second.UID != "uid-2" || second.Snapshot != nil || second.Message == "" || second.Reason != "NoOpinion" {
		t.Errorf("the record of a pod that was not scored is %+v", second)
	}
}

// TestOnlyWhatWasBoundIsRecorded verifies that only bound placements are recorded, even if other pods are scheduled
// between Reserve and PostBind.
func TestOnlyWhatWasBoundIsRecorded(t *testing.T) {
	nodes := []fwk.NodeInfo{newMachine("a", "coal", "hungry"), newMachine("b", "wind", "frugal")}
	got := recorded(t, func(r *record.Recorder) {
		d := deps(knowledge(t, noon))
		d.Recorder = r
		e := newEnergyPlugin(t, d, "")
		decide := func(uid types.UID) (*cycle, *v1.Pod) {
			pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
			pod.UID, pod.Name = uid, string(uid)
			state := newCycle()
			score(t.Context(), e, state, pod, nodes)
			e.Reserve(t.Context(), state, pod, "b")
			return state, pod
		}
		failed, pod := decide("failed")
		bound, other := decide("bound")
		e.Unreserve(t.Context(), failed, pod, "b")
		e.PostBind(t.Context(), bound, other, "b")
		again, pod := decide("failed")
		e.PostBind(t.Context(), again, pod, "b")
		e.PostBind(t.Context(), again, pod, "b") // a second call has no effect
	})
	if len(got) != 2 || got[0].UID != "bound" || got[1].UID != "failed" {
		t.Fatalf("recorded %+v", got)
	}
	for i := range got {
		z, err := gzip.NewReader(bytes.NewReader(got[i].Snapshot))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := codec.Decode(text); err != nil || s.Queue[0].ID != "lab/"+got[i].UID {
			t.Errorf("the snapshot of %s is %+v, %v", got[i].UID, s, err)
		}
	}
}

// TestNoRecorderNoCost verifies that Reserve has no overhead if recording is disabled.
func TestNoRecorderNoCost(t *testing.T) {
	nodes := farm(100)
	pod := newPod(v1alpha1.AnnotationStrategy, "carbon")
	count := func(d Deps) float64 {
		e := newEnergyPlugin(t, d, "")
		state := newCycle()
		score(t.Context(), e, state, pod, nodes)
		return testing.AllocsPerRun(100, func() { e.Reserve(t.Context(), state, pod, "n0001") })
	}
	off := count(deps(knowledge(t, noon)))
	if off > 1 { // one allocation is for the name of the last node
		t.Errorf("without a recorder Reserve allocates %v times", off)
	}
	unmarked := newPod()
	r, err := record.New(apiclient.Options{URL: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	d := deps(knowledge(t, noon))
	d.Recorder = r
	e := newEnergyPlugin(t, d, "")
	state := newCycle()
	if n := testing.AllocsPerRun(100, func() { e.Reserve(t.Context(), state, unmarked, "n0001") }); n != 0 {
		t.Errorf("with a recorder, Reserve of an unmarked pod allocates %v times", n)
	}
}

func BenchmarkReserveRecorded1000(b *testing.B) {
	r, err := record.New(apiclient.Options{URL: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	d := deps(knowledge(b, noon))
	d.Recorder = r
	e := newEnergyPlugin(b, d, "")
	nodes, pod := farm(1000), newPod(v1alpha1.AnnotationStrategy, "carbon")
	for b.Loop() {
		b.StopTimer()
		state := newCycle()
		score(b.Context(), e, state, pod, nodes)
		b.StartTimer()
		e.Reserve(b.Context(), state, pod, "n0001")
		e.PostBind(b.Context(), state, pod, "n0001")
	}
}

// replay plans a snapshot with the strategy of the given name.
func replay(s *sched.Snapshot, name string) (sched.Plan, error) {
	g, err := strategy.New(name)
	if err != nil {
		return nil, err
	}
	return g.Plan(s), nil
}

// TestPlacementsAreCounted verifies that placements are counted once they are bound, even if they are not recorded.
func TestPlacementsAreCounted(t *testing.T) {
	count := func(name, reason string) float64 {
		of, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "kubenergy_decisions_total",
			map[string]string{"action": record.Place, "strategy": name}, "reason")
		if err != nil {
			return 0 // no decision has been counted yet
		}
		return of[reason]
	}
	nodes := []fwk.NodeInfo{newMachine("a", "coal", "hungry"), newMachine("b", "wind", "frugal")}
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	scored, unscored := count("energy", "Cheapest"), count("energy", "NoOpinion")
	pod := newPod(v1alpha1.AnnotationStrategy, "energy")
	reserve(t, e, pod, nodes, "b")
	for _, bound := range []bool{false, true} { // a single feasible node is not scored
		state := newCycle()
		e.PreFilter(t.Context(), state, pod, nodes)
		e.Reserve(t.Context(), state, pod, "a")
		if bound {
			e.PostBind(t.Context(), state, pod, "a")
		} else {
			e.Unreserve(t.Context(), state, pod, "a")
		}
	}
	if got := count("energy", "Cheapest") - scored; got != 1 {
		t.Errorf("%v scored placements are counted", got)
	}
	if got := count("energy", "NoOpinion") - unscored; got != 1 {
		t.Errorf("%v placements without scores are counted", got)
	}
}
