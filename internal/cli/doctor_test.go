package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
)

const (
	crdPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	deploymentPath = "/apis/apps/v1/namespaces/kubenergy-system/deployments"
	leasePath      = "/apis/coordination.k8s.io/v1/namespaces/kubenergy-system/leases"
	accountPath    = "/api/v1/namespaces/kubenergy-system/serviceaccounts"
	policiesPath   = "/apis/kubenergy.io/v1alpha1/namespaces/kubenergy-system/energypolicies"
	zonePath       = "/apis/kubenergy.io/v1alpha1/gridzones"
	profilePath    = "/apis/kubenergy.io/v1alpha1/powerprofiles"
	nodePath       = "/api/v1/nodes"
)

// crd is a CustomResourceDefinition with a free-form status.
type crd struct {
	metav1.PartialObjectMetadata
	Status map[string]any `json:"status"`
}

func newCRD(name string) *crd {
	c := &crd{Status: map[string]any{
		"conditions":     []any{map[string]any{"type": "Established", "status": "True"}},
		"storedVersions": []any{"v1alpha1"},
	}}
	c.Name = name
	return c
}

func created(name string, at time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(at)}
}

func deployment(name, image string) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: created(name, testNow.Add(-48*time.Hour)), Spec: appsv1.DeploymentSpec{Replicas: new(int32(2))},
	}
	d.Spec.Template.Spec.Containers = []v1.Container{{Name: "main", Image: image}}
	d.Status.ReadyReplicas = 2
	return d
}

func lease(name string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("pod-1"), LeaseDurationSeconds: new(int32(15)),
			RenewTime: new(metav1.NewMicroTime(testNow.Add(-age))),
		},
	}
}

// zone returns a GridZone with two days of hourly intensities of 300 g/kWh, and 100 g/kWh between 12:00 and 16:00.
func zone(name string) *v1alpha1.GridZone {
	z := &v1alpha1.GridZone{ObjectMeta: metav1.ObjectMeta{Name: name}}
	z.Spec.Zone, z.Spec.Default = name, true
	z.Spec.Carbon = &v1alpha1.CarbonSpec{MaxAge: &metav1.Duration{Duration: 2 * time.Hour}}
	values := make([]float64, 48)
	low, high := make([]float64, 48), make([]float64, 48)
	start := testNow.Add(-time.Hour)
	for i := range values {
		values[i] = 300
		if h := start.Add(time.Duration(i) * time.Hour).Hour(); h >= 12 && h < 16 {
			values[i] = 100
		}
		low[i], high[i] = values[i]*0.9, values[i]*1.2
	}
	z.Status.Carbon = &v1alpha1.SignalStatus{
		Now: 300, Unit: "gCO2e/kWh", Quality: "measured", Source: "electricityMaps", ForecastSource: "blend",
		AsOf: new(metav1.NewTime(testNow.Add(-10 * time.Minute))), Start: metav1.NewTime(start),
		Step:   metav1.Duration{Duration: time.Hour},
		Values: values, Low: low, High: high,
	}
	z.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Fresh",
	}}
	return z
}

func profile(name string, selector map[string]string, idle, most float64) *v1alpha1.PowerProfile {
	p := &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.NodeSelector, p.Spec.IdleWatts, p.Spec.MaxWatts, p.Spec.Quality = selector, idle, most, "derived"
	return p
}

func node(name string, labels map[string]string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: quantity("8"), v1.ResourceMemory: quantity("16Gi")}
	return n
}

