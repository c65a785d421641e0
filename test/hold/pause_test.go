package hold

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestPauses verifies on a real control plane, with the permissions and policies of the release, that a running Job is
// paused in a dirty minute and resumed after it, that the next leader resumes a Job if the one that paused it is
// killed, and that a Job that has not opted in continues to run.
func TestPauses(t *testing.T) {
	if !long {
		t.Skip("waits for minutes: run make hold")
	}
	namespace := shared.Namespace(t, "pauses", nil)
	first := shared.scheduler(t, "pauses-1", shared.minutes(t))
	for _, name := range []string{"interruptible", "steady"} {
		shared.createJob(t, namespace, newJob(name, "10m", func(j *batchv1.Job) {
			j.Annotations[v1alpha1.AnnotationStrategy] = "carbon+ecovisor"
			if name == "interruptible" {
				j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
			}
			j.Spec.Template.Annotations[v1alpha1.AnnotationLabRunSeconds] = "600"
			j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}))
	}
	shared.suspendedTo(t, namespace, true, 150*time.Second, first.Process)
	paused := shared.job(t, namespace, "interruptible")
	worked, err := time.ParseDuration(paused.Annotations[v1alpha1.AnnotationWorked])
	if err != nil || worked <= 0 || worked > time.Since(paused.CreationTimestamp.Time) ||
		paused.Labels[v1alpha1.LabelHeld] != "true" {
		t.Errorf("paused Job: labels %v, annotations %v", paused.Labels, paused.Annotations)
	}
	kit.Eventually(t, time.Minute, "the pods of the paused Job are deleted", func() bool {
		return shared.job(t, namespace, "interruptible").Status.Active == 0
	})
	first.Kill()
	shared.forgetLeases(t)
	second := shared.scheduler(t, "pauses-2", shared.minutes(t))
	shared.suspendedTo(t, namespace, false, 150*time.Second, second.Process)
	kit.Eventually(t, time.Minute, "the resumed Job runs", func() bool {
		return shared.job(t, namespace, "interruptible").Status.Active == 1
	})
	steady := shared.job(t, namespace, "steady")
	if *steady.Spec.Suspend || steady.Annotations[v1alpha1.AnnotationPauses] != "" {
		t.Errorf("a Job without the label was paused: %v", steady.Annotations)
	}
	if reports := shared.reports(t, namespace); !slices.ContainsFunc(reports, func(text string) bool {
		return strings.HasPrefix(text, "Paused: ")
	}) {
		t.Errorf("events %q, want one with the reason Paused", reports)
	}
}

// TestPausesAcrossExchanges verifies that the sum of a Job's pauses stays within its allowed delay, that each pause
// ends once, and that its work is booked to within the time of a start, while at 50 times the scheduler or the
// controller is stopped or restarted, or their connections to the API server are interrupted.
func TestPausesAcrossExchanges(t *testing.T) {
	if !long {
		t.Skip("takes a quarter of an hour: run make hold")
	}
	const (
		jobs, number = 20, 50
		length       = 13 * time.Minute
		restart      = 3 * time.Second
	)
	machine := kit.WatchMachine(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := &world{shared.Cluster, new(kit.Link)}
	w.link.Start(t, w.Config().Host)
	p := w.startPair(t, w.minutes(t))
	namespace := shared.Namespace(t, "pauses-exchanged", nil)
	book := shared.watchPauses(t, namespace)
	begin := time.Now()
	for i := range jobs {
		delay := time.Duration(1+random.IntN(6)) * time.Minute
		shared.createJob(t, namespace, newJob(fmt.Sprint("job-", i), delay.String(), func(j *batchv1.Job) {
			j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
			j.Annotations[v1alpha1.AnnotationStrategy] = "carbon+ecovisor"
			j.Annotations[v1alpha1.AnnotationExpectedDuration] = "1h"
			j.Annotations[v1alpha1.AnnotationRestartCost] = restart.String()
			j.Spec.Template.Annotations[v1alpha1.AnnotationLabRunSeconds] = "3600"
			j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1))
		}))
	}
	p.exchanges(t, random, number, begin, length)
	end := time.Now()
	book.mu.Lock()
	defer book.mu.Unlock()
	var late []time.Duration
	total := 0
	for name, j := range book.of {
		delay, _ := time.ParseDuration(j.last.Annotations[v1alpha1.AnnotationAllowedDelay])
		worked, _ := time.ParseDuration(j.last.Annotations[v1alpha1.AnnotationWorked])
		lost, _ := time.ParseDuration(j.last.Annotations[v1alpha1.AnnotationLostWork])
		pauses, _ := strconv.Atoi(j.last.Annotations[v1alpha1.AnnotationPauses])
		total += pauses
		idle := j.idle
		if *j.last.Spec.Suspend {
			idle += end.Sub(j.since)
		}
		late = append(late, idle+lost-delay)
		if idle+lost > delay+neverLate {
			t.Errorf("%s was suspended for %v and lost %v, allowed are %v", name, idle, lost, delay)
		}
		if pauses != j.pauses || lost != time.Duration(pauses)*restart {
			t.Errorf("%s: %d pauses and a loss of %v are booked, want %d and %v each", name, pauses, lost, j.pauses, restart)
		}
		// Containers start after the release of their Job. All repeated work except the next one has been done.
		ran := j.ran - time.Duration(max(0, pauses-1))*restart
		if late := ran - worked; pauses > 0 && (late < -time.Second || late > time.Duration(pauses)*10*time.Second) {
			t.Errorf("%s: %v of work is booked, it ran for %v", name, worked, ran)
		}
	}
	t.Logf("%d Jobs were paused %d times", len(book.of), total)
	if least := jobs / 2; len(book.of) != jobs || total < least { // no Job is paused while no scheduler runs
		t.Errorf("%d Jobs were paused %d times, want %d Jobs and at least %d pauses", len(book.of), total, jobs, least)
	}
	// No Job can be resumed during an outage. A second after it, pending requests are repeated.
	report(t, machine, "sum of pauses and repeated work", late, 0, -time.Hour, outage+2*time.Second)
}

