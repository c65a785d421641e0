package karmada

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/test/kit"
)

var factor = flag.Float64("factor", 288, "factor by which TestADay accelerates the day")

const (
	dayJobs  = 200
	anywhere = "anywhere"
	punctual = time.Second      // maximum delay of a release after the deadline
	apart    = 0.03             // maximum difference between the savings of the federation and the simulation
	known    = 60 * time.Hour   // duration of the published signals of both grids
	tail     = 14 * time.Hour   // time after the day in which all work finishes
	drain    = 90 * time.Second // additional wall-clock time for its end
)

// clusterOfDay is a member of the federation used by TestADay.
type clusterOfDay struct {
	name, zone string
	nodes      int
}

var clustersOfDay = []clusterOfDay{{"north", "GB", 10}, {"south", "US-CAL-CISO", 8}}

// dayJob is a Job of the day. Its pods correspond to consecutive jobs of the scenario, starting at index first.
type dayJob struct {
	name, place string
	first, pods int
}

// aDay creates one day of work for two clusters with recorded carbon intensities, such that each cluster is the
// cleaner one for a part of the day.
func aDay(t *testing.T) (*sim.Scenario, []dayJob) {
	t.Helper()
	folder := kit.Data(t, "electricity-maps/GB_2023.csv", "electricity-maps/US-CAL-CISO_2023.csv")
	begin := time.Date(2023, 6, 14, 0, 0, 0, 0, time.UTC)
	s := &sim.Scenario{Name: "day", Start: begin, Policy: sched.Policy{MinSaving: 0.01}}
	box := &energy.Profile{Name: "box", Idle: 100, Max: 400, Sleep: 100}
	for _, c := range clustersOfDay {
		signal, zone, err := grid.ReadCSV(filepath.Join(folder, "electricity-maps", c.zone+"_2023.csv"),
			grid.CSVOptions{From: begin, Until: begin.Add(known)})
		if err != nil {
			t.Fatal(err)
		}
		site := &sched.Site{Name: c.name, Zone: zone, Carbon: signal}
		s.Sites = append(s.Sites, site)
		room := sched.Resources{MilliCPU: 16000, Memory: 64 << 30}
		for i := range c.nodes {
			s.Nodes = append(s.Nodes, sched.Node{
				Name: fmt.Sprintf("%s-%02d", c.name, i), Site: site, Profile: box, Capacity: room, Free: room,
			})
		}
	}
	rng := rand.New(rand.NewPCG(22, 1))
	var all []dayJob
	for i := range dayJobs {
		w := dayJob{name: fmt.Sprintf("job-%03d", i), place: anywhere, first: len(s.Jobs), pods: 1 + rng.IntN(4)/3}
		if k := rng.IntN(10); k < 3 {
			w.place = clustersOfDay[k%2].name
		}
		j := sched.Job{
			Submitted:    begin.Add(time.Duration(rng.Float64() * float64(24*time.Hour))).Truncate(time.Minute),
			Duration:     time.Duration(30+rng.IntN(90)) * time.Minute,
			Request:      sched.Resources{MilliCPU: 1000 * int64(1+rng.IntN(4)), Memory: 2 << 30},
			AllowedDelay: []time.Duration{0, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour}[rng.IntN(4)],
		}
		if w.place != anywhere {
			j.Sites = []string{w.place}
		}
		for k := range w.pods {
			j.ID = fmt.Sprintf("%s-%d", w.name, k)
			s.Jobs = append(s.Jobs, j)
		}
		all = append(all, w)
	}
	return s, all
}

// day runs the work of one day in a federation.
type day struct {
	*federation
	scenario *sim.Scenario
	work     []dayJob
}

// arm is a configuration for placing and holding the Jobs of the day.
type arm struct {
	name, namespace, scheduler, weights string
}

// prepare creates the namespace of an arm with policies that send each Job to a single member, either any member or
// a specific one.
func (d *day) prepare(a *arm) {
	d.t.Helper()
	d.namespace(a.namespace, "enforce")
	for _, place := range []string{anywhere, "north", "south"} {
		affinity := ""
		if place != anywhere {
			affinity = "clusterAffinity: {clusterNames: [" + place + "]}\n    "
		}
		d.apply(d.t, fmt.Appendf(nil, `
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: %s, namespace: %s}
spec:
  schedulerName: %s
  resourceSelectors: [{apiVersion: batch/v1, kind: Job, labelSelector: {matchLabels: {place: %s}}}]
  placement:
    %sspreadConstraints: [{spreadByField: cluster, maxGroups: 1, minGroups: 1}]
    replicaScheduling: {replicaSchedulingType: Divided, replicaDivisionPreference: Weighted%s}
`, place, a.namespace, a.scheduler, place, affinity, a.weights))
	}
	d.await(time.Minute, "the members contain the namespace "+a.namespace, func() bool {
		for _, m := range d.members {
			accounts := m.client.CoreV1().ServiceAccounts(a.namespace)
			if _, err := accounts.Get(d.t.Context(), "default", metav1.GetOptions{}); err != nil {
				return false
			}
		}
		return true
	})
}

