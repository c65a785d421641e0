package power

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// TestRun verifies that the process acquires the Lease, shuts a machine down through its switch, records an event,
// and stops when its context is done. Its clock is fast.
func TestRun(t *testing.T) {
	off, reported := make(chan struct{}, 1), make(chan struct{}, 1)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), `"off"`) {
			daemon.Poke(off)
		}
		_, _ = fmt.Fprintf(w, `{"on": true, "uuid": %q}`, someUUID)
	}))
	t.Cleanup(hook.Close)
	w := newWorld(1, 0)
	w.addNode("m0", someUUID, true)
	client := fake.NewClientset(w.nodes["fixed"], w.nodes["m0"])
	client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		e, ok := a.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		if ok && e.Reason == reasonStopping && e.Regarding.Name == "m0" {
			daemon.Poke(reported)
		}
		return false, nil, nil
	})
	view, err := kube.NewView(nil, []*energy.Profile{server}, server.Name)
	if err != nil {
		t.Fatal(err)
	}
	probes, err := net.Listen("tcp", "127.0.0.1:0")
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
			Loopback: true, Every: 10 * time.Millisecond, Probes: probes,
			Record: RecordTo(&record, slog.New(slog.DiscardHandler)),
		})
	}()
	timeout := time.After(30 * time.Second)
	for _, happens := range []chan struct{}{off, reported} {
		select {
		case <-happens:
		case <-timeout:
			t.Fatal("no machine was shut down, or no event was recorded")
		}
	}
	n, err := client.CoreV1().Nodes().Get(t.Context(), "m0", metav1.GetOptions{})
	if err != nil || kube.PowerState(n) != sleep.Stopping || !isTainted(n) {
		t.Error(n.Labels, err)
	}
	lease, err := client.CoordinationV1().Leases(v1alpha1.SystemNamespace).Get(t.Context(), Name, metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "me" {
		t.Error(lease, err)
	}
	answer, err := http.Get("http://" + probes.Addr().String() + "/healthz")
	if err != nil || answer.Body.Close() != nil || answer.StatusCode != http.StatusOK {
		t.Error(answer, err)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Run() does not return")
	}
	decisions := 0
	for lines := json.NewDecoder(&record); lines.More(); decisions++ {
		var recorded Recorded
		if err := lines.Decode(&recorded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*recorded.Plan, sleep.Decide(recorded.Snapshot)); diff != "" {
			t.Errorf("a recorded snapshot yields a different decision:\n%s", diff)
		}
	}
	if decisions < 2 || decisions > 10 {
		t.Errorf("%d decisions are recorded, want only decisions that differ from the previous one", decisions)
	}
}
