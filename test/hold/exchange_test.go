package hold

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/timeutil"
	"github.com/kubenergy/kubenergy/test/kit"
)

// exchanges configures a test of P1 in which the scheduler and the controller are stopped and restarted at random
// times.
type exchanges struct {
	jobs, cronJobs int
	ticks          bool          // run CronJobs by their schedule, otherwise create their Jobs manually
	number         int           // number of stops and restarts
	arrivals       time.Duration // interval in which the Jobs are created
	maxDelay       time.Duration
	length         time.Duration // duration of all exchanges
}

// neverLate is the delay after the deadline that always fails the test. Delays of more than one second only fail
// the test if the machine is not busy. A Job that is not released at all waits at least until the next exchange.
const neverLate = 30 * time.Second

var long = os.Getenv("KUBENERGY_LONG") != ""

// TestDeadlinesAcrossExchanges stops and restarts the scheduler and the controller in such a way that at least one
// of them is always ready.
func TestDeadlinesAcrossExchanges(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	e := exchanges{
		jobs: 20, cronJobs: 6, number: 8, arrivals: 12 * time.Second, maxDelay: 15 * time.Second, length: 28 * time.Second,
	}
	if long {
		e = exchanges{
			jobs: 200, cronJobs: 20, ticks: true, number: 50, arrivals: 3 * time.Minute, maxDelay: 10 * time.Minute,
			length: 13 * time.Minute,
		}
	}
	shared.exchange(t, e)
}

func (w *world) exchange(t *testing.T, e exchanges) {
	machine := kit.WatchMachine(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := w.startPair(t, w.declining(t))
	namespace := w.Namespace(t, "exchanges", nil)
	d := w.watch(t, namespace)
	deadlines := w.watchDeadlines(t, namespace)

	begin := time.Now()
	var arriving sync.WaitGroup
	arriving.Go(func() { w.arrive(t, namespace, e, rand.New(rand.NewPCG(seed, 1)), begin) })
	defer arriving.Wait()
	p.exchanges(t, random, e.number, begin, e.length)
	arriving.Wait()
	machine.Eventually(e.maxDelay+time.Minute, "all Jobs are released", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.resumed) == len(d.created) || e.ticks && time.Since(begin) > e.length+30*time.Second
	})
	d.judgeExchanges(t, machine, deadlines, begin.Add(e.length))
}

// judgeExchanges compares releases with deadlines. Jobs that are due after end are ignored, because CronJobs
// continue if e.ticks is set.
func (d *diary) judgeExchanges(t *testing.T, m *kit.Machine, deadlines *deadlineBook, end time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	deadlines.mu.Lock()
	defer deadlines.mu.Unlock()
	var late []time.Duration
	for name, deadline := range deadlines.of {
		if deadline.After(end) {
			continue
		}
		at, released := d.resumed[name]
		if !released {
			t.Errorf("Job %s was not released, its deadline was %v ago", name, time.Since(deadline).Round(time.Second))
			continue
		}
		by := at.Sub(deadline)
		if late = append(late, by); by > neverLate {
			t.Errorf("Job %s was released %v after its deadline", name, by.Round(10*time.Millisecond))
		}
	}
	report(t, m, "Jobs released", late, 0, -time.Hour, time.Second)
}

// deadlineBook computes the deadlines of Jobs. The deadline is the creation time plus the delay. For runs of CronJobs,
// it is at the latest before the next tick. Creation times are truncated to seconds,
// so a deadline is never earlier than the time at which the Job was first observed.
type deadlineBook struct {
	mu sync.Mutex
	of map[string]time.Time
}

func (w *world) watchDeadlines(t *testing.T, namespace string) *deadlineBook {
	book := &deadlineBook{of: map[string]time.Time{}}
	w.watchJobs(t, namespace, func(job *batchv1.Job) {
		seen, delay := time.Now(), time.Duration(0)
		if text := job.Annotations["kubenergy.io/allowed-delay"]; text != "" {
			delay, _ = time.ParseDuration(text)
		}
		deadline := job.CreationTimestamp.Add(delay)
		if run := kube.RunOf(job); run != nil {
			// Ten seconds remain before the next run. A run that must not overlap takes one second.
			end := run.Scheduled.Truncate(time.Minute).Add(time.Minute - 10*time.Second)
			if job.Annotations["test/overlaps"] == "" {
				end = end.Add(-time.Second)
			}
			deadline = timeutil.Earlier(deadline, end)
		}
		if deadline.Before(seen) {
			deadline = seen
		}
		book.mu.Lock()
		defer book.mu.Unlock()
		if _, known := book.of[job.Name]; !known {
			book.of[job.Name] = deadline
		}
	})
	return book
}

