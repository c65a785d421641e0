package policy

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

func TestSeries(t *testing.T) {
	for name, want := range map[string]string{
		"nightly-report-29384756": "nightly-report", // of a CronJob
		"train-x7k2v":             "train",          // generateName
		"train-x7k2v-0":           "train",
		"train-small":             "train-small",
		"train-2026-06-01":        "train",
		"backup-7":                "backup",
		"backup":                  "backup",
		"v2":                      "v",
		"train-x7k22":             "train",
		"123":                     "",
		"fold-3-of-5":             "fold-3-of",
	} {
		w := Work{Owners: Owners{Owner: "Job/" + name}}
		if got := w.series(); got != want {
			t.Errorf("series of %s is %q, want %q", name, got, want)
		}
	}
	pod := Work{Owners: Owners{Owner: "ReplicaSet/web-7"}}
	if got := pod.series(); got != "" {
		t.Errorf("series of a pod without a Job is %q", got)
	}
}

// reportJob returns a Job of a CronJob.
func reportJob(run string, annotations map[string]string) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "report-" + run, Annotations: annotations, CreationTimestamp: metav1.NewTime(noon),
	}}
}

// learntRules returns rules with a number of run times of 36 to 44 minutes.
func learntRules(t *testing.T, runs int) *Rules {
	t.Helper()
	var p v1alpha1.JobProfile
	for i := range runs { // each is stored and read again
		learnt, err := ReadJobProfile(&p)
		if err != nil {
			t.Fatal(err)
		}
		work, _ := ReadJob(reportJob("29384756", nil))
		learnt.Learn(&work, time.Duration(36+i%9)*time.Minute)
		learnt.Write(&p)
	}
	learnt, err := ReadJobProfile(&p)
	if err != nil {
		t.Fatal(err)
	}
	return rulesOf(t, Sources{RunTimes: map[string]*RunTimes{"team": learnt}})
}

func TestLearntDurations(t *testing.T) {
	few, many := learntRules(t, EnoughRuns-1), learntRules(t, 200)
	stated := map[string]string{v1alpha1.AnnotationExpectedDuration: "20m"}
	elsewhere := reportJob("1", nil)
	elsewhere.Namespace = "other"
	for name, c := range map[string]struct {
		rules        *Rules
		job          *batchv1.Job
		shortest     time.Duration
		longest      time.Duration
		distribution bool
	}{
		"learnt":               {many, reportJob("1", nil), 38 * time.Minute, 44 * time.Minute, true},
		"stated by the owner":  {many, reportJob("1", stated), 20 * time.Minute, 20 * time.Minute, false},
		"too few runs":         {few, reportJob("1", nil), time.Hour, time.Hour, false},
		"of another namespace": {many, elsewhere, time.Hour, time.Hour, false},
	} {
		work, err := ReadJob(c.job)
		if err != nil {
			t.Fatal(err)
		}
		job, s := c.rules.Settle(&work)
		job.AllowedDelay, job.FinishBy = 24*time.Hour, noon.Add(3*time.Hour)
		latest := job.LatestStart()
		job = c.rules.Question(noon, job, s).Queue[0]
		if job.Duration < c.shortest || job.Duration > c.longest || (job.Runtimes != nil) != c.distribution {
			t.Errorf("%s: duration %v, distribution: %v", name, job.Duration, job.Runtimes != nil)
		}
		if got := job.LatestStart(); got != latest {
			t.Errorf("%s: the latest start is %v, want %v: it must not depend on learnt run times", name, got, latest)
		}
	}
	// The pod of a Job runs for as long as the Job.
	pod := podIn("team", nil, func(p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "report-1", Controller: new(true)}}
	})
	if job, _ := many.ofPod(t, pod); job.Runtimes == nil {
		t.Error("the run time of the pod of a Job is unknown")
	}
	from := func(r *Rules, job *batchv1.Job) string {
		work, _ := ReadJob(job)
		for _, o := range r.Origins(&work) {
			if o.Setting == "expectedDuration" {
				return o.From
			}
		}
		return ""
	}
	if a, b := from(many, reportJob("1", nil)), from(many, reportJob("1", stated)); a != "learnt" || b != "annotation" {
		t.Errorf("durations are from %q and %q", a, b)
	}
}

func TestFindDuration(t *testing.T) {
	r := learntRules(t, 200)
	for stated, want := range map[string]string{
		"10m": "is 10 min, but similar Jobs usually run for 3", "20m": "", "80m": "", "": "",
		"3h": "is 3 h, but similar Jobs",
	} {
		annotations := map[string]string{}
		if stated != "" {
			annotations[v1alpha1.AnnotationExpectedDuration] = stated
		}
		work, _ := ReadJob(reportJob("1", annotations))
		found := r.FindDuration(&work)
		if len(found) > 0 != (want != "") || want != "" && !strings.Contains(found[0].String(), want) {
			t.Errorf("%s: %v, want %q", stated, found, want)
		}
	}
}
