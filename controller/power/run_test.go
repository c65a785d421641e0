package power

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched/sleep"
)

// TestRun: the process takes the Lease, sends a machine off through its switch, tells it in an event, and ends when it is
// told to. Its clock is fast.
func TestRun(t *testing.T) {
	var offs atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"off"`) {
			offs.Add(1)
		}
		_, _ = fmt.Fprintf(w, `{"on": true, "uuid": %q}`, someUUID)
	}))
	t.Cleanup(hook.Close)
	w := newWorld(1, 0)
	w.addNode("m0", someUUID, true)
	client := fake.NewClientset(w.nodes["fixed"], w.nodes["m0"])
	view, err := kube.NewView(nil, []*energy.Profile{server}, server.Name)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var record bytes.Buffer
	began, ended := time.Now(), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Client: client, View: func() *kube.View { return view }, Policy: sleep.Policy{MinAwake: 1}, Mode: ModeEnforce,
			Machines: []Machine{{Node: "m0", UUID: someUUID, Kind: KindWebhook, URL: hook.URL}}, Identity: "me",
			Clock:    func() time.Time { return began.Add(100 * time.Since(began)) },
			Loopback: true, Every: 10 * time.Millisecond,
			Record: RecordTo(&record, slog.New(slog.DiscardHandler)),
		})
	}()
	told := func() bool {
		events, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
		for i := range events.Items {
			if e := &events.Items[i]; err == nil && e.Reason == reasonStopping && e.Regarding.Name == "m0" {
				return true
			}
		}
		return false
	}
	for offs.Load() == 0 || !told() {
		if time.Since(began) > 30*time.Second {
			t.Fatal("no machine was sent off, or no event tells")
		}
		time.Sleep(20 * time.Millisecond)
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "m0", metav1.GetOptions{})
	if err != nil || stateOf(n) != sleep.Stopping || !isTainted(n) {
		t.Error(n.Labels, err)
	}
	lease, err := client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(t.Context(), Name, metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "me" {
		t.Error(lease, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
	decisions := 0
	for lines := json.NewDecoder(&record); lines.More(); decisions++ {
		var recorded Recorded
		if err := lines.Decode(&recorded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*recorded.Plan, sleep.Decide(recorded.Snapshot)); diff != "" {
			t.Errorf("a recorded snapshot gives another decision:\n%s", diff)
		}
	}
	if decisions < 2 || decisions > 10 {
		t.Errorf("%d decisions are recorded, want those alone that differ from the one before", decisions)
	}
	if err := Run(t.Context(), Options{Mode: "on"}); err == nil {
		t.Error("a mode that there is not is taken")
	}
}
