package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

func TestDoctorChecksTheController(t *testing.T) {
	const statistics = "/api/v1/ledger/statistics"
	for _, tc := range []struct {
		name string
		set  func(*fakeUnit)
		want string // all findings: status and prefix of the message
	}{
		{"well", func(c *fakeUnit) {
			c.answers["/api/v1/nodes/power"] = api.NodesPower{Nodes: []api.NodePower{{
				Node: "a", AsOf: testNow.Add(-10 * time.Second), Quality: energy.Measured,
			}}}
		}, "ok the controller is available; ok 1 node reported power"},
		{"no meter", func(c *fakeUnit) {
			c.answers["/api/v1/nodes/power"] = api.NodesPower{Nodes: []api.NodePower{{
				Node: "a", AsOf: testNow.Add(-10 * time.Second),
			}}}
		}, "ok the controller is available; warn no node is metered: the power of all 1 is estimated"},
		{"findings", func(c *fakeUnit) {
			c.answers["/api/v1/nodes/power"] = api.NodesPower{Nodes: []api.NodePower{{
				Node: "a", AsOf: testNow.Add(-10 * time.Second), Quality: energy.Measured, Findings: []string{"--cgroup=/x has not\nmatched"},
			}, {
				Node: "b", AsOf: testNow.Add(-10 * time.Second), Findings: slices.Repeat([]string{"f"}, 11),
			}}}
		}, "ok the controller is available; ok 2 nodes reported power; " +
			`warn the agent of node a reports: --cgroup=/x has not` + strings.Repeat("; warn the agent of node b reports: f", 9) +
			"; warn the agents report 2 more findings"},
		{"late nodes", func(*fakeUnit) {}, "ok the controller is available; warn 1 of 5 nodes"},
		{
			"no nodes", func(c *fakeUnit) { c.answers["/api/v1/nodes/power"] = api.NodesPower{} },
			"ok the controller is available; warn no node reports its power",
		},
		{"full disk", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"journal": 7, "oldest": testNow.Add(-time.Hour)}
		}, "fail 7 bookings have not been added; warn 1 of 5 nodes"},
		{"not installed", func(c *fakeUnit) { c.refuse["proxy"] = 404 }, "warn the controller is not installed"},
		{
			"not running", func(c *fakeUnit) { c.refuse["proxy"] = 503 },
			"warn the proxy of the API server cannot reach the controller",
		},
		{"federation unreachable", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"unsent": testNow.Add(-time.Hour)}
		}, "ok the controller is available; warn bookings since 2026-03-02T08:00:00Z have not been forwarded; " +
			"warn 1 of 5 nodes"},
		{"federation reachable", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"unsent": testNow.Add(-time.Minute)}
		}, "ok the controller is available; warn 1 of 5 nodes"},
		{"silent member", func(c *fakeUnit) {
			c.answers["/api/v1/ledger"] = ledger.Answer{Rows: []ledger.Row{
				{Key: []string{"alpha"}, Last: testNow.Add(-time.Hour)},
				{Key: []string{"beta"}, Last: testNow},
				{Key: []string{""}, Last: testNow.Add(-time.Hour)},
			}}
		}, "ok the controller is available; warn no data received from cluster alpha since 2026-03-02T08:00:00Z; " +
			"warn 1 of 5 nodes"},
		{
			"no permission to read sums", func(c *fakeUnit) { c.refuse["/api/v1/ledger"] = 403 },
			"ok the controller is available; warn the controller denied the request; warn 1 of 5 nodes",
		},
		{"no right", func(c *fakeUnit) { c.refuse[statistics] = 403 }, "warn the controller denied the request"},
		{"too old", func(c *fakeUnit) { delete(c.answers, statistics) }, "warn the controller does not serve"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newFakeController(t)
			c.draw()
			c.answers[statistics] = map[string]any{"journal": 7, "oldest": testNow.Add(-time.Minute)}
			c.answers["/api/v1/ledger"] = ledger.Answer{}
			tc.set(c)
			config := &rest.Config{
				Host: c.server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true},
			}
			d := &doctor.Doctor{Config: config, Namespace: "kubenergy-system", Now: func() time.Time { return testNow }}
			d.CheckController(t.Context())
			var got []string
			for _, f := range d.Findings {
				got = append(got, string(f.Status)+" "+f.Message)
			}
			wants := strings.Split(tc.want, "; ")
			if len(got) != len(wants) {
				t.Fatalf("unexpected findings %q", got)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], wants[i]) {
					t.Errorf("got finding %q, want %q", got[i], wants[i])
				}
			}
		})
	}
}