// healthy returns a cluster without any problem.
func healthy(t *testing.T) *apiServer {
	t.Helper()
	a := newAPIServer(t)
	a.served["metrics.k8s.io/v1beta1"] = []string{"nodes"}
	a.allowed = func(_ string, r *authorizationv1.ResourceAttributes) bool {
		switch {
		case r.Resource == "secrets", r.Verb == "delete", r.Verb == "escalate":
			return false
		case r.Verb == "create" && (r.Resource == "jobs" || r.Resource == "pods" && r.Subresource == ""):
			return false
		}
		return true
	}
	for _, name := range []string{"gridzones", "powerprofiles", "energypolicies", "energybudgets", "jobprofiles"} {
		a.add(t, crdPath, newCRD(name+".kubenergy.io"))
	}
	for _, name := range []string{cmdutil.SchedulerName, cmdutil.ControllerName} {
		a.add(t, deploymentPath, deployment(name, "example.org/"+name+":1.2.0"))
		a.add(t, accountPath, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}})
		a.add(t, leasePath, lease(name, 3*time.Second))
	}
	a.add(t, leasePath, lease(cmdutil.HoldLease, 3*time.Second))
	for kind, names := range map[string][]string{
		"mutatingadmissionpolicies": {kube.HoldPolicy}, "mutatingadmissionpolicybindings": {kube.HoldPolicy},
		"validatingadmissionpolicies": doctor.GuardPolicies, "validatingadmissionpolicybindings": doctor.GuardPolicies,
	} {
		for _, name := range names {
			a.add(t, policyPath+kind, &metav1.PartialObjectMetadata{ObjectMeta: created(name,
				testNow.Add(-47*time.Hour))})
		}
	}
	cluster := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	cluster.Spec.Mode = v1alpha1.ModeEnforce
	a.add(t, policiesPath, cluster)
	a.add(t, zonePath, zone("DE"))
	a.add(t, profilePath, profile("small", map[string]string{"kind": "small"}, 20, 60))
	a.add(t, nodePath, node("n1", map[string]string{"kind": "small"}))
	a.add(t, jobsIn("ns"), waitingJob("held", time.Hour))
	a.controller = map[string]any{
		"/api/v1/ledger":            ledger.Answer{},
		"/api/v1/ledger/statistics": map[string]any{"journal": 0},
		"/api/v1/nodes/power": api.NodesPower{Nodes: []api.NodePower{{
			Node: "n1", AsOf: testNow.Add(-8 * time.Second), Quality: energy.Measured,
		}}},
	}
	return a
}

// edit modifies a stored object.
func edit[T any](t *testing.T, a *apiServer, path string, change func(*T)) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	var object T
	data, err := json.Marshal(a.objects[path])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	change(&object)
	if data, err = json.Marshal(object); err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	a.objects[path] = m
}

func TestDoctorOfAHealthyCluster(t *testing.T) {
	a := healthy(t)
	code, stdout, stderr := a.run(t, "doctor")
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	golden(t, "doctor.golden", stdout)
	code, stdout, _ = a.run(t, "doctor", "-o", "json")
	var report struct{ Checks []dashboard.Finding }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 0 || len(report.Checks) < len(doctor.Checks) {
		t.Errorf("exit code %d, %d checks, error %v", code, len(report.Checks), err)
	}
	for _, f := range report.Checks {
		if f.Status != dashboard.StatusOK {
			t.Errorf("%+v", f)
		}
	}
	if a.writes > 0 {
		t.Errorf("doctor made %d write requests", a.writes)
	}
}

