//go:build linux && amd64

package vm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

const (
	tolerance = 0.05 // relative deviation of a pod's share
	working   = 2 * time.Minute
)

// world is a hypervisor with guests that are nodes of one control plane, and a Prometheus outside of the guests.
type world struct {
	*cluster.Cluster
	host       *host
	guests     []*node
	prometheus string         // address
	processes  []*kit.Process // processes of the pipeline, excluding QEMU
}

// node is a guest with a kubelet and an agent.
type node struct {
	*guest.Machine
	*listener
	name string
	page string // metrics URL of the agent
	pods []*pod
}

// pod is a pod with one container that burns CPU.
type pod struct {
	*corev1.Pod
	container string
}

// TestPipeline meters pods in two guests and compares the values in an external Prometheus with the counter of the
// host and with the CPU times reported by the kernels of the guests.
func TestPipeline(t *testing.T) {
	d := guest.MakeDisk(t, guest.Require(t, "e2e-vm"))
	kit.Prometheus(t, "prometheus") // skips the test before anything is started
	machine := kit.WatchMachine(t)
	w := &world{Cluster: cluster.Start(t, lab.Options{})}
	w.host = startHost(t, w.Dir)
	w.processes = append(w.processes, w.host.agent)
	b := &baselines{world: w}
	b.measure(t, "no guests")
	extras := packExtras(t, w.Dir)
	for i := range 2 {
		w.addGuest(t, d, fmt.Sprint("guest-", i+1), extras)
	}
	for _, n := range w.guests {
		n.awaitReady(t, w)
	}
	b.measure(t, "guests with kubelets")
	w.startPrometheus(t)
	b.measure(t, "with Prometheus")
	w.Namespace(t, "work", nil)
	for i, n := range w.guests {
		for k, milli := range []int64{300, 150} {
			w.submit(t, n, fmt.Sprintf("pod-%d", 2*i+k+1), milli-25*int64(i))
		}
	}
	for _, n := range w.guests {
		w.awaitPods(t, n)
	}
	for _, n := range w.guests {
		n.forget()
	}
	b.measure(t, "with pods")
	b.write(t)
	w.checkShares(t)
	w.checkAges(t, machine)
	first := w.stand(t)
	time.Sleep(30 * time.Second)
	w.checkSums(t, first, w.stand(t))
}

// packExtras creates the archive with the additional programs of a guest: the agent with its units, installed as
// documented, and the probe.
func packExtras(t *testing.T, dir string) (path string) {
	t.Helper()
	stage := filepath.Join(dir, "extras")
	units := "etc/systemd/system/"
	for to, from := range map[string]string{
		"usr/local/bin/kubenergy-agent":   kit.Build(t, "./cmd/kubenergy-agent"),
		"usr/local/bin/probe":             kit.Build(t, "./test/vm/testdata/probe"),
		units + "kubenergy-agent.service": filepath.Join(kit.Root, "deploy/systemd/kubenergy-agent.service"),
		units + "var-scaphandre.mount":    filepath.Join(kit.Root, "deploy/systemd/var-scaphandre.mount"),
	} {
		guest.Command(t, "install", "-D", from, filepath.Join(stage, to))
	}
	kit.Write(t, filepath.Join(stage, units, "probe.service"),
		"[Unit]\nAfter=var-scaphandre.mount\n[Service]\nExecStart=/usr/local/bin/probe\n")
	if err := os.Mkdir(filepath.Join(stage, "etc/default"), 0o755); err != nil {
		t.Fatal(err)
	}
	args := "--listen=:2112 --interval=500ms --cgroup=" + strings.Join(services, " --cgroup=")
	kit.Write(t, filepath.Join(stage, "etc/default/kubenergy-agent"), "KUBENERGY_AGENT_ARGS=\""+args+"\"\n")
	kit.Write(t, filepath.Join(stage, "etc/extras"), "var-scaphandre.mount kubenergy-agent probe\n")
	path = filepath.Join(dir, "extras.tar")
	guest.Command(t, "tar", "-C", stage, "-cf", path, "etc", "usr")
	return path
}