// pauseBook records when the Jobs of a namespace were suspended.
type pauseBook struct {
	mu sync.Mutex
	of map[string]*pausedJob
}

type pausedJob struct {
	last      *batchv1.Job
	since     time.Time     // last change of spec.suspend
	idle, ran time.Duration // until then; ran only contains runs that have ended
	pauses    int
}

func (w *world) watchPauses(t *testing.T, namespace string) *pauseBook {
	book := &pauseBook{of: map[string]*pausedJob{}}
	w.watchJobs(t, namespace, func(job *batchv1.Job) {
		now := time.Now()
		book.mu.Lock()
		defer book.mu.Unlock()
		j := book.of[job.Name]
		if j == nil {
			j = &pausedJob{last: job, since: job.CreationTimestamp.Time}
			book.of[job.Name] = j
		}
		switch before, after := *j.last.Spec.Suspend, *job.Spec.Suspend; {
		case before && !after:
			j.idle, j.since = j.idle+now.Sub(j.since), now
		case !before && after:
			j.ran, j.since = j.ran+now.Sub(j.since), now
			j.pauses++
		}
		j.last = job
	})
	return book
}

// reports returns the reasons and texts of the events about the interruptible Job.
func (w *world) reports(t *testing.T, namespace string) (all []string) {
	t.Helper()
	events, err := w.Client.CoreV1().Events(namespace).List(context.WithoutCancel(t.Context()), metav1.ListOptions{
		FieldSelector: "involvedObject.name=interruptible",
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range events.Items {
		all = append(all, events.Items[i].Reason+": "+events.Items[i].Message)
	}
	return all
}

// suspendedTo waits until the interruptible Job has started and is suspended, or is resumed.
func (w *world) suspendedTo(t *testing.T, namespace string, want bool, within time.Duration, s *kit.Process,
) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("events %q", w.reports(t, namespace))
		}
	})
	kit.Eventually(t, within, "the Job is paused or resumed", func() bool {
		j := w.job(t, namespace, "interruptible")
		return *j.Spec.Suspend == want && (!want || j.Annotations[v1alpha1.AnnotationPauses] != "")
	}, s)
}

// minutes writes signals with a carbon intensity that alternates every minute.
func (w *world) minutes(t *testing.T) (path string) {
	values := make([]float64, 60)
	for i := range values {
		values[i] = 100 + 800*float64(i%2)
	}
	return writeSignals(t, "1m", time.Now().UTC().Truncate(2*time.Minute), values)
}

func writeSignals(t *testing.T, step string, start time.Time, values []float64) (path string) {
	t.Helper()
	file := map[string]any{"apiVersion": "kubenergy.io/v1alpha1", "kind": "Signals", "sites": []any{map[string]any{
		"name": "here", "carbon": map[string]any{
			"start": start, "step": step, "values": values, "quality": "estimated",
		},
	}}}
	raw, err := json.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	return kit.Write(t, filepath.Join(t.TempDir(), "signals.json"), raw)
}