// Each case introduces a single problem.
func TestDoctorFinds(t *testing.T) {
	for name, c := range map[string]struct {
		break_      func(*testing.T, *apiServer)
		check       string
		status      dashboard.Status
		description string
	}{
		"Karmada policies without a choice of cluster": {
			func(t *testing.T, a *apiServer) {
				const version = "policy.karmada.io/v1alpha1"
				a.served[version] = []string{"propagationpolicies", "clusterpropagationpolicies"}
				add := func(path, name, kind, scheduling string) {
					p := &unstructured.Unstructured{}
					if err := json.Unmarshal([]byte(`{"apiVersion": "`+version+`", "kind": "PropagationPolicy", "metadata":
						{"name": "`+name+`"}, "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Secret"},
						{"apiVersion": "batch/v1", "kind": "`+kind+`"}], "placement": {`+scheduling+`}}}`), p); err != nil {
						t.Fatal(err)
					}
					a.add(t, "/apis/"+version+path, p)
				}
				add("/namespaces/ns/propagationpolicies", "said", "Job",
					`"replicaScheduling": {"replicaSchedulingType": "Duplicated"}`)
				add("/namespaces/ns/propagationpolicies", "divided", "Job",
					`"replicaScheduling": {"replicaSchedulingType": "Divided"}`)
				add("/namespaces/ns/propagationpolicies", "others", "Deployment", "")
				add("/clusterpropagationpolicies", "unsaid", "Job", "")
			}, "karmada", dashboard.StatusWarn, "KubEnergy cannot select a cluster: ns/said, unsaid",
		},
		"no component wakes up machines": {
			func(t *testing.T, a *apiServer) {
				a.add(t, nodePath, node("s1", map[string]string{"kubenergy.io/power-state": "asleep"}))
			}, "nodes", dashboard.StatusFail, "no kubenergy-power is ready to wake up machines, but these nodes are not awake: s1",
		},
		"no component puts machines to sleep": {
			func(t *testing.T, a *apiServer) {
				a.add(t, nodePath, node("s1", map[string]string{"kubenergy.io/may-sleep": "true"}))
			}, "nodes", dashboard.StatusWarn, "1 node may sleep, but kubenergy-power is not installed: s1",
		},
		"boots that fail": {
			func(t *testing.T, a *apiServer) {
				n := node("s1", map[string]string{"kubenergy.io/may-sleep": "true"})
				n.Annotations = map[string]string{"kubenergy.io/power": `{"failed":2}`}
				a.add(t, nodePath, n)
			}, "nodes", dashboard.StatusWarn, "the last boot of these nodes failed: s1",
		},
		"server too old": {
			func(_ *testing.T, a *apiServer) { a.version = "35" }, "kubernetes version",
			dashboard.StatusFail, "Kubernetes v1.35.4 is older than",
		},
		"server too new": {
			func(_ *testing.T, a *apiServer) { a.version = "38" }, "kubernetes version",
			dashboard.StatusFail, "at most one minor version older",
		},
		"version of a cloud provider": {
			func(_ *testing.T, a *apiServer) { a.version = "37+" }, "kubernetes version",
			dashboard.StatusOK, "one minor version older and supported",
		},
		"clock ahead": {
			func(_ *testing.T, a *apiServer) { a.date = testNow.Add(-9 * time.Second) },
			"clock", dashboard.StatusWarn, "8s ahead of",
		},
		"clock behind": {
			func(_ *testing.T, a *apiServer) { a.date = testNow.Add(9 * time.Second) },
			"clock", dashboard.StatusWarn, "9s behind",
		},
		"server without a timestamp": {
			func(_ *testing.T, a *apiServer) { a.date = time.Time{} }, "clock", dashboard.StatusWarn, "the response has no creation timestamp",
		},
		"no admission policies": {func(_ *testing.T, a *apiServer) {
			a.served["admissionregistration.k8s.io/v1"] = nil
		}, "admission policies", dashboard.StatusFail, "Jobs cannot be held"},
		"a missing kind": {
			func(_ *testing.T, a *apiServer) { a.delete(crdPath + "/gridzones.kubenergy.io") },
			"custom resources", dashboard.StatusFail, "missing: gridzones.kubenergy.io",
		},
		"a kind not established": {func(t *testing.T, a *apiServer) {
			edit(t, a, crdPath+"/gridzones.kubenergy.io", func(c *crd) { c.Status["conditions"] = nil })
		}, "custom resources", dashboard.StatusFail, "not established: gridzones"},
		"older version of a kind": {func(t *testing.T, a *apiServer) {
			edit(t, a, crdPath+"/gridzones.kubenergy.io",
				func(c *crd) { c.Status["storedVersions"] = []any{"v1alpha0", "v1alpha1"} })
		}, "custom resources", dashboard.StatusWarn, "v1alpha0, v1alpha1"},
		"component down": {func(t *testing.T, a *apiServer) {
			edit(t, a, deploymentPath+"/"+cmdutil.ControllerName, func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 0 })
		}, "components", dashboard.StatusFail, "kubenergy-controller: none of 2"},
		"replica down": {func(t *testing.T, a *apiServer) {
			edit(t, a, deploymentPath+"/"+cmdutil.ControllerName, func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 1 })
		}, "components", dashboard.StatusWarn, "1 of 2"},
		"incomplete upgrade": {func(t *testing.T, a *apiServer) {
			edit(t, a, deploymentPath+"/"+cmdutil.ControllerName, func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Image = "example.org:5000/c:1.3.0"
			})
		}, "components", dashboard.StatusWarn, "kubenergy-controller 1.3.0, kubenergy-scheduler 1.2.0"},
		"an abandoned lease": {func(t *testing.T, a *apiServer) {
			a.add(t, leasePath, lease(cmdutil.ControllerName, time.Hour))
		}, "leases", dashboard.StatusWarn, "kubenergy-controller was last renewed 1 h ago by pod-1"},
		"no lease holder": {
			func(t *testing.T, a *apiServer) { a.add(t, leasePath, lease(cmdutil.HoldLease, time.Hour)) },
			"hold policy", dashboard.StatusFail, "no scheduler holds the Lease kubenergy-hold",
		},
		"missing permission": {func(_ *testing.T, a *apiServer) {
			a.allowed = except(a.allowed, false, "patch", "jobs", cmdutil.SchedulerName)
		}, "permissions", dashboard.StatusFail, "kubenergy-scheduler is not allowed to patch jobs.batch"},
		"excess permission": {func(_ *testing.T, a *apiServer) {
			a.allowed = except(a.allowed, true, "get", "secrets", cmdutil.ControllerName)
		}, "permissions", dashboard.StatusWarn, "kubenergy-controller is allowed to get secrets"},
		"no binding": {func(_ *testing.T, a *apiServer) {
			a.delete(policyPath + "mutatingadmissionpolicybindings/" + kube.HoldPolicy)
		}, "hold policy", dashboard.StatusWarn, "has no binding, so no Job is held"},
		"binding without a policy": {func(_ *testing.T, a *apiServer) {
			a.delete(policyPath + "mutatingadmissionpolicies/" + kube.HoldPolicy)
		}, "hold policy", dashboard.StatusWarn, "refers to a missing policy"},
		"binding older than the policy": {func(t *testing.T, a *apiServer) {
			a.add(t, policyPath+"mutatingadmissionpolicybindings",
				&metav1.PartialObjectMetadata{ObjectMeta: created(kube.HoldPolicy, testNow.Add(-72*time.Hour))})
		}, "hold policy", dashboard.StatusWarn, "older than the scheduler"},
		"no guard": {func(_ *testing.T, a *apiServer) {
			a.delete(policyPath + "validatingadmissionpolicybindings/" + doctor.GuardPolicies[1])
		}, "hold policy", dashboard.StatusWarn, "are not restricted"},
		"invalid policy": {func(t *testing.T, a *apiServer) {
			edit(t, a, policiesPath+"/default", func(p *v1alpha1.EnergyPolicy) { p.Spec.Mode = "sometimes" })
		}, "mode", dashboard.StatusWarn, `mode is "sometimes"`},
		"invalid mode": {func(t *testing.T, a *apiServer) {
			a.add(t, "/api/v1/namespaces", &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "team", Labels: map[string]string{v1alpha1.LabelMode: "enforcing"},
			}})
		}, "mode", dashboard.StatusWarn, `namespace team: label kubenergy.io/mode is "enforcing", which is not a mode`},
		"no zone": {
			func(_ *testing.T, a *apiServer) { a.delete(zonePath + "/DE") }, "grid zones", dashboard.StatusWarn,
			"there is no GridZone",
		},
		"an empty zone": {
			editZone(func(z *v1alpha1.GridZone) { z.Status = v1alpha1.GridZoneStatus{} }), "grid zones",
			dashboard.StatusFail, "the status is empty",
		},
		"zone not ready": {editZone(func(z *v1alpha1.GridZone) {
			z.Status.Conditions[0].Status, z.Status.Conditions[0].Message = "False", "all sources fail"
		}), "grid zones", dashboard.StatusFail, "not ready: all sources fail"},
		"old signal": {editZone(func(z *v1alpha1.GridZone) {
			z.Status.Carbon.AsOf = new(metav1.NewTime(testNow.Add(-3 * time.Hour)))
		}), "grid zones", dashboard.StatusFail, "3 h old, which exceeds the maximum age of 2h0m0s"},
		"ended signal": {editZone(func(z *v1alpha1.GridZone) {
			z.Status.Carbon.Start = metav1.NewTime(testNow.Add(-72 * time.Hour))
		}), "grid zones", dashboard.StatusFail, "its last value ended 24 h ago"},
		"a short forecast": {editZone(func(z *v1alpha1.GridZone) {
			z.Status.Carbon.Values = z.Status.Carbon.Values[:2]
		}), "grid zones", dashboard.StatusWarn, "only known for the next 1 h"},
		"an estimated signal": {
			editZone(func(z *v1alpha1.GridZone) { z.Status.Carbon.Quality = "estimated" }),
			"grid zones", dashboard.StatusWarn, "estimated",
		},
		"a failing source": {editZone(func(z *v1alpha1.GridZone) {
			z.Status.Conditions[0].Message = "known from typical; others did not answer well: electricityMaps: 401"
		}), "grid zones", dashboard.StatusWarn, "GridZone DE: others did not answer well: electricityMaps: 401"},
		"node without a profile": {
			func(t *testing.T, a *apiServer) { a.add(t, nodePath, node("n2", nil)) }, "nodes",
			dashboard.StatusWarn, "1 of 2 nodes without a power profile: n2",
		},
		"overdue Job": {func(t *testing.T, a *apiServer) {
			a.add(t, jobsIn("ns"), waitingJob("late", -2*time.Minute))
		}, "held jobs", dashboard.StatusFail, "1 Job held past the latest start: ns/late"},
		"a Job without a date": {
			func(t *testing.T, a *apiServer) { a.add(t, jobsIn("ns"), heldJob("undated")) },
			"held jobs", dashboard.StatusWarn, "ns/undated",
		},
		"Jobs not readable": {
			func(_ *testing.T, a *apiServer) { a.refused["list jobs"] = true }, "held jobs",
			dashboard.StatusWarn, "you are not allowed to read Jobs",
		},
		"Deployment left by an uninstallation": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			d := deployment("web", "example.org/web:1")
			d.Spec.Template.Spec.SchedulerName = policy.SchedulerName
			a.add(t, "/apis/apps/v1/namespaces/ns/deployments", d)
		}, "scheduler names", dashboard.StatusFail, "1 Deployment uses the scheduler kubenergy, and its pods remain pending while no " +
			"such scheduler is running: ns/web"},
		"CronJob with an annotation outside of its template": {func(t *testing.T, a *apiServer) {
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", nightlyCron(func(c *batchv1.CronJob) {
				c.Annotations = map[string]string{v1alpha1.AnnotationFinishBy: "08:00"}
			}))
		}, "held jobs", dashboard.StatusWarn, "CronJob ns/nightly: annotation kubenergy.io/finish-by of a CronJob has no effect"},
		"CronJob with a wrong duration": {func(t *testing.T, a *apiServer) {
			c := nightlyCron(nil)
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", c)
			addRunTimes(t, a, kube.NextRun(c, testNow), 20)
		}, "held jobs", dashboard.StatusWarn, "expected-duration is 2 h, but similar Jobs usually run for 3"},
		"CronJob with a misspelled annotation": {func(t *testing.T, a *apiServer) {
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", nightlyCron(func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Spec.Template.Annotations = map[string]string{"kubenergy.io/alowed-delay": "6h"}
			}))
		}, "held jobs", dashboard.StatusWarn, "CronJob ns/nightly: annotation kubenergy.io/alowed-delay has no effect"},
		"CronJob with an invalid annotation": {func(t *testing.T, a *apiServer) {
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", nightlyCron(func(c *batchv1.CronJob) {
				c.Spec.JobTemplate.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "soon"}
			}))
		}, "held jobs", dashboard.StatusWarn, `CronJob ns/nightly: all annotations are ignored: annotation ` +
			`kubenergy.io/allowed-delay is "soon"`},
		"CronJob with a scheduler name of another system": {func(t *testing.T, a *apiServer) {
			configure(t, a, "profiles: [{schedulerName: kubenergy}]")
			c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
			c.Spec.JobTemplate.Spec.Template.Spec.SchedulerName = policy.GardenerSchedulerName
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", c)
		}, "scheduler names", dashboard.StatusWarn, "1 CronJob uses the scheduler compute-gardener-scheduler"},
		"CronJob left by an uninstallation": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			configure(t, a, "profiles: [{schedulerName: compute-gardener-scheduler}]")
			c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "nightly"}}
			c.Spec.JobTemplate.Spec.Template.Spec.SchedulerName = policy.GardenerSchedulerName
			a.add(t, "/apis/batch/v1/namespaces/ns/cronjobs", c)
		}, "scheduler names", dashboard.StatusFail, "1 CronJob uses the scheduler compute-gardener-scheduler"},
		"a pod of a ReplicaSet without a Deployment": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			pod := markedPod("a")
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "lone", Controller: new(true)}}
			a.add(t, "/api/v1/namespaces/ns/pods", pod)
		}, "scheduler names", dashboard.StatusFail, "1 pod is waiting for the scheduler kubenergy"},
		"Job left by an uninstallation": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			j := heldJob("train")
			j.Labels, j.Spec.Suspend = nil, nil
			j.Spec.Template.Spec.SchedulerName = policy.SchedulerName
			a.add(t, jobsIn("ns"), j)
		}, "scheduler names", dashboard.StatusFail, "1 Job uses the scheduler kubenergy"},
		"pods that outlived us": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			for _, name := range []string{"a", "b"} {
				a.add(t, "/api/v1/namespaces/ns/pods", markedPod(name))
			}
		}, "scheduler names", dashboard.StatusFail, "2 pods are waiting for the scheduler kubenergy and remain pending while no such " +
			"scheduler is running: ns/a, ns/b"},
		"pod with a removed scheduler profile": {func(t *testing.T, a *apiServer) {
			configure(t, a, "profiles: [{schedulerName: green}, {schedulerName: default-scheduler}]")
			a.add(t, "/api/v1/namespaces/ns/pods", markedPod("a"))
		}, "scheduler names", dashboard.StatusFail, "1 pod is waiting for the scheduler kubenergy"},
		"pod with the name of a second scheduler": {func(t *testing.T, a *apiServer) {
			configure(t, a, string(deploy.DefaultSchedulerConfig))
			a.add(t, "/api/v1/namespaces/ns/pods", markedPod("a"))
		}, "scheduler names", dashboard.StatusFail, "1 pod is waiting for the scheduler kubenergy"},
		"custom scheduler name": {func(t *testing.T, a *apiServer) {
			gone(t, a)
			configure(t, a, "profiles: [{schedulerName: green}]")
			pod := markedPod("a")
			pod.Spec.SchedulerName = "green"
			a.add(t, "/api/v1/namespaces/ns/pods", pod)
		}, "scheduler names", dashboard.StatusFail, "1 pod is waiting for the scheduler green"},
		"a key for the wrong program": {setVariable(cmdutil.SchedulerName, v1.EnvVar{
			Name: "ELECTRICITY_MAP_API_KEY", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{Key: "key"}},
		}), "variables", dashboard.StatusWarn, "kubenergy-scheduler: environment variable ELECTRICITY_MAP_API_KEY has no effect"},
		"key without a zone": {
			setVariable(cmdutil.ControllerName, v1.EnvVar{Name: "ELECTRICITY_MAP_API_KEY", Value: "s"}),
			"variables", dashboard.StatusWarn, "kubenergy-controller: environment variable ELECTRICITY_MAP_API_KEY has no effect on its own",
		},
		"a log level": {
			setVariable(cmdutil.ControllerName, v1.EnvVar{Name: "LOG_LEVEL", Value: "debug"}),
			"variables", dashboard.StatusWarn, "kubenergy-controller: environment variable LOG_LEVEL has no effect",
		},
		"variable with an unknown name": {
			setVariable(cmdutil.SchedulerName, v1.EnvVar{Name: "CARBON_INTENSITY_TRESHOLD", Value: "2"}),
			"variables", dashboard.StatusWarn, "environment variable CARBON_INTENSITY_TRESHOLD has no effect",
		},
		"prices that no zone has": {
			setVariable(cmdutil.SchedulerName, v1.EnvVar{Name: "PRICING_ENABLED", Value: "true"}),
			"variables", dashboard.StatusWarn, "PRICING_ENABLED has no effect: no GridZone has prices",
		},
		"schedules alone": {
			setVariable(cmdutil.SchedulerName, v1.EnvVar{Name: "PRICING_SCHEDULES_PATH", Value: "/x"}),
			"variables", dashboard.StatusWarn, "environment variable PRICING_SCHEDULES_PATH has no effect",
		},
		"threshold of one program": {setVariable(cmdutil.SchedulerName, v1.EnvVar{
			Name: "CARBON_INTENSITY_THRESHOLD", Value: "250",
		}), "variables", dashboard.StatusWarn, `CARBON_INTENSITY_THRESHOLD is "250" for the scheduler and not set for the controller`},
		"truncated delay": {
			setVariable(cmdutil.SchedulerName, v1.EnvVar{Name: "MAX_SCHEDULING_DELAY", Value: "900h"}),
			"variables", dashboard.StatusWarn, "MAX_SCHEDULING_DELAY is 900h0m0s, which is reduced to 24h0m0s",
		},
		"truncated delay of a policy": {func(t *testing.T, a *apiServer) {
			edit(t, a, policiesPath+"/default", func(p *v1alpha1.EnergyPolicy) {
				p.Spec.AllowedDelay = &metav1.Duration{Duration: 100 * time.Hour}
			})
		}, "mode", dashboard.StatusWarn, "EnergyPolicy kubenergy-system/default: allowedDelay is 100h0m0s, which is reduced to 24h0m0s"},
		"nodes not readable": {
			func(_ *testing.T, a *apiServer) { a.refused["list nodes"] = true }, "nodes",
			dashboard.StatusWarn, "you are not allowed to read nodes",
		},
		"permissions not readable": {func(_ *testing.T, a *apiServer) {
			a.refused["create subjectaccessreviews"] = true
		}, "permissions", dashboard.StatusWarn, "you are not allowed to read the permissions"},
		"no metrics-server": {
			func(_ *testing.T, a *apiServer) { delete(a.served, "metrics.k8s.io/v1beta1") },
			"metrics", dashboard.StatusOK, "metrics-server is not installed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := healthy(t)
			c.break_(t, a)
			code, stdout, stderr := a.run(t, "doctor", "-o", "json")
			var report struct{ Checks []dashboard.Finding }
			if err := json.Unmarshal([]byte(stdout), &report); err != nil {
				t.Fatalf("%v: %s%s", err, stdout, stderr)
			}
			found, fails := false, 0
			for _, f := range report.Checks {
				found = found || f.Check == c.check && f.Status == c.status && strings.Contains(f.Message, c.description)
				if f.Status == dashboard.StatusFail {
					fails++
				}
				if f.Status != dashboard.StatusOK && f.Advice == "" {
					t.Errorf("missing advice: %+v", f)
				}
			}
			if !found {
				t.Errorf("missing finding with status %s of check %q and message %q in\n%s", c.status, c.check, c.description, stdout)
			}
			if want := fails > 0; (code == 1) != want ||
				want && !strings.Contains(stderr, fmt.Sprintf("%s failed", humanize.Count(fails, "check"))) {
				t.Errorf("exit code %d with %d failures: %s", code, fails, stderr)
			}
			if (c.status == dashboard.StatusFail) != (fails > 0) {
				t.Errorf("unexpected number of failures: %d", fails)
			}
		})
	}
}