// addGuest starts a guest with the shared directory of its host.
func (w *world) addGuest(t *testing.T, d guest.Disk, name, extras string) {
	t.Helper()
	dir := filepath.Join(w.Dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	address := kit.Address(t)
	shared, args := w.host.share(t, dir, name, "2G")
	n := &node{name: name, page: "http://" + address + "/metrics", Machine: guest.New(t, d, dir, guest.Options{
		Name: name, UUID: fmt.Sprintf("5ca1ab1e-0000-4000-8000-%012d", len(w.guests)+1),
		Kubeconfig: w.GuestKubeconfig(t, name), Extras: extras, Args: args,
		Network: ",hostfwd=tcp:" + address + "-:2112",
	})}
	n.listener = w.host.add(t, n.Machine)
	w.guests = append(w.guests, n)
	w.processes = append(w.processes, shared)
}

// awaitReady waits until the node is Ready and its agent reads the shared counter.
func (n *node) awaitReady(t *testing.T, w *world) {
	t.Helper()
	kit.Await(t, n.Patience()*2*time.Minute, n.name+" is Ready", func(ctx context.Context) (bool, error) {
		got, err := w.Client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		return slices.ContainsFunc(got.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}), fmt.Errorf("conditions %v", got.Status.Conditions)
	}, n.On(), w.host.agent)
	kit.Await(t, n.Patience()*time.Minute, n.name+"'s agent reads its counter",
		func(ctx context.Context) (bool, error) {
			page := page(ctx, n.page)
			info := fmt.Sprintf(`host="%s",`, hostName)
			_, ours := kit.Metric(t, page, "kubenergy_node_info", info, `vm="`+n.name+`"`)
			return ours && total(t, page, nodeEnergy) > 0, fmt.Errorf("metrics page: %.2000s", page)
		}, n.On(), w.host.agent)
}

// startPrometheus starts a Prometheus that scrapes all agents every five seconds.
func (w *world) startPrometheus(t *testing.T) {
	t.Helper()
	pages := []string{address(w.host.url)}
	for _, n := range w.guests {
		pages = append(pages, address(n.page))
	}
	config := "global: {scrape_interval: 5s, scrape_timeout: 5s}\nscrape_configs:\n- job_name: agents\n" +
		"  static_configs: [{targets: [" + strings.Join(pages, ", ")
	var p *kit.Process
	p, w.prometheus = kit.StartPrometheus(t, w.Dir, []byte(config+"]}]\n"))
	w.processes = append(w.processes, p)
	kit.Await(t, time.Minute, "Prometheus scrapes all agents", func(ctx context.Context) (bool, error) {
		up, err := kit.Query(ctx, w.prometheus, "up == 1")
		return len(up) == 1+len(w.guests), errors.Join(err, fmt.Errorf("up: %v", up))
	})
}

func address(page string) string {
	return strings.TrimSuffix(strings.TrimPrefix(page, "http://"), "/metrics")
}

