package release

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/hold"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// unseen returns a held Job as created by admission, before any scheduler has processed it.
func unseen(namespace, name string, created time.Time, annotations map[string]string) *batchv1.Job {
	j := kit.HeldUntil(namespace, name, created, time.Time{})
	j.Annotations = annotations
	return j
}

func ofCronJob(j *batchv1.Job, name string) *batchv1.Job {
	j.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: name, Controller: new(true),
	}}
	return j
}

func cronJob(namespace, name, schedule string, concurrency batchv1.ConcurrencyPolicy) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec:       batchv1.CronJobSpec{Schedule: schedule, ConcurrencyPolicy: concurrency},
	}
}

// TestDeadlinesOfJobsThatNoSchedulerHasSeen verifies that each Job is released at most one second after its
// deadline and not before, if no scheduler is running.
//
//test:norace
func TestDeadlinesOfJobsThatNoSchedulerHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		delay := func(d string) map[string]string { return map[string]string{v1alpha1.AnnotationAllowedDelay: d} }
		late := delay("1h")
		late[v1alpha1.AnnotationLatestStart] = now.Add(20 * time.Hour).UTC().Format(time.RFC3339)
		finish := delay("5h")
		finish[v1alpha1.AnnotationFinishBy] = now.Add(3 * time.Hour).UTC().Format(time.RFC3339)
		asked := delay("5h")
		asked[v1alpha1.AnnotationRunNow] = "true"
		within := map[string]struct{ earliest, latest time.Duration }{
			"short":   {30 * time.Second, 31 * time.Second},
			"none":    {0, time.Second},
			"policy":  {6 * time.Hour, 6*time.Hour + time.Second},
			"clamped": {24 * time.Hour, 24*time.Hour + time.Second},
			"forged":  {time.Hour, time.Hour + time.Second},
			"finish":  {2 * time.Hour, 2*time.Hour + time.Second}, // with an expected duration of one hour
			"asked":   {0, 2 * time.Second},
			"invalid": {0, 2 * time.Second},
			"shadow":  {time.Hour, time.Hour + time.Second},
			"unknown": {0, 3 * time.Second},                                          // no policy allows a delay
			"allow":   {12*time.Hour - 10*time.Second, 12*time.Hour - 9*time.Second}, // the next run is 12 h later
			"forbid":  {11*time.Hour - 10*time.Second, 11*time.Hour - 9*time.Second}, // the next run is 12 h later
			"broken":  {0, time.Second},
			"gone":    {2 * time.Hour, 2*time.Hour + time.Second}, // its CronJob does not exist
		}
		jobs := []*batchv1.Job{
			unseen("enforce", "short", now, delay("30s")), unseen("enforce", "none", now, delay("0m")),
			unseen("enforce", "policy", now, nil), unseen("enforce", "clamped", now, delay("72h")),
			unseen("enforce", "forged", now, late), unseen("enforce", "finish", now, finish),
			unseen("enforce", "asked", now, asked), unseen("enforce", "invalid", now, delay("soon")),
			unseen("shadow", "shadow", now, delay("1h")), unseen("elsewhere", "unknown", now, nil),
			ofCronJob(unseen("enforce", "allow", now, delay("20h")), "any"),
			ofCronJob(unseen("enforce", "forbid", now, delay("20h")), "one"),
			ofCronJob(unseen("enforce", "broken", now, delay("20h")), "broken"),
			ofCronJob(unseen("enforce", "gone", now, delay("2h")), "gone"),
		}
		var objects []runtime.Object
		for _, j := range jobs {
			objects = append(objects, j)
		}
		server := newJobServer(t, objects...)
		view := kit.Valley(t, now)
		var one, two *Releaser
		for _, r := range []**Releaser{&one, &two} {
			*r = server.replica(t.Context(), t, view, time.Now)
			(*r).o.Held.SawCronJob(cronJob("enforce", "any", "0 */12 * * *", batchv1.AllowConcurrent))
			(*r).o.Held.SawCronJob(cronJob("enforce", "one", "0 */12 * * *", batchv1.ForbidConcurrent))
			(*r).o.Held.SawCronJob(cronJob("enforce", "broken", "whenever", batchv1.ForbidConcurrent))
		}
		released := map[string]time.Duration{}
		for look := now; len(released) < len(jobs) && look.Sub(now) < 25*time.Hour; look = time.Now() {
			for _, o := range jobs {
				if _, ok := released[o.Name]; !ok && !suspended(t, server, o.Namespace, o.Name) {
					released[o.Name] = look.Sub(now)
				}
			}
			pause := 50 * time.Millisecond
			if next := nextOf(within, look.Sub(now)); next > time.Second {
				pause = next - time.Second // skip ahead to one second before the next release
			}
			bubble.Advance(pause)
		}
		for name, want := range within {
			at, ok := released[name]
			if !ok || at < want.earliest || at > want.latest {
				t.Errorf("%s was released after %v (%v), want %v to %v", name, at, ok, want.earliest, want.latest)
			}
		}
	})
}

