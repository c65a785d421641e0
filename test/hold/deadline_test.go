package hold

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	crowd    = 100
	podDelay = 25 * time.Second
	jobDelay = 45 * time.Second
	// Lead times that the hold loop uses before it has measured anything.
	podLead = time.Second + crowd*time.Second/100
	jobLead = 2*time.Second + crowd*time.Second/5
	// takeover is the maximum delay of pods if the leading scheduler is killed. Another replica can only become the
	// leader when the Lease of 6 s has expired.
	takeover = 20 * time.Second
)

// held creates pods and Jobs that can be held and returns their names.
func (w *world) held(t *testing.T, namespace string) (pods, jobs []string) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for i := range crowd {
		pod, job := fmt.Sprintf("pod-%03d", i), fmt.Sprintf("job-%03d", i)
		pods, jobs = append(pods, pod), append(jobs, job)
		group.Go(func() error {
			_, err := w.Client.CoreV1().Pods(namespace).Create(ctx, newPod(pod, podDelay.String(), nil),
				metav1.CreateOptions{})
			return err
		})
		group.Go(func() error {
			_, err := w.Client.BatchV1().Jobs(namespace).Create(ctx, newJob(job, jobDelay.String(), nil),
				metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return pods, jobs
}

// span waits until all objects with the given names have been observed and returns their first and last creation
// times.
func (d *diary) span(m *kit.Machine, names []string) (first, last time.Time) {
	m.Eventually(time.Minute, "all creations have been observed", func() bool { // the diary is updated by a watch
		_, missing := d.late(d.created, 0, names)
		return missing == 0
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		at := d.created[name]
		if first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return first, last
}

// report logs the distribution of delays relative to the deadline and checks its minimum and maximum. Both depend on
// the speed of the machine.
func report(t *testing.T, m *kit.Machine, what string, late []time.Duration, missing int,
	earliest, latest time.Duration,
) {
	t.Helper()
	if missing > 0 {
		t.Errorf("%s: %d of them were not observed", what, missing)
	}
	if len(late) == 0 {
		return
	}
	slices.Sort(late)
	t.Logf("%-28s %d: delay after the deadline in seconds: min %.2f, median %.2f, p99 %.2f, max %.2f",
		what, len(late), late[0].Seconds(), late[len(late)/2].Seconds(), late[len(late)*99/100].Seconds(),
		late[len(late)-1].Seconds())
	if late[0] < earliest { // the lead grows with the measured latency of starts
		m.TooSlow("%s: the first was %v before the deadline, want at most %v", what, -late[0], -earliest)
	}
	if last := late[len(late)-1]; last > latest {
		m.TooSlow("%s: the last was %v after the deadline, want at most %v", what, last, latest)
	}
}

// TestP1 holds pods and Jobs until their deadlines, using the default rate limits of kube-controller-manager, while
// the signals are deleted and then replaced by garbage.
func TestP1(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	w, machine := shared, kit.WatchMachine(t)
	signals := w.declining(t)
	w.forgetLeases(t)
	w.Leads(t, w.scheduler(t, "p1", signals))
	namespace := w.Namespace(t, "p1", nil)
	d := w.watch(t, namespace)
	pods, jobs := w.held(t, namespace)
	w.awaitPlans(t, machine, namespace, "")
	spoil(t, signals)
	d.wantInTime(t, machine, pods, jobs, 2*time.Second)
}

// awaitPlans waits until the reason why each pod and Job is held has been written, which is done when it has been
// planned, and contains a phrase. Without signals, work that has not been planned yet starts immediately.
func (w *world) awaitPlans(t *testing.T, m *kit.Machine, namespace, phrase string) {
	t.Helper()
	m.Eventually(20*time.Second, "all work has been planned", func() bool {
		pods, err := w.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		jobs, err := w.Client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return false
		}
		planned := 0
		count := func(reason string) {
			if reason != "" && strings.Contains(reason, phrase) {
				planned++
			}
		}
		for i := range pods.Items {
			count(policy.Scheduled(&pods.Items[i]).Message)
		}
		for i := range jobs.Items {
			count(jobs.Items[i].Annotations[v1alpha1.AnnotationHeldReason])
		}
		return planned == len(pods.Items)+len(jobs.Items)
	})
}

// spoil deletes the signals and replaces them by garbage after a short delay.
func spoil(t *testing.T, signals string) {
	t.Helper()
	if err := os.Remove(signals); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second) // until the scheduler detects the deletion
	kit.Write(t, signals, "%!\x00 garbage")
}

// wantInTime waits for the objects created by held and verifies that all pods are bound at most podsLate after
// their deadlines.
func (d *diary) wantInTime(t *testing.T, m *kit.Machine, pods, jobs []string, podsLate time.Duration) {
	t.Helper()
	d.awaitStarts(m, pods, podDelay)
	d.awaitStarts(m, jobs, jobDelay)
	late, missing := d.late(d.bound, podDelay, pods)
	report(t, m, "pods bound", late, missing, -podLead, podsLate)
	late, missing = d.late(d.resumed, jobDelay, jobs)
	report(t, m, "Jobs resumed", late, missing, -jobLead, time.Second)
	late, missing = d.late(d.bound, jobDelay, jobs)
	report(t, m, "Jobs' pods bound", late, missing, -jobLead, time.Minute)
}

// TestP1WhenTheLeaderDies is like TestP1 with two replicas. The leader is killed two seconds before the deadlines.
func TestP1WhenTheLeaderDies(t *testing.T) {
	if !long {
		t.Skip("kills replicas for a minute: run make hold")
	}
	w, machine := shared, kit.WatchMachine(t)
	signals := w.declining(t)
	w.forgetLeases(t)
	leader := w.scheduler(t, "leader", signals)
	w.Leads(t, leader)
	standby := w.scheduler(t, "standby", signals)
	namespace := w.Namespace(t, "p1-failover", nil)
	d := w.watch(t, namespace)
	pods, jobs := w.held(t, namespace)

	// A leader can be killed only once. It is killed before the deadlines of the pods, so the other replica has to
	// release all Jobs. It does not hold the Lease for most of their ramp.
	first, last := d.span(machine, pods)
	time.Sleep(time.Until(first.Add(podDelay - 2*time.Second)))
	leader.Kill()
	killed := time.Now()

	// A standby has its own queue. When it no longer counts a pod as held, its gate has admitted the pod.
	time.Sleep(time.Until(last.Add(podDelay + time.Second)))
	if held, found := standby.Metric(t, "kubenergy_held", `kind="pod"`); held != 0 || !found {
		machine.TooSlow("standby holds %v pods one second after the last deadline (metric found: %v), want none",
			held, found)
	}
	d.wantInTime(t, machine, pods, jobs, takeover)
	d.mu.Lock()
	defer d.mu.Unlock()
	var next time.Time
	for _, at := range d.bound {
		if at.After(killed) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	t.Logf("first binding %.2f s after the leader was killed (lease duration 6 s)", next.Sub(killed).Seconds())
}

// TestP1WhenAllDie is like TestP1 with the rule "plan" and removes everything that the plan depends on. The leader
// is killed, the signals are replaced by garbage, and the other replica is killed ten seconds before the first
// deadline of a Job.
func TestP1WhenAllDie(t *testing.T) {
	if !long {
		t.Skip("kills replicas for a minute: run make hold")
	}
	w, machine := shared, kit.WatchMachine(t)
	signals := w.declining(t)
	profiles := kit.Write(t, filepath.Join(t.TempDir(), "profiles.json"), `{"apiVersion": "kubenergy.io/v1alpha1",
		"kind": "PowerProfiles", "default": "any", "profiles": [{"name": "any", "idleWatts": 60, "maxWatts": 160}]}`)
	args := []string{"--kubenergy-hold-rule=plan", "--kubenergy-profiles=" + profiles}
	w.forgetLeases(t)
	leader := w.scheduler(t, "first", signals, args...)
	w.Leads(t, leader)
	standby := w.scheduler(t, "second", signals, args...)
	namespace := w.Namespace(t, "p1-all", nil)
	d := w.watch(t, namespace)
	pods, jobs := w.held(t, namespace)
	w.awaitPlans(t, machine, namespace, "joint plan")

	first, _ := d.span(machine, pods)
	time.Sleep(time.Until(first.Add(podDelay - 2*time.Second)))
	leader.Kill()
	spoil(t, signals)
	// Kubernetes would start a third replica immediately. A replica starts within a second, and ten seconds remain,
	// so the third replica must release Jobs in time. It only knows the plan from the annotations of the Jobs and
	// has never read a signal. It acquires the Lease of the hold loop, which lasts 20 s, after the last deadline.
	// Pods wait for the Lease of the scheduler, as in every failover.
	first, _ = d.span(machine, jobs)
	time.Sleep(time.Until(first.Add(jobDelay - 10*time.Second)))
	standby.Kill()
	killed := time.Now()
	w.scheduler(t, "third", signals, args...)
	took := time.Since(killed)
	_, left := d.late(d.resumed, jobDelay, jobs)
	t.Logf("third replica was ready after %.2f s, with %d Jobs remaining", took.Seconds(), left)
	if left < crowd/10 {
		machine.TooSlow("only %d Jobs remained for the third replica", left)
	}
	d.wantInTime(t, machine, pods, jobs, takeover)
}

func (d *diary) awaitStarts(m *kit.Machine, names []string, delay time.Duration) {
	_, last := d.span(m, names)
	m.Eventually(time.Until(last.Add(delay+time.Minute)), "all pods have been bound", func() bool {
		_, missing := d.late(d.bound, delay, names)
		return missing == 0
	})
}