// submit creates a pod that uses as much CPU as its limit allows.
func (w *world) submit(t *testing.T, n *node, name string, milli int64) {
	t.Helper()
	cpu := corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	p, err := w.Client.CoreV1().Pods("work").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: n.name, AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{
				Name: "burn", Image: guest.Image, ImagePullPolicy: corev1.PullNever, Args: []string{"1"},
				Resources: corev1.ResourceRequirements{Requests: cpu, Limits: cpu},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.pods = append(n.pods, &pod{Pod: p})
}

// awaitPods waits until the pods of a guest run and both its probe and Prometheus have data on them.
func (w *world) awaitPods(t *testing.T, n *node) {
	t.Helper()
	for _, p := range n.pods {
		kit.Await(t, n.Patience()*time.Minute, p.Name+" runs and is metered", func(ctx context.Context) (bool, error) {
			got, err := w.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			if s := got.Status.ContainerStatuses; len(s) == 1 && s[0].State.Running != nil {
				_, p.container, _ = strings.Cut(s[0].ContainerID, "://")
			}
			if p.container == "" {
				return false, fmt.Errorf("%v", got.Status)
			}
			if _, err := n.used(p.group()); err != nil {
				return false, err
			}
			j, err := w.joules(ctx, n, fmt.Sprintf("kubenergy_container_energy_joules_total{pod_uid=%q}", p.UID))
			return j > 0, err
		}, n.On(), w.host.agent)
	}
}

func (p *pod) group() string { return "cri-containerd-" + p.container + ".scope" }

// joules returns the sum of an expression for a guest in Prometheus. It returns an error if there is no data, for
// example after a scrape timeout.
func (w *world) joules(ctx context.Context, n *node, expr string) (all energy.Microjoules, err error) {
	series, err := kit.Query(ctx, w.prometheus, expr)
	found := false
	for _, s := range series {
		if s.Labels["node"] != n.name {
			continue
		}
		var v float64
		if _, err := fmt.Sscan(s.Value, &v); err != nil {
			return 0, err
		}
		all, found = all+energy.Joules(v).Microjoules(), true
	}
	if err == nil && !found {
		err = fmt.Errorf("no series for %s in Prometheus: %s", n.name, expr)
	}
	return all, err
}

const (
	ofPods = `kubenergy_container_energy_joules_total`
	ofAll  = `{__name__=~"kubenergy_(container|vm|cgroup|system|other|ended)_energy_joules_total|` +
		`kubenergy_node_(idle|platform|unknown)_joules_total"}`
)

// standing contains the values of all counters while they were stopped.
type standing struct {
	at   time.Time
	host energy.Microjoules
	// Values by guest.
	given, counted, parts, pods []energy.Microjoules
}

// stand stops the counter of the host until its value has arrived in Prometheus and reads all counters. The RAPL
// counters of the machine cannot be stopped.
func (w *world) stand(t *testing.T) (s standing) {
	t.Helper()
	w.host.mu.Lock()
	defer w.host.mu.Unlock()
	const still = 17 * time.Second // after 15 s, an agent in a guest treats a constant value as no usage
	page := ""
	kit.Await(t, 2*time.Minute, "all counters are constant", func(ctx context.Context) (bool, error) {
		page = w.host.page(ctx)
		now, err := w.read(ctx, t, page)
		if err != nil || w.host.tree == nil {
			s = now
			return err == nil, err
		}
		if now.host != s.host || !slices.Equal(now.given, s.given) || !slices.Equal(now.counted, s.counted) ||
			!slices.Equal(now.parts, s.parts) {
			s = now
		}
		return time.Since(s.at) > still, fmt.Errorf("%+v", now)
	}, w.host.agent)
	if all := sum(t, page); all != s.host {
		t.Errorf("sum of the parts of the host = %d µJ, want its energy %d µJ", all, s.host)
	}
	if w.host.tree == nil {
		return s
	}
	if stands := w.host.tree.Used(); uint64(s.host) != stands {
		t.Errorf("energy of the host = %d µJ, want the counted %d µJ", s.host, stands)
	}
	for i, n := range w.guests {
		if of := total(t, page, fmt.Sprintf(ofParts, "vm"), `vm="`+n.name+`"`); of != s.given[i] {
			t.Errorf("guest %s: %d µJ on the metrics page of the host, want its counter value %d µJ",
				n.name, of, s.given[i])
		}
	}
	return s
}

// read reads the counters of the host from its metrics page and those of the guests from their directories and
// Prometheus.
func (w *world) read(ctx context.Context, t *testing.T, page string) (s standing, err error) {
	t.Helper()
	s = standing{at: time.Now(), host: total(t, page, nodeEnergy)}
	for _, n := range w.guests {
		var counts [3]energy.Microjoules
		for i, expr := range []string{nodeEnergy, ofAll, ofPods} {
			if counts[i], err = w.joules(ctx, n, expr); err != nil {
				return s, err
			}
		}
		s.given = append(s.given, w.host.counter(t, n.name))
		s.counted, s.parts, s.pods = append(s.counted, counts[0]), append(s.parts, counts[1]), append(s.pods, counts[2])
	}
	return s, nil
}

// checkSums compares the energy of pods and other consumers in Prometheus with the counter of the host between two
// standings. The RAPL counters of the machine advance between the readings, so the difference may be up to the
// energy of three seconds.
func (w *world) checkSums(t *testing.T, from, to standing) {
	t.Helper()
	all, slack := to.host-from.host, energy.Microjoules(0)
	if w.host.tree == nil {
		slack = energy.Microjoules(float64(all) * 3 / to.at.Sub(from.at).Seconds())
	}
	var inGuests energy.Microjoules
	for i, n := range w.guests {
		given, counted := to.given[i]-from.given[i], to.counted[i]-from.counted[i]
		parts, pods := to.parts[i]-from.parts[i], to.pods[i]-from.pods[i]
		t.Logf("figures: %s: counter set by the host %d µJ, recorded in the guest %d µJ: pods %d µJ and others %d µJ",
			n.name, given,
			counted, pods, parts-pods)
		if max(given-counted, counted-given) > slack || parts != counted || pods <= 0 {
			t.Errorf("guest %s: counter %d µJ, recorded %d µJ, sum of parts %d µJ, sum of pods %d µJ",
				n.name, given, counted,
				parts, pods)
		}
		inGuests += given
	}
	t.Logf("figures: counter of the host %d µJ: guests %d µJ, others %d µJ", all, inGuests, all-inGuests)
	if inGuests > all {
		t.Errorf("guests used %d µJ, more than the %d µJ of the host", inGuests, all)
	}
}

// checkShares compares the share of each pod in the dynamic energy of its guest's pods with its share in their CPU
// time. The table also contains the shares relative to pods and services together. Services run in bursts, and a
// second of CPU time in a guest uses less energy while it is waiting for its host. The kernel is excluded because
// its CPU time is only sampled in the guest.
func (w *world) checkShares(t *testing.T) {
	t.Helper()
	before := make([][]use, len(w.guests))
	for i, n := range w.guests {
		before[i] = w.uses(t, n)
	}
	time.Sleep(working)
	table := &report.Table{Columns: []report.Column{
		{Name: "Pod", Field: "pod", Words: true},
		{Name: "of", Field: "guest", Words: true},
		{Name: "Energy\n(J)", Field: "joules", Show: humanize.Significant},
		{Name: "CPU time\n(s)", Field: "cpuSeconds", Show: humanize.Significant},
		{Name: "of pods'\nenergy", Field: "energyShare", Show: humanize.Significant},
		{Name: "of their\nCPU time", Field: "cpuShare", Show: humanize.Significant},
		{Name: "with services:\nof energy", Field: "energyShareOfAll", Show: humanize.Significant},
		{Name: "with services:\nof CPU time", Field: "cpuShareOfAll", Show: humanize.Significant},
	}}
	for i, n := range w.guests {
		after := w.uses(t, n)
		var pods use
		for k := range after {
			after[k].joules -= before[i][k].joules
			after[k].cpu -= before[i][k].cpu
			if k > 0 {
				pods = use{joules: pods.joules + after[k].joules, cpu: pods.cpu + after[k].cpu}
			}
		}
		for k, p := range n.pods {
			one, all := after[k+1], after[0]
			ofEnergy, ofCPU := one.joules/pods.joules, one.cpu/pods.cpu
			table.Add(p.Name, n.name, one.joules, one.cpu, ofEnergy, ofCPU, one.joules/all.joules, one.cpu/all.cpu)
			if !(math.Abs(ofEnergy/ofCPU-1) <= tolerance) {
				t.Errorf("share of pod %s in the dynamic energy = %.4f, want its share in the CPU time %.4f",
					p.Name, ofEnergy, ofCPU)
			}
		}
	}
	write(t, "shares.csv", table)
}

// uses returns the total usage of all pods and services of a guest, followed by the usage of each pod. The energy
// is read from Prometheus and the CPU time from the kernel of the guest.
func (w *world) uses(t *testing.T, n *node) (uses []use) {
	t.Helper()
	exprs := []string{`{__name__=~"kubenergy_(container|cgroup)_energy_joules_total",mode="dynamic"}`}
	groups := [][]string{slices.Clone(services)}
	for _, p := range n.pods {
		exprs = append(exprs, fmt.Sprintf(ofPods+`{mode="dynamic",pod_uid=%q}`, p.UID))
		groups[0] = append(groups[0], p.group())
		groups = append(groups, []string{p.group()})
	}
	kit.Await(t, time.Minute, "Prometheus and the probe have data on "+n.name, func(ctx context.Context) (bool, error) {
		uses = nil
		for i, expr := range exprs {
			joules, err := w.joules(ctx, n, expr)
			u := use{joules: float64(joules.Joules())}
			for _, group := range groups[i] {
				used, unknown := n.used(group)
				err, u.cpu = errors.Join(err, unknown), u.cpu+used.Seconds()
			}
			if err != nil {
				return false, err
			}
			uses = append(uses, u)
		}
		return true, nil
	}, n.On())
	return uses
}

// checkAges checks the age of the readings in the guests since their pods started.
func (w *world) checkAges(t *testing.T, machine *kit.Machine) {
	t.Helper()
	for _, n := range w.guests {
		var ages []float64
		for _, age := range n.reported() {
			ages = append(ages, age.Seconds())
		}
		p99 := report.Quantile(ages, 0.99)
		t.Logf("figures: %s, %v: %d readings, age p50 %.3f s, p99 %.3f s, maximum %.3f s", n.name, n.Machine, len(ages),
			report.Quantile(ages, 0.5), p99, report.Quantile(ages, 1))
		if p99 > young.Seconds() {
			machine.TooSlow("99th percentile of the age of readings in %s is %.2f s", n.name, p99)
		}
	}
}
