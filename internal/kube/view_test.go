package kube

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func viewOf(t testing.TB, c Contents) *View {
	t.Helper()
	v, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func carbonOf(t *testing.T, values ...float64) grid.Signal {
	t.Helper()
	s, err := grid.NewSeries(noon, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	return grid.Signal{Series: s}
}

func TestNewViewRefuses(t *testing.T) {
	for _, tc := range []struct {
		name     string
		sites    []*sched.Site
		profiles []*energy.Profile
		fallback string
		want     string
	}{
		{name: "site without a name", sites: []*sched.Site{{}}, want: "site 0 has no name"},
		{name: "site twice", sites: []*sched.Site{{Name: "a"}, {Name: "a"}}, want: `site "a" appears twice`},
		{name: "PUE below 1", sites: []*sched.Site{{Name: "a", PUE: 0.5}}, want: "pue is 0.5"},
		{name: "PUE of a megawatt", sites: []*sched.Site{{Name: "a", PUE: 1e6}}, want: "pue is 1e+06"},
		{
			name: "negative intensity", sites: []*sched.Site{{Name: "a", Carbon: carbonOf(t, 300, -1)}},
			want: "carbon value 1 is -1",
		},
		{
			name: "intensity per MWh", sites: []*sched.Site{{Name: "a", Carbon: carbonOf(t, 400_000)}},
			want: "carbon value 0 is 400000",
		},
		{
			name: "negative price", sites: []*sched.Site{{Name: "a", Price: carbonOf(t, -2e6)}},
			want: "price value 0 is -2e+06",
		},
		{name: "profile without a name", profiles: []*energy.Profile{{}}, want: "profile 0 has no name"},
		{
			name: "profile twice", profiles: []*energy.Profile{{Name: "a"}, {Name: "a"}},
			want: `profile "a" appears twice`,
		},
		{
			name: "invalid profile", profiles: []*energy.Profile{{Name: "a", Idle: 9, Max: 3}},
			want: "is below idle",
		},
		{name: "unknown default", profiles: []*energy.Profile{{Name: "a"}}, fallback: "b", want: `default profile "b"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := NewView(tc.sites, tc.profiles, tc.fallback)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v does not contain %q", err, tc.want)
			}
		})
	}
}

func TestViewNode(t *testing.T) {
	sites := []*sched.Site{{Name: "home", Carbon: carbonOf(t, 100)}, {Name: "north", PUE: 1.2}}
	profiles := []*energy.Profile{{Name: "small", Max: 10}, {Name: "large", Max: 100}}
	full, err := NewView(sites, profiles, "small")
	if err != nil {
		t.Fatal(err)
	}
	noDefault, err := NewView(sites, profiles, "")
	if err != nil {
		t.Fatal(err)
	}
	noSites, err := NewView(nil, profiles, "small")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name              string
		view              *View
		labels            map[string]string
		wantProfile, site string
	}{
		{name: "defaults", view: full, wantProfile: "small", site: "home"},
		{
			name: "by label", view: full, labels: map[string]string{
				v1alpha1.LabelPowerProfile: "large", v1alpha1.LabelSite: "north",
			},
			wantProfile: "large", site: "north",
		},
		{
			name: "by zone", view: full, labels: map[string]string{v1.LabelTopologyZone: "north"}, wantProfile: "small",
			site: "north",
		},
		{name: "label before zone", view: full, labels: map[string]string{
			v1.LabelTopologyZone: "north", v1alpha1.LabelSite: "home",
		}, wantProfile: "small", site: "home"},
		{
			name: "unknown zone", view: full, labels: map[string]string{v1.LabelTopologyZone: "eu-1a"},
			wantProfile: "small", site: "home",
		},
		{
			name: "unknown profile", view: full, labels: map[string]string{v1alpha1.LabelPowerProfile: "huge"},
			site: "home",
		},
		{name: "no default profile", view: noDefault, site: "home"},
		{name: "no sites", view: noSites, wantProfile: "small", site: ""},
		{name: "knows nothing", view: &View{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: tc.labels}}
			node, ok := tc.view.Node(n, sched.Resources{MilliCPU: 4000}, sched.Resources{MilliCPU: 1000}, 2)
			if ok != (tc.wantProfile != "") {
				t.Fatalf("ok is %v", ok)
			}
			if ok && node.Profile.Name != tc.wantProfile {
				t.Errorf("profile is %q, want %q", node.Profile.Name, tc.wantProfile)
			}
			if node.Site.Name != tc.site {
				t.Errorf("site is %q, want %q", node.Site.Name, tc.site)
			}
			if node.Name != "n1" || node.Free.MilliCPU != 1000 || node.Capacity.MilliCPU != 4000 || node.Jobs != 2 {
				t.Errorf("node is %+v", node)
			}
		})
	}
}

func TestWithoutSignals(t *testing.T) {
	full := &sched.Site{Name: "home", Zone: "DE", PUE: 1.3, Carbon: carbonOf(t, 100), Price: carbonOf(t, 1)}
	bare := withoutSignals([]*sched.Site{full})[0]
	if bare.Carbon.Series != nil || bare.Price.Series != nil {
		t.Error("signals are still there")
	}
	if bare.Name != "home" || bare.Zone != "DE" || bare.PUE != 1.3 {
		t.Errorf("site is %+v", bare)
	}
	if full.Carbon.Series == nil {
		t.Error("the signals of the original were removed")
	}
}

// TestZonesThatDoNotCount verifies that a zone without nodes does not affect when work starts elsewhere, and that
// zones with different kinds of intensity are not compared.
func TestZonesThatDoNotCount(t *testing.T) {
	zone := func(name string, intensity float64, change func(*v1alpha1.GridZone)) *v1alpha1.GridZone {
		z := zoneObject(name, name == "de", intensity, intensity, intensity, intensity, intensity, intensity)
		change(z)
		return z
	}
	read := func(zones ...*v1alpha1.GridZone) *View {
		var items []*item
		for _, z := range zones {
			it := &item{kind: kindZone, ObjectMeta: metav1.ObjectMeta{Name: z.Name}}
			readZone(it, z)
			items = append(items, it)
		}
		v, err := assemble(items, policy.Defaults{MaxSignalAge: 2 * time.Hour}).View()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	dirty := zone("de", 400, func(z *v1alpha1.GridZone) {
		z.Status.Nodes = new(int32(6))
		z.Status.Carbon.Values[2] = 50
	})
	clean := zone("no", 20, func(z *v1alpha1.GridZone) { z.Status.Nodes = new(int32(0)) })
	uncounted := zone("se", 20, func(*v1alpha1.GridZone) {})
	marginal := zone("fr", 20, func(z *v1alpha1.GridZone) { z.Spec.Carbon.Signal = "Marginal" })
	held := func(v *View) bool {
		work, err := policy.ReadPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "p", CreationTimestamp: metav1.Now(), Annotations: map[string]string{
				v1alpha1.AnnotationCarbonThreshold: "100", v1alpha1.AnnotationAllowedDelay: "2h",
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		job, s := v.Settle(&work)
		d := v.Decide(time.Now(), job, s)
		return d.Held(time.Now())
	}
	for _, tc := range []struct {
		name  string
		zones []*v1alpha1.GridZone
		want  bool
	}{
		{"alone", []*v1alpha1.GridZone{dirty}, true},
		{"with a clean zone without nodes", []*v1alpha1.GridZone{dirty, clean}, true},
		{"with a zone without a node count", []*v1alpha1.GridZone{dirty, uncounted}, false},
		{"with a zone of marginal intensity", []*v1alpha1.GridZone{dirty, marginal}, true},
		{"a cluster without nodes yet", []*v1alpha1.GridZone{clean}, false},
	} {
		if got := held(read(tc.zones...)); got != tc.want {
			t.Errorf("%s: held: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestEnvironmentGivesNodesTheirPower(t *testing.T) {
	d, warnings := policy.AliasEnvironment(policy.SchedulerProgram, []string{
		"NODE_DEFAULT_IDLE_POWER=100", "NODE_DEFAULT_MAX_POWER=400", "NODE_POWER_CONFIG_node1=idle:50,max:300",
	}, nil, policy.Defaults{})
	if len(warnings) > 0 {
		t.Error(warnings)
	}
	v := viewOf(t, Contents{Defaults: d})
	for name, want := range map[string]energy.Watts{"node1": 300, "node10": 400, "node": 400} {
		n, ok := v.Node(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, sched.Resources{}, sched.Resources{}, 0)
		if !ok || n.Profile.Max != want {
			t.Errorf("%s: %+v, want a maximum of %v W", name, n.Profile, float64(want))
		}
	}
}
