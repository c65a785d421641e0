package cli

import (
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/browser"
)

// Every view of a cluster in every state, in a real browser.
func TestPagesOfACluster(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("looks at every page of a cluster for minutes: make browser")
	}
	everywhere := []string{"now", "decisions", "savings", "doctor", "how"}
	all := append([]string{"job", "decision", "actrun-now", "actmode"}, everywhere...)
	for name, state := range map[string]struct {
		cluster func() *apiServer
		flags   centralFlags
		views   []string
	}{
		"enforcing": {cluster: func() *apiServer { return observed(t) }, views: all},
		"many": {cluster: func() *apiServer {
			a := observed(t)
			for i := range 1000 {
				a.add(t, jobsIn("ns"), workJob(fmt.Sprintf("of-many-%04d", i)))
			}
			return a
		}, views: everywhere},
		"stale": {cluster: func() *apiServer {
			a := observed(t)
			edit(t, a, zonePath+"/DE", func(z *v1alpha1.GridZone) {
				z.Status.Carbon.AsOf = new(metav1.NewTime(testNow.Add(-5 * time.Hour)))
			})
			return a
		}, views: all},
		"shadow": {cluster: func() *apiServer {
			a := observed(t)
			shadow(t, a)
			edit(t, a, "/api/v1/namespaces/ns", func(n *v1.Namespace) { n.Labels = nil })
			return a
		}, views: all},
		"tenant": {cluster: func() *apiServer {
			a := observed(t)
			a.central = nil
			for _, kind := range []string{"gridzones", "energybudgets", "pods", "nodes"} {
				a.refused["list "+kind] = true
			}
			return a
		}, flags: centralFlags{clusterFlags: clusterFlags{namespace: "ns"}}, views: everywhere},
		"empty": {cluster: func() *apiServer { return newAPIServer(t) }, views: everywhere},
	} {
		t.Run(name, func(t *testing.T) {
			a := state.cluster()
			if a.central != nil {
				decided(t, a)
			}
			b := browser.Open(t, serve(t, liveOf(t, a, state.flags)))
			b.Check("cluster-"+name, browser.Sizes, state.views...)
			t.Run("axe", b.Accessible)
			if name == "enforcing" {
				act(t, a, b)
			}
		})
	}
}

// act does what can be done on pages of a cluster: an event brings what has changed, a command is copied, a Job is run.
func act(t *testing.T, a *apiServer, b *browser.Browser) {
	t.Helper()
	b.As(browser.Laptop, "light")
	b.Visit("/")
	a.add(t, jobsIn("ns"), workJob("arrived"))
	b.Await(`document.querySelector('#main').textContent.includes('arrived')`)
	b.Click("[data-copy]")
	b.Await(`document.querySelector('#status').textContent.startsWith('Copied: ')`)
	b.Visit("/act?do=run-now&kind=job&namespace=ns&name=arrived")
	b.Click(".ask button")
	b.Await(`document.querySelector('h1')?.textContent === 'Done'`)
	if note := a.get(t, jobsIn("ns")+"/arrived").GetAnnotations()[v1alpha1.AnnotationRunNow]; note != "true" {
		t.Errorf("run-now is %q", note)
	}
}
