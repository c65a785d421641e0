package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func armOf(f *File, objects ...*corev1.Pod) *arm {
	client := fake.NewClientset()
	a := &arm{
		Runner: &Runner{File: f, client: client}, round: 1, namespace: "arm", scheduler: "theirs",
		pods: map[types.UID]*pod{}, answers: map[string]int{}, began: time.Now(),
	}
	for i, o := range objects {
		o.Name, o.Namespace, o.UID = fmt.Sprint("pod-", i), "arm", types.UID(strconv.Itoa(i))
		_ = client.Tracker().Add(o)
		a.see(o, false)
	}
	return a
}

func podOf(load, class, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelExperimentLoad: load, v1alpha1.LabelWorkloadClass: class},
			Annotations: map[string]string{v1alpha1.AnnotationExpectedDuration: "2m0s"},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")},
		}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
}

// A service consists of a Deployment and a Service for the same pods. Stress is a Deployment.
func TestDeploy(t *testing.T) {
	f := &File{target: TargetLab, Load: []Load{
		{
			Name: "web", Count: 2, Replicas: 3, CPU: resource.MustParse("150m"),
			Work: metav1.Duration{Duration: 2 * time.Millisecond},
		},
		{Name: "batch", Count: 4, Utilisation: 0.8, CPU: resource.MustParse("2")},
	}}
	a := armOf(f)
	for i := range f.Load {
		if err := a.deploy(t.Context(), &f.Load[i]); err != nil {
			t.Fatal(err)
		}
	}
	if a.wanted != 10 {
		t.Errorf("unexpected number of required pods: %d", a.wanted)
	}
	service, err := a.client.CoreV1().Services("arm").Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	web, err := a.client.AppsV1().Deployments("arm").Get(t.Context(), "web-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *web.Spec.Replicas != 3 || !cmp.Equal(web.Spec.Template.Labels, service.Spec.Selector) ||
		web.Spec.Template.Labels[v1alpha1.LabelExperimentApp] != "web-1" ||
		web.Spec.Template.Labels[v1alpha1.LabelExperimentLoad] != "web" {
		t.Errorf("got pods %+v, selected by %v", web.Spec, service.Spec.Selector)
	}
	c := web.Spec.Template.Spec.Containers[0]
	if got := strings.Join(c.Args, " "); got != "experiment serve --listen=:8080 --work=2ms" || c.Image != "kubenergy" ||
		c.Resources.Requests.Cpu().MilliValue() != 150 || web.Spec.Template.Spec.SchedulerName != "theirs" {
		t.Errorf("%s: %+v", got, c)
	}
	batch, err := a.client.AppsV1().Deployments("arm").Get(t.Context(), "batch-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c = batch.Spec.Template.Spec.Containers[0]
	got := strings.Join(c.Args, " ")
	if got != "stress --cpu=2 --utilisation=0.8 --duration=240h" || *batch.Spec.Replicas != 4 {
		t.Errorf("%s: %+v", got, batch.Spec)
	}
}

// The image of a contestant runs in its own namespace with all permissions. The image of KubEnergy uses the shipped
// profile.
func TestImagesAreRun(t *testing.T) {
	for _, c := range []Contestant{
		{Name: "theirs", Image: "theirs:1", Args: []string{`--say="x"`}, SchedulerName: "their-scheduler"},
		{Name: "ours", Image: "kubenergy-scheduler:1", Strategy: "energy"},
	} {
		a := armOf(&File{target: TargetCluster})
		a.Contestant, a.Runner.run = &c, "now"
		if err := a.startScheduler(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := a.client.AppsV1().Deployments("arm-scheduler").Get(t.Context(), "scheduler", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		config, err := a.client.CoreV1().ConfigMaps("arm-scheduler").Get(t.Context(), "config", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		wantName, wantArgs, wantConfig := c.SchedulerName, c.Args, ""
		if c.Strategy != "" {
			wantName, wantConfig = "experiment-ours", string(schedulerConfig("experiment-ours", "", c.Strategy))
			wantArgs = []string{"--config=/etc/scheduler/config.yaml", "--secure-port=0", "--leader-elect=false"}
		}
		if got := d.Spec.Template.Spec.Containers[0]; a.scheduler != wantName || got.Image != c.Image ||
			!cmp.Equal(got.Args, wantArgs) || config.Data["config.yaml"] != wantConfig {
			t.Errorf("%s: %s runs %q with %q and %q", c.Name, a.scheduler, got.Image, got.Args, config.Data)
		}
		rights, err := a.client.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{
			LabelSelector: v1alpha1.LabelExperiment, // label for the cleanup
		})
		if err != nil || len(rights.Items) != 1 || rights.Items[0].Subjects[0].Namespace != "arm-scheduler" {
			t.Errorf("%s: %+v, %v", c.Name, rights.Items, err)
		}
	}
}

// The lab receives the run time in decimal digits, even for very slow nodes, because it does not parse exponents.
func TestTellsHowLongASlowNodeTakes(t *testing.T) {
	f := &File{Load: []Load{{Name: "train", jobs: []sched.Job{{}}}}}
	a := armOf(f, podOf("train", "training", "slow"), podOf("train", "training", "fast"))
	for name, rate := range map[string]float64{"fast": 68.4, "slow": 0.0042} {
		a.nodes = append(a.nodes, sched.Node{Name: name, Benchmarks: map[string]energy.Benchmark{"training": {Rate: rate}}})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := a.notify(ctx); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"pod-0": "1954285.7", "pod-1": "120.0"} {
		p, err := a.client.CoreV1().Pods("arm").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := p.Annotations[v1alpha1.AnnotationLabRunSeconds]
		if !strings.HasPrefix(got, want) || !regexp.MustCompile(`^[0-9]+([.][0-9]+)?$`).MatchString(got) {
			t.Errorf("%s: got %q, want %s", name, got, want)
		}
	}
}

// With a mistyped class, Jobs would run for the same time on every node.
func TestUnknownClass(t *testing.T) {
	a := armOf(&File{target: TargetLab, Load: []Load{{Name: "web"}, {Name: "train", Class: "traning"}}})
	a.nodes = []sched.Node{{}, {Benchmarks: map[string]energy.Benchmark{"training": {Rate: 1}}}}
	want := `load: train: no node has a benchmark of the class "traning" (did you mean training?)`
	if err := a.checkClasses(); err == nil || err.Error() != want {
		t.Error(err)
	}
	a.File.Load[1].Class = "training"
	if err := a.checkClasses(); err != nil {
		t.Error(err)
	}
}

// If pods do not become ready, the error contains the reasons, including those of the contestant.
func TestWhatPodsWaitFor(t *testing.T) {
	full, image := podOf("web", "", ""), podOf("web", "", "n")
	full.Status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/9 nodes are available"},
	}
	image.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Image: "theirs:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}},
	}}
	a := armOf(&File{}, full)
	image.Namespace = "arm-scheduler"
	if err := a.client.(*fake.Clientset).Tracker().Add(image); err != nil {
		t.Fatal(err)
	}
	want := "; pods are waiting: 0/9 nodes are available; ErrImagePull theirs:1"
	if got := a.waiting(t.Context()); got != want {
		t.Errorf("waiting() = %q, want %q", got, want)
	}
}

// Energy is modelled from requests for services, from the utilisation for stress, and from benchmarks for classes.
func TestPower(t *testing.T) {
	f := &File{Load: []Load{
		{Name: "web", Replicas: 1, Work: metav1.Duration{Duration: 100 * time.Millisecond}},
		{Name: "stress", Utilisation: 0.5},
		{Name: "train", jobs: []sched.Job{{}}},
	}}
	a := armOf(f, podOf("web", "", "n"), podOf("stress", "", "n"), podOf("train", "training", "n"), podOf("train", "", ""))
	a.nodes = []sched.Node{{
		Name: "n", Site: &sched.Site{}, Capacity: sched.Resources{MilliCPU: 4000},
		Profile:    &energy.Profile{Idle: 10, Max: 50, Exponent: 1},
		Benchmarks: map[string]energy.Benchmark{"training": {Power: 30, Idle: 10}},
	}}
	a.answers["pod-0"] = 10
	var s report.ExperimentSample
	a.power(&s, time.Second)
	// The first node uses 1 core of web and 1 core of stress out of 4, which is half of 40 W. The second node has
	// 20 W of training and 10 W idle.
	if s.Watts != 50 || s.Cores != 4 || s.Pods != 3 {
		t.Errorf("%+v", s)
	}
}

// The scheduler runs with the shipped configuration with one profile, which scores every pod with the strategy.
func TestSchedulerConfig(t *testing.T) {
	var config struct {
		Connection map[string]any `json:"clientConnection"`
		Profiles   []struct {
			SchedulerName string
			Plugins       map[string]any
			PluginConfig  []struct{ Args map[string]any }
		}
	}
	text := schedulerConfig("experiment-ours", `/a "folder"/kubeconfig`, "energy")
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if len(config.Profiles) != 1 || config.Profiles[0].SchedulerName != "experiment-ours" ||
		config.Connection["kubeconfig"] != `/a "folder"/kubeconfig` || config.Connection["qps"] == nil ||
		len(config.Profiles[0].Plugins) == 0 || len(config.Profiles[0].PluginConfig) != 1 {
		t.Fatalf("%+v", config)
	}
	if args := config.Profiles[0].PluginConfig[0].Args; args["strategy"] != "energy" || args["scope"] != "All" {
		t.Errorf("%+v", args)
	}
}

// The error of an exited program contains its last output, and a running program can be stopped.
func TestProcess(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := start(log, "here", "/bin/sh", "-c", "echo $KUBECONFIG; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.lives(); err != nil {
		t.Error(err)
	}
	for text := ""; text != "here\n"; time.Sleep(10 * time.Millisecond) {
		said, _ := os.ReadFile(log)
		text = string(said)
	}
	p.stop()
	if err := p.lives(); err == nil || !strings.HasSuffix(err.Error(), "sh exited: here\n") {
		t.Error(err)
	}
	var none *process
	none.stop()
	if none.lives() != nil || none.cpu() != 0 {
		t.Error("a nil process has exited or has used CPU time")
	}
}

// Meters are also read at the end of the arm, so that measured and modelled samples are not mixed.
func TestAllSamplesAreMetered(t *testing.T) {
	f := &File{Duration: metav1.Duration{Duration: 1200 * time.Millisecond}}
	a := armOf(f)
	a.Meter = func(ctx context.Context) (float64, string, error) { return 100, "rapl (measured)", ctx.Err() }
	ctx, cancel := context.WithDeadline(t.Context(), a.began.Add(f.Duration.Duration))
	defer cancel()
	trial := &report.ExperimentTrial{Values: map[string]float64{}}
	if err := a.sample(ctx, trial); err != nil {
		t.Fatal(err)
	}
	if len(trial.Samples) != 2 || trial.Samples[1].Watts != 100 || a.meter != "rapl (measured)" ||
		trial.Values["energyJoules"] < 119 {
		t.Errorf("%+v: %v", trial, a.meter)
	}
}