// gone sets up a cluster in which the scheduler of KubEnergy no longer runs.
func gone(t *testing.T, a *apiServer) {
	for _, name := range []string{cmdutil.SchedulerName, cmdutil.HoldLease} {
		a.add(t, leasePath, lease(name, time.Hour))
	}
}

func configure(t *testing.T, a *apiServer, text string) {
	a.add(t, "/api/v1/namespaces/kubenergy-system/configmaps", &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: cmdutil.SchedulerName}, Data: map[string]string{"scheduler.yaml": text},
	})
}

func setVariable(program string, e v1.EnvVar) func(*testing.T, *apiServer) {
	return func(t *testing.T, a *apiServer) {
		edit(t, a, deploymentPath+"/"+program, func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Env = append(d.Spec.Template.Spec.Containers[0].Env, e)
		})
	}
}

// A variable that both programs share and a key that a zone uses are not reported.
func TestDoctorAcceptsVariables(t *testing.T) {
	a := healthy(t)
	for _, program := range []string{cmdutil.SchedulerName, cmdutil.ControllerName} {
		setVariable(program, v1.EnvVar{Name: "CARBON_INTENSITY_THRESHOLD", Value: "250"})(t, a)
	}
	setVariable(cmdutil.ControllerName, v1.EnvVar{Name: "ELECTRICITY_MAP_API_KEY", Value: "s"})(t, a)
	edit(t, a, zonePath+"/DE", func(z *v1alpha1.GridZone) {
		z.Spec.Carbon.Sources = []v1alpha1.CarbonSource{{
			ElectricityMaps: &v1alpha1.ElectricityMapsSource{Key: policy.GardenerKey},
		}}
	})
	if _, stdout, _ := a.run(t, "doctor"); !strings.Contains(stdout, "no variable of Compute Gardener is ineffective") {
		t.Error(stdout)
	}
}

