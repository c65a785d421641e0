package cli

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
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
				Node: "a", AsOf: testNow.Add(-10 * time.Second),
			}}}
		}, "ok the controller answers; ok 1 node told"},
		{"late nodes", func(*fakeUnit) {}, "ok the controller answers; warn 1 of 5 nodes"},
		{
			"no nodes", func(c *fakeUnit) { c.answers["/api/v1/nodes/power"] = api.NodesPower{} },
			"ok the controller answers; warn no node tells",
		},
		{"a disk that is full", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"journal": 7, "oldest": testNow.Add(-time.Hour)}
		}, "fail 7 bookings are not in; warn 1 of 5 nodes"},
		{"not installed", func(c *fakeUnit) { c.refuse["proxy"] = 404 }, "warn the controller is not installed"},
		{
			"not running", func(c *fakeUnit) { c.refuse["proxy"] = 503 },
			"warn the API server's proxy does not reach the controller",
		},
		{"a federation that is away", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"unsent": testNow.Add(-time.Hour)}
		}, "ok the controller answers; warn the federation does not have all that was booked since 2026-03-02T08:00:00Z; " +
			"warn 1 of 5 nodes"},
		{"a federation that is there", func(c *fakeUnit) {
			c.answers[statistics] = map[string]any{"unsent": testNow.Add(-time.Minute)}
		}, "ok the controller answers; warn 1 of 5 nodes"},
		{"a member that is silent", func(c *fakeUnit) {
			c.answers["/api/v1/ledger"] = ledger.Answer{Rows: []ledger.Row{
				{Key: []string{"alpha"}, Last: testNow.Add(-time.Hour)},
				{Key: []string{"beta"}, Last: testNow},
				{Key: []string{""}, Last: testNow.Add(-time.Hour)},
			}}
		}, "ok the controller answers; warn nothing came from cluster alpha since 2026-03-02T08:00:00Z; " +
			"warn 1 of 5 nodes"},
		{
			"no right to sums", func(c *fakeUnit) { c.refuse["/api/v1/ledger"] = 403 },
			"ok the controller answers; warn the controller refuses; warn 1 of 5 nodes",
		},
		{"no right", func(c *fakeUnit) { c.refuse[statistics] = 403 }, "warn the controller refuses"},
		{"too old", func(c *fakeUnit) { delete(c.answers, statistics) }, "warn the controller has no"},
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
				t.Fatalf("found %q", got)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], wants[i]) {
					t.Errorf("found %q, want %q", got[i], wants[i])
				}
			}
		})
	}
}