// publish publishes the carbon intensities of the grids, compressed in time.
func (d *day) publish(clock lab.Clock) {
	d.t.Helper()
	for _, site := range d.scenario.Sites {
		signal, err := clock.Signal(site.Carbon, d.scenario.Start, d.scenario.Start.Add(known))
		if err != nil {
			d.t.Fatal(err)
		}
		values := make([]any, signal.Series.Len())
		for i := range values {
			values[i] = signal.Series.Value(i)
		}
		d.apply(d.t, fmt.Appendf(nil, `
apiVersion: kubenergy.io/v1alpha1
kind: GridZone
metadata: {name: %s}
spec: {zone: %s, carbon: {sources: [{static: {value: 1}}]}}
`, site.Name, site.Zone))
		d.status(zones, site.Name, map[string]any{"observedGeneration": int64(1), "carbon": map[string]any{
			"now": values[0], "unit": "gCO2e/kWh", "quality": "measured", "source": "test", "values": values,
			"asOf":  time.Now().UTC().Format(time.RFC3339),
			"start": signal.Series.Start().UTC().Format(time.RFC3339), "step": signal.Series.Step().String(),
		}})
	}
}

// job converts a job of the day to a Kubernetes Job.
func (d *day) job(w *dayJob, clock lab.Clock) *batchv1.Job {
	of := &d.scenario.Jobs[w.first]
	j := kube.TraceJob(w.name, of, clock.Shrink)
	j.Labels = map[string]string{"place": w.place}
	if of.AllowedDelay > 0 {
		j.Annotations[v1alpha1.AnnotationAllowedDelay] = clock.Shrink(of.AllowedDelay).String()
	}
	j.Spec.Parallelism, j.Spec.Completions = new(int32(w.pods)), new(int32(w.pods))
	pod := &j.Spec.Template
	pod.Annotations[v1alpha1.AnnotationLabRunSeconds] = lab.RunSeconds(clock.Shrink(of.Duration))
	pod.Spec.SchedulerName, pod.Spec.Containers[0].Image = v1.DefaultSchedulerName, "simulated"
	return j
}

// play runs the work of the day with the configuration of an arm.
func (d *day) play(a *arm) *played {
	d.t.Helper()
	d.prepare(a)
	p := newPlayed()
	p.clock = lab.Clock{
		Trace: d.scenario.Start, Wall: time.Now().Add(6 * time.Second).Truncate(time.Second), Factor: *factor,
	}
	d.publish(p.clock)
	p.watch(d.federation, a.namespace)
	order := slices.Clone(d.work)
	slices.SortFunc(order, func(a, b dayJob) int {
		return d.scenario.Jobs[a.first].Submitted.Compare(d.scenario.Jobs[b.first].Submitted)
	})
	for i := range order {
		w := &order[i]
		time.Sleep(time.Until(p.clock.ToWall(d.scenario.Jobs[w.first].Submitted)))
		j, err := d.client.BatchV1().Jobs(a.namespace).Create(d.t.Context(), d.job(w, p.clock), metav1.CreateOptions{})
		if err != nil {
			d.t.Fatal(err)
		}
		p.mu.Lock()
		p.created[w.name] = time.Now()
		p.mu.Unlock()
		p.sawJob(j)
	}
	until := p.clock.ToWall(d.scenario.Start.Add(24*time.Hour + tail)).Add(drain)
	for p.done() < len(d.scenario.Jobs) && time.Now().Before(until) {
		if time.Sleep(time.Second); d.Ended() {
			d.t.Fatal("control plane exited unexpectedly")
		}
	}
	d.clear(a.namespace)
	return p
}

// verdict contains the violations of an arm and the delays caused by Karmada.
type verdict struct {
	held    int
	late    int             // number of Jobs released after their deadline
	started int             // number of pods bound after the deadline
	broken  int             // number of pods on clusters that their policy does not allow
	way     []time.Duration // from the release of a Job to the binding of its pod
	after   []time.Duration // from the planned to the actual release of a Job
}

