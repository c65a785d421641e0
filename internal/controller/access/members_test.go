package access_test

import (
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

func TestMembersRefuse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "members.yaml")
	for name, text := range map[string]string{
		"unknown field": "clusters: [{name: a, colour: blue}]", "no name": "clusters: [{zone: de}]",
		"a slash": "clusters: [{name: a/b}]", "twice": "clusters: [{name: a}, {name: a}]",
		"this cluster": "clusters: [{name: home}]", "a PUE below 1": "clusters: [{name: a, pue: 0.9}]",
		"no nodes": "clusters: [{name: a, maxNodes: -1}]", "no power": "clusters: [{name: a, nodeMaxWatts: -1}]",
		"less than a request": "clusters: [{name: a, bookingsPerMinute: 10}]", "invalid YAML": "clusters: [",
	} {
		write(t, file, text)
		if all, err := access.LoadMembers(file, "home"); err == nil {
			t.Errorf("%s: expected an error, got %+v", name, all)
		}
	}
	write(t, file, "clusters: [{name: alpha}]")
	all, err := access.LoadMembers(file, "home")
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := all["alpha"]; !ok || m.Nodes == 0 || m.MaxPower == 0 || m.Bookings == 0 {
		t.Errorf("unexpected defaults: %+v", m)
	}
}