// nextOf returns the time until the next expected release.
func nextOf(within map[string]struct{ earliest, latest time.Duration }, now time.Duration) time.Duration {
	next := 25 * time.Hour
	for _, w := range within {
		if now <= w.latest {
			next = min(next, max(0, w.earliest-now))
		}
	}
	return next
}

// TestNothingIsReleasedBeforePoliciesAreKnown verifies that only the latest start written by the hold loop is used
// until the policies are known.
func TestNothingIsReleasedBeforePoliciesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		h := NewHeld()
		h.Saw(unseen("enforce", "unseen", now, map[string]string{v1alpha1.AnnotationAllowedDelay: "1m"}))
		h.Saw(kit.HeldUntil("enforce", "written", now, now.Add(time.Minute)))
		at := func(view *kube.View, after time.Duration) (due []string) {
			for _, j := range h.jobs {
				if _, ok := h.overdue(kit.Silent, j, view, now.Add(after)); ok {
					due = append(due, j.name)
				}
			}
			return due
		}
		if due := at(kube.Unsettled(), 2*time.Minute); fmt.Sprint(due) != "[written]" {
			t.Errorf("got due Jobs %v before the policies are known", due)
		}
		if due := at(kit.Valley(t, now), 2*time.Minute); len(due) != 2 {
			t.Errorf("got due Jobs %v, want 2", due)
		}
	})
}

// TestSchedulesMoveDeadlines verifies that adding or changing a CronJob updates the deadlines of its runs, and that
// deleting it does not.
func TestSchedulesMoveDeadlines(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	view, h := kit.Valley(t, now), NewHeld()
	h.Saw(ofCronJob(unseen("enforce", "run", now, nil), "c"))
	j := h.jobs["enforce.run"]
	for i, c := range []struct {
		change func()
		want   time.Duration
	}{
		{func() {}, 6 * time.Hour},
		{func() {
			h.SawCronJob(cronJob("enforce", "c", "0 */3 * * *", batchv1.ForbidConcurrent))
		}, 2*time.Hour - 10*time.Second},
		{func() {
			c := cronJob("enforce", "c", "0 */4 * * *", batchv1.ReplaceConcurrent)
			c.Generation = 2
			h.SawCronJob(c)
		}, 3*time.Hour - 10*time.Second},
		{func() {
			h.SawCronJob(cronJob("enforce", "c", "0 */2 * * *", batchv1.AllowConcurrent))
		}, 2*time.Hour - 10*time.Second},
		{func() {
			h.SawCronJob(cronJob("enforce", "c", "0 */4 * * *", batchv1.ReplaceConcurrent))
		}, 3*time.Hour - 10*time.Second},
		{func() { h.SawCronJob(cronJob("other", "c", "0 * * * *", batchv1.ForbidConcurrent)) }, 3*time.Hour - 10*time.Second},
		{func() { h.LostCronJob(cronJob("enforce", "c", "", "")) }, 3*time.Hour - 10*time.Second},
	} {
		c.change()
		if got, known := h.deadline(kit.Silent, j, view, now); !known || got.Sub(now) != c.want {
			t.Errorf("%d: got deadline after %v, want %v", i, got.Sub(now), c.want)
		}
	}
}

// TestTheHoldLoopHasTheSameDeadlines verifies with random Jobs and CronJobs that the hold loop and the controller
// compute the same deadlines, so that the controller never releases a Job before the hold loop would.
//
//test:norace
func TestTheHoldLoopHasTheSameDeadlines(t *testing.T) {
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 4))
			now := time.Now()
			view := declining(t, now)
			clientset, h := kubefake.NewClientset(), NewHeld()
			for i := range 20 {
				one := cronJob("enforce", fmt.Sprint("cron-", i), fmt.Sprintf("%d */%d * * *", random.IntN(60),
					1+random.IntN(23)), []batchv1.ConcurrencyPolicy{
					batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent,
				}[random.IntN(3)])
				if random.IntN(4) == 0 {
					one.Spec.TimeZone = new("Asia/Kolkata")
				}
				h.SawCronJob(one)
				if err := clientset.Tracker().Add(one); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 100 {
				if err := clientset.Tracker().Add(randomJob(random, i, now)); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			loop := hold.New(hold.Config{
				Client: clientset, View: func() *kube.View { return view }, Namespace: v1alpha1.SystemNamespace,
			})
			ended := make(chan error)
			go func() { ended <- loop.Run(ctx) }()
			bubble.Advance(time.Minute)
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			compareDeadlines(t, clientset, h, view, now)
			synctest.Wait()
		})
	}
}