// watchJobs calls see for each event of a Job in a namespace, one after the other, until the test ends.
func (w *world) watchJobs(t *testing.T, namespace string, see func(*batchv1.Job)) {
	watcher, err := w.Client.BatchV1().Jobs(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	go func() {
		for event := range watcher.ResultChan() {
			if job, ok := event.Object.(*batchv1.Job); ok {
				see(job)
			}
		}
	}()
}

// arrive creates Jobs and CronJobs with random delays at random times.
func (w *world) arrive(t *testing.T, namespace string, e exchanges, random *rand.Rand, begin time.Time) {
	delay := func() string {
		return (time.Duration(random.Int64N(int64(e.maxDelay/time.Second))) * time.Second).String()
	}
	for i := range e.cronJobs {
		c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cron-", i)}, Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", Suspend: new(!e.ticks), SuccessfulJobsHistoryLimit: new(int32(1000)),
			ConcurrencyPolicy: []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent}[i%2],
		}}
		job := newJob("", delay(), nil)
		c.Spec.JobTemplate = batchv1.JobTemplateSpec{ObjectMeta: job.ObjectMeta, Spec: job.Spec}
		if c.Spec.ConcurrencyPolicy == batchv1.AllowConcurrent {
			c.Spec.JobTemplate.Annotations["test/overlaps"] = "true"
		}
		made, err := w.Client.BatchV1().CronJobs(namespace).Create(t.Context(), c, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		if !e.ticks { // like kubectl create job --from
			job.Name, job.Annotations = fmt.Sprint("cron-", i, "-run"), c.Spec.JobTemplate.Annotations
			job.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(made,
				batchv1.SchemeGroupVersion.WithKind("CronJob"))}
			time.Sleep(time.Until(begin.Add(time.Duration(random.Int64N(int64(e.arrivals / 4))))))
			w.createUnless(t, namespace, job)
		}
	}
	at := make([]time.Duration, e.jobs)
	for i := range at {
		at[i] = time.Duration(random.Int64N(int64(e.arrivals)))
	}
	slices.Sort(at)
	for i, after := range at {
		time.Sleep(time.Until(begin.Add(after)))
		w.createUnless(t, namespace, newJob(fmt.Sprint("job-", i), delay(), nil))
	}
}

// createUnless creates a Job. It can be called from any goroutine because it does not call t.Fatal.
func (w *world) createUnless(t *testing.T, namespace string, job *batchv1.Job) {
	if _, err := w.Client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// pair consists of a scheduler and a controller. At least one of them is always ready.
type pair struct {
	w       *world
	signals string
	running [2]*kit.Process // scheduler and controller, nil if stopped
	starts  int
}

func (w *world) startPair(t *testing.T, signals string) *pair {
	if err := w.Apply(t.Context(), deploy.Everything, func(o *unstructured.Unstructured) bool {
		return !slices.Contains([]string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
			o.GetKind())
	}); err != nil {
		t.Fatal(err)
	}
	w.forgetLeases(t)
	p := &pair{w: w, signals: signals}
	p.start(t, 0)
	p.start(t, 1)
	return p
}

// exchanges exchanges programs at random times within the given length.
func (p *pair) exchanges(t *testing.T, random *rand.Rand, number int, begin time.Time, length time.Duration) {
	at := make([]time.Duration, number)
	for i := range at {
		at[i] = time.Duration(random.Int64N(int64(length)))
	}
	slices.Sort(at)
	for _, after := range at {
		time.Sleep(time.Until(begin.Add(after)))
		p.exchange(t, random)
	}
}

// outage is the maximum duration of an interruption of the connections to the API server. The schedulers of these
// tests exit if they cannot renew their Lease for four seconds.
const outage = 3 * time.Second

// exchange restarts the stopped program and waits until it is ready, or stops one of the two programs if both run. If
// there is a link to the API server, it is interrupted instead with a probability of one third.
func (p *pair) exchange(t *testing.T, random *rand.Rand) {
	if p.w.link != nil && random.IntN(3) == 0 {
		p.w.link.Cut()
		time.Sleep(time.Duration(random.Int64N(int64(outage))))
		p.w.link.Join(t)
		t.Log("interrupted all connections to the API server")
		return
	}
	for i, process := range p.running {
		if process == nil || process.Ended() {
			p.start(t, i)
			return
		}
	}
	which := random.IntN(2)
	if random.IntN(2) == 0 {
		p.running[which].Kill()
	} else if err := p.running[which].Stop(20 * time.Second); err != nil {
		t.Log(err)
	}
	t.Logf("stopped %s", p.running[which].Name)
	p.running[which] = nil
}

func (p *pair) start(t *testing.T, which int) {
	p.starts++
	if which == 0 {
		p.running[0] = p.w.scheduler(t, fmt.Sprint("exchanged-scheduler-", p.starts), p.signals).Process
		return
	}
	address := kit.Address(t)
	name := fmt.Sprint("exchanged-controller-", p.starts)
	p.running[1] = kit.Start(t, p.w.Dir, name, exec.Command(kit.Build(t, "./cmd/kubenergy-controller"),
		"--kubeconfig="+p.w.kubeconfig(t, "kubenergy-controller"), "--api-bind-address=0", "--metrics-bind-address=0",
		"--health-probe-bind-address="+address, "--log-format=text"))
	kit.Eventually(t, time.Minute, name+" is ready", func() bool {
		status, _ := kit.Get(t.Context(), http.DefaultClient, "http://"+address+"/readyz", "")
		return status == http.StatusOK
	}, p.running[1])
}
