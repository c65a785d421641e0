package cli

import (
	"fmt"
	"os"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/test/browser"
)

// Tests every view of a cluster in every state in a real browser.
func TestPagesOfACluster(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("takes several minutes: run make browser")
	}
	everywhere := []string{"now", "decisions", "savings", "doctor", "how"}
	ofTenant := append([]string{"job", "decision", "origin", "actrun-now"}, everywhere...)
	all := append([]string{"actmode"}, ofTenant...)
	for name, state := range map[string]struct {
		change func(a *apiServer)
		flags  cmdutil.ControllerFlags
		views  []string
	}{
		"enforcing": {change: func(a *apiServer) { decided(t, a) }, views: all},
		"many": {change: func(a *apiServer) {
			for i := range 1000 {
				a.add(t, jobsIn("ns"), workJob(fmt.Sprintf("of-many-%04d", i)))
			}
		}, views: everywhere},
		"stale": {change: func(a *apiServer) {
			decided(t, a)
			edit(t, a, zonePath+"/DE", func(z *v1alpha1.GridZone) {
				z.Status.Carbon.AsOf = new(metav1.NewTime(testNow.Add(-5 * time.Hour)))
			})
		}, views: all},
		"shadow": {change: func(a *apiServer) {
			decided(t, a)
			shadow(t, a)
			edit(t, a, "/api/v1/namespaces/ns", func(n *v1.Namespace) { n.Labels = nil })
		}, views: all},
		"tenant": {
			change: func(a *apiServer) { tenant(t, a) }, flags: cmdutil.ControllerFlags{ClusterFlags: cmdutil.ClusterFlags{Namespace: "ns"}},
			views: ofTenant,
		},
		"rightless": {change: func(a *apiServer) {
			a.controller = nil
			for _, kind := range []string{"gridzones", "energybudgets", "pods", "nodes"} {
				a.refused["list "+kind] = true
			}
		}, views: everywhere},
		"empty": {change: func(a *apiServer) { a.objects, a.controller = map[string]map[string]any{}, nil }, views: everywhere},
	} {
		t.Run(name, func(t *testing.T) {
			a := observed(t)
			state.change(a)
			b := browser.Open(t, serve(t, liveOf(t, a, state.flags)))
			b.Check("cluster-"+name, browser.Sizes, state.views...)
			t.Run("axe", b.Accessible)
			if name == "enforcing" {
				act(t, a, b)
			}
		})
	}
}

// act performs the actions of a page: it updates after an event, copies a command, and runs a Job.
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
		t.Errorf("unexpected run-now annotation %q", note)
	}
}
