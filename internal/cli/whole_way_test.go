package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/server"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// openGate allows all requests.
type openGate struct{}

func (openGate) Require(next http.Handler, _ func(*http.Request) []access.Attributes) http.Handler {
	return next
}

func (openGate) Allowed(context.Context, *access.User, access.Attributes) (bool, error) {
	return true, nil
}

// darkness reports no power.
type darkness struct{}

func (darkness) Nodes() api.NodesPower         { return api.NodesPower{} }
func (darkness) Workloads() api.WorkloadsPower { return api.WorkloadsPower{} }
func (darkness) Pods(string) api.PodsPower     { return api.PodsPower{} }

// Tests the path from the scheduler's recorder through the routes of the controller to a report.
func TestTheWholeWay(t *testing.T) {
	var store ledgertest.Store
	unit := httptest.NewServer(server.New(server.Config{
		Ledger: &store, Live: darkness{}, Gate: openGate{}, Now: func() time.Time { return testNow },
		Client: fake.NewClientBuilder().Build(), Cluster: "home",
	}))
	defer unit.Close()

	begin := testNow.Add(-6 * time.Hour)
	series, err := grid.Constant(begin.Add(-time.Hour), 24*time.Hour, 300)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "de", Carbon: grid.Signal{Series: series}}
	ten := sched.Resources{MilliCPU: 10000, Memory: 64 << 30}
	snapshot := func(at time.Time) *sched.Snapshot {
		return &sched.Snapshot{
			Now: at, Sites: []*sched.Site{site},
			Nodes: []*sched.Node{
				{
					Name: "thrifty", Site: site, Jobs: 1, Capacity: ten,
					Free:    sched.Resources{MilliCPU: 5000, Memory: 32 << 30},
					Profile: &energy.Profile{Idle: 100, Max: 2100, Sleep: 100},
				},
				{
					Name: "wasteful", Site: site, Jobs: 1, Capacity: ten, Free: ten,
					Profile: &energy.Profile{Idle: 100, Max: 3100, Sleep: 100},
				},
			},
			Queue: []sched.Job{{
				ID: "shop/nightly", Submitted: at, Duration: time.Hour,
				Request: sched.Resources{MilliCPU: 5000, Memory: 1 << 30},
			}},
		}
	}
	recorder, err := record.New(apiclient.Options{URL: unit.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	decision := record.Entry{Question: snapshot(begin), Record: ledger.Record{
		Action: record.Hold, At: begin, Namespace: "shop", OwnerKind: "Job", Owner: "nightly", UID: "the-job",
		Strategy: "carbon+window", Start: begin.Add(2 * time.Hour),
	}}
	recorder.Record(&decision)
	start := begin.Add(2 * time.Hour)
	decision.Action, decision.At, decision.UID, decision.Strategy, decision.Node, decision.Question,
		decision.Start = record.Place, start, "the-pod", "carbon", "thrifty", snapshot(start), time.Time{}
	recorder.Record(&decision)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // deliver pending records and return
	if err := recorder.Run(ctx); err != nil {
		t.Fatal(err)
	}

	// The node used 2 kWh for it, but 1 kWh was estimated. Another workload ran before at twice the intensity.
	book := func(node, boot string, from time.Time, kWh, intensity float64, share string, account ledger.Account) {
		amount := energy.Microjoules(kWh * 3.6e12)
		_, errs, err := store.Book(t.Context(), []*ledger.Booking{{
			Batch: &batch.Batch{
				Version: 1, Stream: batch.Stream{Node: node, Boot: boot, Epoch: boot}, First: 1, Last: 1,
				Start: from, End: from.Add(time.Hour),
				EndSinceBoot: time.Hour, Source: "psys", Quality: energy.Measured, IdlePolicy: "apart",
				Measured: amount, Shares: []energy.Share{{ID: share, Dynamic: amount}},
			},
			Received: from.Add(time.Hour), Consumers: []*ledger.Consumer{{Key: share, Pod: "p", Account: account}},
			Rates: ledger.Rates{Site: "de", PUE: 1, Carbon: intensity, Signal: "average", Price: 0.2, Currency: "EUR"},
		}})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
	}
	nightly := ledger.Account{
		Kind: ledger.Workload, Namespace: "shop", OwnerKind: "Job", Owner: "nightly", Strategy: "carbon",
	}
	book("thrifty", "a", begin, 5, 600, "system", ledger.Account{Kind: ledger.System})
	book("thrifty", "b", start, 2, 300, "pod/the-pod", nightly)
	book("thrifty", "c", testNow.Add(-time.Hour), 1, 300, "system", ledger.Account{Kind: ledger.System})
	// Another cluster has a Job with the same name and pod UID. Neither must be confused with the decided Job.
	book("alpha/thrifty", "d", start.Add(time.Hour), 7, 300, "pod/the-pod", nightly)

	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("any"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, scope := range [][]string{{"-A"}, {"-n", "shop"}} {
		args := append([]string{"decisions", "--server", unit.URL, "--token-file", token, "-o", "json"}, scope...)
		code, stdout, stderr := runWithController(t, args...)
		var listed api.Decisions
		if err := json.Unmarshal([]byte(stdout), &listed); err != nil || code != 0 {
			t.Fatalf("%v: exit code %d: %s%v", args, code, stderr, err)
		}
		if d := listed.Decisions; len(d) != 2 || d[0].UID != "the-pod" || d[1].UID != "the-job" || d[0].Energy <= 0 ||
			d[0].Snapshot != nil {
			t.Errorf("%v: unexpected decisions %+v", args, d)
		}
		args = append([]string{
			"decisions", "--server", unit.URL, "--token-file", token, "--action", "hold", "--snapshot", "job/nightly",
		}, scope...)
		if code, stdout, stderr := runWithController(t, args...); code != 0 || !strings.Contains(stdout, `"wasteful"`) {
			t.Errorf("%v: exit code %d: %s%s", args, code, stdout, stderr)
		}
	}
	for _, namespace := range [][]string{nil, {"-n", "shop"}} {
		args := append([]string{
			"report", "--server", unit.URL, "--token-file", token, "--from", "-12h", "--group-by", "strategy", "-o",
			"json",
		}, namespace...)
		code, stdout, stderr := runWithController(t, args...)
		if code != 0 {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		var s report.Statement
		if err := json.Unmarshal([]byte(stdout), &s); err != nil {
			t.Fatal(err)
		}
		row := s.Rows[len(s.Rows)-1]
		if len(row.Key) != 1 || row.Key[0] != "carbon" || row.Saved == nil || row.Jobs != 1 ||
			*row.TurnaroundHours < 2.99 || *row.TurnaroundHours > 3.01 {
			t.Fatalf("%v: unexpected row %+v", args, row)
		}
		// 3 kWh at 600 g would have been 1.8 kg. The actual emissions of 2 kWh at 300 g were 0.6 kg.
		carbon := row.Saved.Emissions["average"].Saved
		if saved := row.Saved.Energy.Saved; saved < 0.999 || saved > 1.001 {
			t.Errorf("%v: unexpected saving of %v kWh", args, saved)
		}
		if carbon < 1.199 || carbon > 1.201 || s.Savings.Forecast != 0 || s.Savings.Held != 1 {
			t.Errorf("%v: unexpected saving of %v kg, %d by forecast, %d held", args, carbon, s.Savings.Forecast, s.Savings.Held)
		}
	}
	code, stdout, stderr := runWithController(t, "report", "--server", unit.URL, "--token-file", token, "--from", "-12h",
		"--group-by", "cluster,namespace", "-o", "json")
	var s report.Statement
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != 0 {
		t.Fatalf("exit code %d: %s%v", code, stderr, err)
	}
	kWh := map[string]float64{}
	for i := range s.Rows {
		kWh[strings.Join(s.Rows[i].Key, "/")] = s.Rows[i].EnergyKWh
	}
	if diff := cmp.Diff(map[string]float64{"home/": 6, "home/shop": 2, "alpha/shop": 7}, kWh); diff != "" {
		t.Errorf("unexpected energy by cluster and namespace (-want +got):\n%s", diff)
	}
	for _, args := range [][]string{
		{"top", "nodes"},
		{"top", "pods", "-A"},
		{"top", "pods", "-n", "shop"},
		{"report", "--group-by", "pod,hour"},
		{"report", "--group-by", "node,day,site"},
	} {
		if code, _, stderr := runWithController(t, append(args, "--server", unit.URL, "--token-file", token)...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, stderr)
		}
	}
}