// judge converts the observed pods of an arm to placements in the time of the trace and determines violations.
func (d *day) judge(name string, p *played) (placements []sim.Placement, v verdict) {
	d.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.failed) > 0 {
		d.t.Errorf("arm %s: pods failed: %v", name, p.failed)
	}
	for i := range d.work {
		w := &d.work[i]
		pods := slices.Collect(maps.Values(p.pods[w.name]))
		if len(pods) != w.pods {
			d.t.Errorf("arm %s: Job %s ran %d pods, want %d", name, w.name, len(pods), w.pods)
			pods = pods[:min(len(pods), w.pods)]
		}
		of := &d.scenario.Jobs[w.first]
		let, latest := p.created[w.name], p.created[w.name].Add(p.clock.Shrink(of.AllowedDelay)).Add(punctual)
		if at, held := p.released[w.name]; held {
			let = at
			v.held++
		}
		v.late += count(let.After(latest))
		for k, pod := range pods {
			v.broken += count(w.place != anywhere && pod.member != w.place)
			v.started += count(pod.bound.After(latest))
			v.way = append(v.way, pod.bound.Sub(let))
			start := timeutil.Later(p.clock.ToTrace(pod.bound), of.Submitted)
			placements = append(placements, sim.Placement{
				Job: w.first + k, Node: pod.node, Released: timeutil.Later(p.clock.ToTrace(let), of.Submitted), Start: start,
				Finish: start.Add(of.Duration),
			})
		}
	}
	slices.Sort(v.way)
	return placements, v
}

func count(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// records is a server that collects the decisions sent by kubenergy-karmada.
type records struct {
	mu  sync.Mutex
	all []ledger.Record
}

func (r *records) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	var reported struct{ Decisions []ledger.Record }
	if err := json.NewDecoder(request.Body).Decode(&reported); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, reported.Decisions...)
}

// replay repeats all recorded decisions and returns their number by action.
func (r *records) replay(t *testing.T) (decided map[string]int) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	decided = map[string]int{}
	for i := range r.all {
		record := &r.all[i]
		if record.Digest == "" { // releases follow from holds
			continue
		}
		data, err := report.Unpacked(record)
		if err != nil {
			t.Fatal(err)
		}
		s, err := codec.Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		strategy, err := strategy.New(record.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		decision := strategy.Plan(s)[0]
		if record.Action == "hold" && !decision.Window.Start.Equal(record.Start) || decision.Node != record.Node {
			t.Errorf("replay of decision %s for %s: recorded node %q and start %v, got %q and %v",
				record.Action, record.Owner, record.Node,
				record.Start, decision.Node, decision.Window.Start)
		}
		decided[record.Action]++
	}
	return decided
}

// plans returns the last recorded planned starts of the held Jobs in a namespace.
func (r *records) plans(namespace string) map[string]time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	plans := map[string]time.Time{}
	for i := range r.all {
		if record := &r.all[i]; record.Action == "hold" && record.Namespace == namespace {
			plans[record.Owner] = record.Start
		}
	}
	return plans
}

// after returns the sorted delays of releases relative to the planned starts.
func (p *played) after(plans map[string]time.Time) (late []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, plan := range plans {
		late = append(late, p.released[name].Sub(plan))
	}
	slices.Sort(late)
	return late
}

// row is the result of an arm or a simulation.
type row struct {
	name   string
	result *sim.Result
	verdict
}

func (r *row) wait() (mean time.Duration) {
	for i := range r.result.Outcomes {
		mean += r.result.Outcomes[i].Start.Sub(r.result.Scenario.Jobs[i].Submitted)
	}
	return mean / time.Duration(len(r.result.Outcomes))
}