func editZone(change func(*v1alpha1.GridZone)) func(*testing.T, *apiServer) {
	return func(t *testing.T, a *apiServer) { edit(t, a, zonePath+"/DE", change) }
}

func except(allowed func(string, *authorizationv1.ResourceAttributes) bool, answer bool, verb, resource,
	account string,
) func(string, *authorizationv1.ResourceAttributes) bool {
	return func(user string, r *authorizationv1.ResourceAttributes) bool {
		if strings.HasSuffix(user, account) && r.Verb == verb && r.Resource == resource {
			return answer
		}
		return allowed(user, r)
	}
}

func TestDoctorWithoutAnInstallation(t *testing.T) {
	a := newAPIServer(t)
	delete(a.served, "kubenergy.io/v1alpha1")
	a.add(t, nodePath, node("n1", nil))
	code, stdout, stderr := a.run(t, "doctor")
	if code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	golden(t, "doctor_empty.golden", stdout)
}

// Objects that remain after an uninstallation are not reported as working.
func TestDoctorAfterAnUninstallation(t *testing.T) {
	a := healthy(t)
	gone(t, a)
	a.add(t, leasePath, lease(cmdutil.ControllerName, time.Hour))
	for _, name := range []string{cmdutil.SchedulerName, cmdutil.ControllerName} {
		a.delete(deploymentPath + "/" + name)
		a.delete(accountPath + "/" + name)
	}
	for _, kind := range []string{"mutatingadmissionpolicies/", "mutatingadmissionpolicybindings/"} {
		a.delete(policyPath + kind + kube.HoldPolicy)
	}
	_, stdout, _ := a.run(t, "doctor")
	for _, want := range []string{
		"warn  hold policy         no workload is held, because no scheduler is installed or running",
		"warn  mode                the mode of the cluster is enforce: decisions are applied; no scheduler is installed or running",
		"warn  grid zones          GridZone DE: carbon 300 gCO2e/kWh from electricityMaps, measured, 10 min old; " +
			"no controller that updates it is installed or running",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("missing %q in:\n%s", want, stdout)
		}
	}
}

func TestDoctorWithoutAServer(t *testing.T) {
	a := newAPIServer(t)
	edited := strings.Replace(a.kubeconfig, "kubeconfig", "nowhere", 1)
	writeKubeconfig(t, edited, "http://127.0.0.1:1")
	a.kubeconfig = edited
	code, stdout, stderr := a.run(t, "doctor")
	if code != 1 || !strings.HasPrefix(stdout, "fail  kubernetes version  the API server did not respond") ||
		!strings.Contains(stderr, "1 check failed") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
}

// waitingJob returns a held Job with the given time left until its latest start.
func waitingJob(name string, left time.Duration) metav1.Object {
	j := heldJob(name)
	j.CreationTimestamp = metav1.NewTime(testNow.Add(-2 * time.Hour))
	j.Annotations[v1alpha1.AnnotationLatestStart] = testNow.Add(left).Format(time.RFC3339)
	return j
}
