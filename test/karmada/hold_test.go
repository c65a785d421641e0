package karmada

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/karmada"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
)

var mayWait = map[string]string{"kubenergy.io/allowed-delay": "1h", "kubenergy.io/expected-duration": "10m"}

// held reports whether the binding of a Job is suspended.
func (c *scene) held(name string) bool {
	c.Helper()
	o := c.said(name).object
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspension", "scheduling")
	if marked := o.GetLabels()["kubenergy.io/held"] == "true"; marked != suspended {
		c.Errorf("binding of %s: label held %v, want %v as in its suspension", name, marked, suspended)
	}
	return suspended
}

// controllerAlone verifies that, without kubenergy-karmada, the controller of the federation releases bindings of
// Jobs that are not held, using its own permissions.
func (s *stage) controllerAlone(t *testing.T) {
	c := s.in(t, "alone", "")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		client := dynamic.NewForConfigOrDie(s.account("kubenergy-controller"))
		ended <- release.Bindings(ctx, client, func() bool { return true }, release.NewHeld(), slog.New(slog.DiscardHandler))
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c.sends("now", work{stock: true})
	c.sends("waits", work{stock: true, annotations: mayWait})
	shadow := s.in(t, "unheld", "kubenergy.io/mode: shadow")
	shadow.sends("s", work{stock: true})
	if !c.held("now") || !c.held("waits") || shadow.held("s") {
		t.Fatal("expected only bindings of Jobs in namespaces with the mode enforce to be suspended")
	}
	began := time.Now()
	c.await(15*time.Second, "the binding of the Job that is not held is released",
		func() bool { return !c.held("now") })
	if took := time.Since(began); took < 3*time.Second {
		t.Errorf("binding was released after %v, want a delay so that kubenergy-karmada is first", took)
	}
	if !c.held("waits") {
		t.Error("binding was released before its held Job")
	}
	c.patch(t, jobs, c.ns, "waits", `{"spec":{"suspend":false}}`)
	c.await(15*time.Second, "the binding is released after its Job", func() bool { return !c.held("waits") })
}

// hold runs the hold loop alongside the driver, as kubenergy-karmada does.
func (s *stage) hold(t *testing.T, driver *karmada.Driver) {
	config := rest.CopyConfig(s.ours)
	config.QPS, config.Burst = 1000, 2000
	part := &stage{federation: &federation{server: s.server, t: t}}
	part.run(hold.New(hold.Config{
		Client: kubernetes.NewForConfigOrDie(config), View: s.objects.View, Namespace: "kubenergy-system",
		Sites: driver.Sites,
	}).Run)
	c := s.in(t, "held", "")
	at := c.cleanSoon()
	c.sends("waits", work{annotations: mayWait})
	c.sends("south", work{annotations: mayWait, placement: divided + ", clusterAffinity: {clusterNames: [south]}"})
	c.sends("now", work{})
	c.await(2*time.Second, "the binding of the Job without an allowed delay is released",
		func() bool { return !c.held("now") })
	c.await(10*time.Second, "the binding is released if waiting does not reduce emissions", func() bool {
		return !c.held("south")
	})
	if !time.Now().Before(at) {
		t.Fatal("the window started too early")
	}
	if p := c.said("waits"); !c.held("waits") || p.to != "" {
		t.Errorf("unexpected state of the binding that waits for the north: held %v, target %q", c.held("waits"), p.to)
	}
	c.await(time.Until(at)+10*time.Second, "the binding is released", func() bool { return !c.held("waits") })
	if time.Until(at) > 3*time.Second { // the loop estimates the clock of the API server within two seconds
		t.Errorf("binding was released %v before its window", time.Until(at))
	}
	if p := c.placed("waits"); p.to != "north=1" {
		t.Errorf("unexpected target %q: %s", p.to, p.message)
	}
}

// cleanSoon publishes a carbon intensity for the north that drops in a few seconds and a constant one for the
// south.
func (c *scene) cleanSoon() (at time.Time) {
	c.Helper()
	c.turn(300, 400)
	at = time.Now().Add(12 * time.Second).Truncate(time.Second).UTC()
	values := []any{300.0}
	for range 48 {
		values = append(values, 20.0)
	}
	now := time.Now().UTC()
	c.status(zones, "north", map[string]any{"observedGeneration": int64(1), "carbon": map[string]any{
		"now": 300.0, "unit": "gCO2e/kWh", "quality": "measured", "source": "test", "asOf": now.Format(time.RFC3339),
		"start": at.Add(-time.Hour).Format(time.RFC3339), "step": "1h", "values": values,
	}})
	c.await(10*time.Second, "the new carbon intensity is received", func() bool {
		series := c.objects.View().Site("north").Carbon.Series
		return series.Start().Equal(at.Add(-time.Hour))
	})
	return at
}
