package learn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// A cluster contains completed Jobs and a controller that is restarted.
type cluster struct {
	client.Client
	t      *testing.T
	jobs   []*batchv1.Job
	writes atomic.Int32
	refuse atomic.Bool
	run    *RunTimes
	stop   func()
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{t: t}
	c.Client = fake.NewClientBuilder().WithScheme(controllertest.Scheme(t)).WithStatusSubresource(&v1alpha1.JobProfile{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourceUpdate: func(ctx context.Context, under client.Client, sub string,
			o client.Object, opts ...client.SubResourceUpdateOption,
		) error {
			if c.writes.Add(1); c.refuse.Load() {
				return errors.New("unavailable")
			}
			return under.SubResource(sub).Update(ctx, o, opts...)
		}}).Build()
	c.start()
	return c
}

// start starts a controller, which sees all existing Jobs.
func (c *cluster) start() {
	ctx, cancel := context.WithCancel(c.t.Context())
	c.run = &RunTimes{
		Client: c, Leads: func() bool { return true }, Now: time.Now, Log: controllertest.Silent,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.run.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-ended
	}
	for _, j := range c.jobs {
		c.run.Saw(j)
	}
}

// complete completes a Job of ten to fifteen series.
func (c *cluster) complete(r *rand.Rand) {
	ran := time.Duration(1+r.IntN(100)) * time.Minute
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprint("ns-", r.IntN(2)), Name: fmt.Sprintf("s%dx-%08d", r.IntN(10), len(c.jobs)),
		UID: types.UID(fmt.Sprint(r.Uint64())),
	}}
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	j.Status.StartTime, j.Status.CompletionTime = new(metav1.NewTime(now.Add(-ran))), &now
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
	c.jobs = append(c.jobs, j)
	c.run.Saw(j)
}

func (c *cluster) profile(namespace string) *v1alpha1.JobProfile {
	key := client.ObjectKey{Namespace: namespace, Name: v1alpha1.PolicyName}
	return controllertest.Get(c.t, c, key, &v1alpha1.JobProfile{})
}

// history completes 500 Jobs in about three hours. The controller is restarted at about 20 random points, and for some
// minutes in each hour no status can be written.
func history(t *testing.T, restarts bool) (status [2]v1alpha1.JobProfileStatus) {
	synctest.Test(t, func(t *testing.T) {
		c, r, events := newCluster(t), rand.New(rand.NewPCG(45, 3)), rand.New(rand.NewPCG(45, 4))
		for i := range 500 {
			c.complete(r)
			bubble.Advance(time.Duration(r.IntN(45_000)) * time.Millisecond)
			if restarts && events.IntN(25) == 0 {
				c.stop()
				c.start()
			}
			c.refuse.Store(restarts && i%100 < 20)
		}
		bubble.Advance(10 * time.Minute)
		c.stop()
		for i := range status {
			status[i] = c.profile(fmt.Sprint("ns-", i)).Status
		}
	})
	return status
}

// TestRestartsChangeNothing verifies that the learnt run times do not depend on restarts and failed writes.
func TestRestartsChangeNothing(t *testing.T) {
	want := history(t, false)
	if got := history(t, true); !cmp.Equal(want, got) {
		t.Errorf("unexpected profiles after restarts (-want +got):\n%s", cmp.Diff(want, got))
	}
	if n := want[0].Runs + want[1].Runs; n != 500 {
		t.Errorf("learnt %d of 500 runs", n)
	}
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r := newCluster(t), rand.New(rand.NewPCG(45, 5))
		for range 20 {
			c.complete(r)
		}
		bubble.Advance(6 * time.Minute)
		writes := c.writes.Load()
		c.stop()
		c.start()
		bubble.Advance(10 * time.Minute)
		if now := c.writes.Load(); now != writes {
			t.Errorf("%d writes without a new run", now-writes)
		}
		p := c.profile("ns-0")
		before := p.Status.Runs
		p.Spec.ForgetBefore = &metav1.Time{Time: time.Now().Truncate(time.Second)}
		if err := c.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		c.stop()
		c.start()
		bubble.Advance(time.Minute)
		for range 5 {
			c.complete(r)
		}
		bubble.Advance(6 * time.Minute)
		if got := c.profile("ns-0").Status.Runs; before < 5 || got < 1 || got > 5 {
			t.Errorf("%d runs after %d were forgotten and some of 5 learnt", got, before)
		}
		c.stop()
	})
}

// TestPausedRun verifies that the run time of a paused Job is the sum of its runs without repeated work.
func TestPausedRun(t *testing.T) {
	r := &RunTimes{Now: time.Now}
	start := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	r.Saw(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{UID: "j", Annotations: map[string]string{
			v1alpha1.AnnotationPaused: "j", v1alpha1.AnnotationWorked: "3h", v1alpha1.AnnotationPauses: "2",
			v1alpha1.AnnotationRestartCost: "10m",
		}},
		Status: batchv1.JobStatus{
			StartTime: &start, CompletionTime: new(metav1.NewTime(start.Add(time.Hour))),
			Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}},
		},
	})
	if got, want := r.pending["j"].ran, 3*time.Hour+50*time.Minute; got != want {
		t.Errorf("learnt %v, want %v", got, want)
	}
}

// TestNotLearnt verifies that failed and unfinished Jobs are not learnt.
func TestNotLearnt(t *testing.T) {
	r := &RunTimes{Now: time.Now}
	for name, change := range map[string]func(*batchv1.Job){
		"failed":     func(j *batchv1.Job) { j.Status.Conditions[0].Type = batchv1.JobFailed },
		"unfinished": func(j *batchv1.Job) { j.Status.CompletionTime = nil },
		"no start":   func(j *batchv1.Job) { j.Status.StartTime = nil },
	} {
		j := &batchv1.Job{Status: batchv1.JobStatus{
			StartTime: &metav1.Time{}, CompletionTime: &metav1.Time{},
			Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}},
		}}
		change(j)
		if r.Saw(j); len(r.pending) > 0 {
			t.Errorf("%s: learnt", name)
		}
	}
	if r.Saw(&v1.Pod{}); len(r.pending) > 0 {
		t.Error("a pod was learnt")
	}
}
