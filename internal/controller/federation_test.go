package controller

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// TestFederation runs a controller that forwards its bookings to another one. The other controller must record them
// for the member, with the zone and the PUE of the federation, and include them in live data.
func TestFederation(t *testing.T) {
	s := newAPIServer(t)
	s.put(ours+"gridzones/home", typical("home", "DE"))
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	o := quiet(t)
	o.State, o.API, o.Cluster = t.TempDir(), "0", "center"
	o.Members = file("members.yaml", "clusters: [{name: alpha, zone: home, pue: 1.5}]")
	center, _ := start(t, s, o)
	// The signal of a new controller begins at the full hour, and may not cover the batch just after that.
	kit.Eventually(t, 60*time.Second, "the view has the signal of the zone", func() bool {
		site, now := center.objects.View().Site("home"), time.Now()
		return site != nil && site.Carbon.Fresh(now, 0) && site.Carbon.Series.Covers(now.Add(-20*time.Second), now)
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/clusters/alpha/bookings" || r.Header.Get("Authorization") != "Bearer secret" {
			t.Errorf("unexpected request for %s", r.URL.Path)
		}
		r.SetPathValue("cluster", "alpha")
		center.unit.batches.ServeMember(w, r)
	}))
	t.Cleanup(server.Close)

	o = quiet(t)
	o.State, o.API, o.Cluster = t.TempDir(), "0", "alpha"
	o.Forward.URL, o.Forward.TokenFile = server.URL, file("token", "secret\n")
	member, registry := start(t, newAPIServer(t), o)
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "rack1", Boot: "b", Epoch: "e"}, First: 1, Last: 1,
		EndSinceBoot: 15 * time.Second, Source: "test", Quality: energy.Measured, IdlePolicy: "apart",
		Measured: 1500e6, Unknown: 1500e6,
	}
	b.SetWall(time.Now())
	if err := member.unit.batches.Local(t.Context(), b, false); err != nil {
		t.Fatal(err)
	}
	q := &ledger.Query{
		From: b.Start.Add(-time.Hour), To: b.End.Add(time.Hour), Own: "center",
		GroupBy: []ledger.Dimension{ledger.ByCluster, ledger.BySite, ledger.ByNode},
	}
	kit.Eventually(t, 30*time.Second, "the federation has recorded it", func() bool {
		answer, err := center.unit.ledger.Query(t.Context(), q)
		if err != nil || len(answer.Rows) != 1 {
			return false
		}
		row := &answer.Rows[0]
		if strings.Join(row.Key, " ") != "alpha home alpha/rack1" || row.Energy() != b.Measured ||
			row.Facility != b.Measured*3/2 || row.Carbon == 0 {
			t.Errorf("%+v", row)
		}
		return true
	})
	kit.Eventually(t, 5*time.Second, "the member counts it",
		func() bool { return count(t, registry)["kubenergy_forward_bookings_total"] > 0 })
	kit.Eventually(t, 5*time.Second, "its power is in the live data of the federation", func() bool {
		live := center.unit.live.Nodes()
		return len(live.Nodes) == 0 && len(live.Members) == 1 && live.Members[0].Node == "alpha/rack1" &&
			live.Members[0].Watts == 100
	})
	kit.Eventually(t, 5*time.Second, "the member's outbox is empty", func() bool {
		left, err := member.unit.store.Outbox()
		if err != nil {
			return false
		}
		b, err := left.Backlog(t.Context(), 1)
		return err == nil && b.Kept == 0
	})
}