func compareDeadlines(t *testing.T, clientset *kubefake.Clientset, h *Held, view *kube.View, now time.Time) {
	jobs, err := clientset.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for i := range jobs.Items {
		job := &jobs.Items[i]
		written, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationLatestStart])
		delete(job.Annotations, v1alpha1.AnnotationLatestStart)
		released, _ := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationReleasedAt])
		delete(job.Annotations, v1alpha1.AnnotationReleasedAt)
		job.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
		h.Saw(job)
		got, known := h.deadline(kit.Silent, h.jobs[job.UID], view, now)
		switch {
		case !known:
			t.Errorf("the deadline of %s is unknown", job.Name)
		case err == nil && !got.Equal(written):
			t.Errorf("%s: got deadline %v, hold loop computed %v", job.Name, got, written)
		case err == nil:
			held++
		case !released.IsZero() && got.Before(released.Add(-2*time.Second)) && got.After(now):
			t.Errorf("%s: got deadline %v, but it was released at %v", job.Name, got, released)
		}
	}
	if held < 20 {
		t.Errorf("only %d of %d Jobs are held", held, len(jobs.Items))
	}
}

// declining returns a view with a carbon intensity that decreases every minute for four days.
func declining(t *testing.T, now time.Time) *kube.View {
	values := make([]float64, 96*60)
	for i := range values {
		values[i] = 6000 - float64(i)
	}
	series, err := grid.NewSeries(now.Truncate(time.Minute), time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	contents := kube.Contents{
		Sites:    []*sched.Site{{Name: "home", Zone: "DE", Carbon: grid.Signal{Series: series}}},
		Defaults: policy.Defaults{Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour},
		Policies: []*v1alpha1.EnergyPolicy{kit.Policy("enforce", v1alpha1.ModeEnforce, 6*time.Hour)},
	}
	view, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func randomJob(random *rand.Rand, i int, now time.Time) *batchv1.Job {
	j := unseen("enforce", fmt.Sprint("job-", i), now.Truncate(time.Second), map[string]string{"a": "b"})
	write := func(key, value string, of int) {
		if random.IntN(of) == 0 {
			j.Annotations[key] = value
		}
	}
	seconds := func(most int) string { return fmt.Sprint(random.IntN(most), "s") }
	write(v1alpha1.AnnotationAllowedDelay, seconds(30*3600), 2)
	write(v1alpha1.AnnotationAllowedDelay, "nonsense", 20)
	write(v1alpha1.AnnotationExpectedDuration, seconds(7200), 3)
	at := func(seconds int) string {
		return now.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
	}
	write(v1alpha1.AnnotationFinishBy, at(random.IntN(30*3600)), 4)
	write("compute-gardener-scheduler.kubernetes.io/max-scheduling-delay", seconds(30*3600), 5)
	write(v1alpha1.AnnotationCarbonThreshold, "100", 6)
	write(v1alpha1.AnnotationStrategy, "energy+window", 6)
	write(batchv1.CronJobScheduledTimestampAnnotation, at(-random.IntN(600)), 3)
	if random.IntN(2) == 0 {
		ofCronJob(j, fmt.Sprint("cron-", random.IntN(20)))
	}
	return j
}

// TestEventsSayThatNoSchedulerRuns verifies that each held Job without a plan gets a single event while no
// scheduler is running, and that the rate of events is limited.
func TestEventsSayThatNoSchedulerRuns(t *testing.T) {
	for name, c := range map[string]struct {
		runs       bool
		jobs, want int
	}{
		"no scheduler": {false, 3, 3},
		"a scheduler":  {true, 3, 0},
		"many Jobs":    {false, 1000, 3 * maxWarnings},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []runtime.Object
				now := time.Now()
				for i := range c.jobs {
					objects = append(objects, unseen("enforce", fmt.Sprint("j", i), now, nil))
				}
				objects = append(objects, kit.HeldUntil("enforce", "planned", now, now.Add(time.Hour)))
				server := newJobServer(t, objects...)
				server.runs = c.runs
				server.replica(t.Context(), t, kit.Valley(t, now), time.Now)
				bubble.Advance(16 * time.Second)
				if n := len(server.events.Events); n != c.want {
					t.Errorf("got %d events, want %d", n, c.want)
				}
				if n := server.looks.Load(); n != 3 {
					t.Errorf("got %d checks for a scheduler, want 3", n)
				}
				if c.want > 0 {
					want := "Warning NoScheduler Held while no scheduler is running"
					if said := <-server.events.Events; !strings.HasPrefix(said, want) ||
						!strings.HasSuffix(said, now.Add(6*time.Hour).UTC().Format(time.RFC3339)) {
						t.Errorf("unexpected event %q", said)
					}
				}
			})
		})
	}
}