// TestADay compares the emissions of one day of Jobs under Karmada's dynamic weights with those under KubEnergy,
// used as an estimator and as a scheduler. It also verifies that no Job is late, lost, run twice or placed on a
// cluster that its policy does not allow.
func TestADay(t *testing.T) {
	long(t)
	scenario, all := aDay(t)
	var members []member
	for _, c := range clustersOfDay {
		m := member{name: c.name, region: c.zone, site: c.name}
		for i := range scenario.Nodes {
			if n := &scenario.Nodes[i]; n.Site.Name == c.name {
				m.nodes = append(m.nodes, lab.NodeSpecOf(n))
			}
		}
		members = append(members, m)
	}
	d := &day{start(t, members...), scenario, all}
	var stock []*kit.Process // Karmada's weights use the capacity reported by its own estimators for each node
	for name := range d.members {
		stock = append(stock, d.estimator(name))
	}
	stock = append(stock, d.scheduler())
	d.kubenergy("{idleWatts: 100, maxWatts: 400}", "{mode: enforce, hold: {minSaving: 0.01, minSavingPerHour: 0}}")
	var rows []*row
	add := func(name string, result *sim.Result, err error, v verdict) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, &row{name, result, v})
	}
	for _, name := range []string{"karmada-dynamic", "carbon+window"} {
		strategy, err := strategy.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		result, err := sim.Run(t.Context(), scenario, name, strategy)
		add("simulated: `"+name+"`", result, err, verdict{})
	}
	reported := &records{}
	const dynamic = ", weightPreference: {dynamicWeight: AvailableReplicas}"
	for i, a := range []*arm{
		{"Karmada's dynamic weights", "day-stock", v1.DefaultSchedulerName, dynamic},
		{"by estimator with holds", "day-estimator", v1.DefaultSchedulerName, dynamic},
		{"by schedulerName with holds", "day-scheduler", "kubenergy", ""},
	} {
		if i == 1 {
			d.replace(stock, reported)
		}
		p := d.play(a)
		placements, v := d.judge(a.name, p)
		v.after = p.after(reported.plans(a.namespace))
		result, err := sim.Replay(scenario, a.name, placements, nil)
		add(a.name, result, err, v)
	}
	decided := reported.replay(t)
	t.Logf("number of replayed decisions by action: %v", decided)
	if decided["hold"] == 0 || decided["place"] < dayJobs {
		t.Errorf("too few recorded decisions: %v", decided)
	}
	d.compare(rows)
}

// replace enables holding and replaces the estimators of Karmada by kubenergy-karmada, which sends its decisions to
// reported.
func (d *day) replace(stock []*kit.Process, reported *records) {
	d.t.Helper()
	for _, p := range stock {
		p.Kill()
	}
	for name := range d.members {
		if err := d.client.CoreV1().Services("karmada-system").Delete(d.t.Context(), "karmada-scheduler-estimator-"+name,
			metav1.DeleteOptions{}); err != nil {
			d.t.Fatal(err)
		}
	}
	server := httptest.NewServer(reported)
	d.t.Cleanup(server.Close)
	d.holds()
	d.ours("--kubenergy-record-url=" + server.URL)
	time.Sleep(5 * time.Second)
	d.scheduler()
}

// compare logs the results of all arms, excluding the energy of idle machines, and verifies that the savings match
// those of the simulation.
func (d *day) compare(rows []*row) {
	t := d.t
	t.Helper()
	idle, err := sim.Replay(d.scenario, "idle", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	results := []*sim.Result{idle}
	for _, r := range rows {
		results = append(results, r.result)
	}
	if _, err := sim.Align(results...); err != nil {
		t.Fatal(err)
	}
	carbon := func(r *row) float64 { return float64(r.result.Carbon - idle.Carbon) }
	saving := func(r, than *row) float64 { return 1 - carbon(r)/carbon(than) }
	simulated := saving(rows[1], rows[0])
	var b strings.Builder
	b.WriteString("| | energy | emissions | saved | with idle machines | mean wait | held | late | started late " +
		"| violations | binding delay | release delay |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for i, r := range rows {
		than := rows[min(i/2, 1)*2]
		fmt.Fprintf(&b, "| %s | %.2f kWh | %.0f g | %.1f %% | %.3f kg | %v | %d | %d | %d | %d | %s | %s |\n", r.name,
			(r.result.Energy - idle.Energy).KWh(), carbon(r), 100*saving(r, than), float64(r.result.Carbon)/1000,
			r.wait().Round(time.Minute), r.held, r.late, r.started, r.broken, spread(r.way), spread(r.after))
	}
	t.Logf("%d Jobs, %d pods, accelerated by a factor of %v\n%s",
		len(d.work), len(d.scenario.Jobs), *factor, b.String())
	for _, r := range rows[3:] {
		if got := saving(r, rows[2]); math.Abs(got-simulated) > apart {
			t.Errorf("arm %s saves %.1f %%, want approximately %.1f %% as in the simulation",
				r.name, 100*got, 100*simulated)
		}
		if r.late > 0 || r.broken > 0 {
			t.Errorf("arm %s: %d Jobs released late, %d pods on clusters that their policy does not allow",
				r.name, r.late, r.broken)
		}
	}
}

// spread formats the median and the maximum of sorted durations.
func spread(times []time.Duration) string {
	n := len(times)
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f s, %.1f s", times[n/2].Seconds(), times[n-1].Seconds())
}
