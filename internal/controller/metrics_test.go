package controller

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsAreDocumented runs the controller with all features and compares its metrics with
// docs/reference/metrics.md.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	server := newAPIServer(t)
	o := quiet(t)
	o.State, o.API, o.CSV, o.Agentless = t.TempDir(), "127.0.0.1:0", t.TempDir(), true
	_, registry := start(t, server, o)
	described := make(chan *prometheus.Desc, 1024)
	registry.Describe(described)
	close(described)
	name := regexp.MustCompile(`fqName: "([a-z_]+)"`)
	seen := 0
	for d := range described {
		found := name.FindStringSubmatch(d.String())
		if found == nil {
			continue
		}
		seen++
		if !strings.Contains(string(text), found[1]) {
			t.Errorf("docs/reference/metrics.md does not mention %s", found[1])
		}
	}
	const least = 30
	if seen < least {
		t.Errorf("found only %d metrics", seen)
	}
}
