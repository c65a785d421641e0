package policy

import (
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestSpeedup verifies the throughputs that the annotations replicas and speedup mean.
func TestSpeedup(t *testing.T) {
	for name, tc := range map[string]struct {
		replicas, speedup string
		want              []float64
		wantErr           string
	}{
		"proportional":       {replicas: "2-4", want: []float64{1, 1.5, 2}},
		"parallel fraction":  {replicas: "1-2", speedup: "0.5", want: []float64{1, 4. / 3}},
		"not parallel":       {replicas: "1-2", speedup: "0", want: []float64{1, 1}},
		"throughputs":        {replicas: "1-3", speedup: "200, 300, 350", want: []float64{1, 1.5, 1.75}},
		"not elastic":        {},
		"one number":         {replicas: "8", wantErr: "want a range such as 1-8"},
		"no replicas":        {replicas: "0-8", wantErr: "want a range"},
		"reversed":           {replicas: "8-1", wantErr: "want a range"},
		"fixed":              {replicas: "3-3", wantErr: "want a range"},
		"too many":           {replicas: "1-1001", wantErr: "up to 1000"},
		"negative":           {replicas: "-1-8", wantErr: "want a range"},
		"too few values":     {replicas: "1-3", speedup: "1,2", wantErr: "throughputs of 1 to 3 replicas"},
		"more than parallel": {replicas: "1-3", speedup: "1.5", wantErr: "want a fraction from 0 to 1"},
		"gains that rise":    {replicas: "1-3", speedup: "1,1.1,2", wantErr: "gains that do not rise"},
		"no work on least":   {replicas: "1-2", speedup: "0,1", wantErr: "throughputs that start with 1"},
		"no numbers":         {replicas: "1-2", speedup: "fast,faster", wantErr: `speedup is "fast,faster": want a number`},
		"other digits":       {replicas: "1-+8", wantErr: "want a range"},
		"leading zeros":      {replicas: "01-8", wantErr: "want a range"},
		"too long":           {replicas: "1-2", speedup: strings.Repeat("1", 100), wantErr: "too long"},
	} {
		annotations := map[string]string{}
		if tc.replicas != "" {
			annotations[v1alpha1.AnnotationReplicas] = tc.replicas
		}
		if tc.speedup != "" {
			annotations[v1alpha1.AnnotationSpeedup] = tc.speedup
		}
		m, err := ReadMarks(annotations)
		if tc.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
				t.Errorf("%s: got error %v, want %q", name, err, tc.wantErr)
			}
			continue
		}
		s, err2 := m.Replicas.Scaling()
		if err != nil || err2 != nil || (s == nil) != (tc.want == nil) {
			t.Errorf("%s: got %v, errors %v and %v", name, s, err, err2)
			continue
		}
		if s != nil && !slices.EqualFunc(s.Throughput, tc.want, func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 }) {
			t.Errorf("%s: got %v, want %v", name, s.Throughput, tc.want)
		}
	}
}

// TestElasticJobs verifies which Jobs are elastic, the finding for the others, and the work that they have done.
func TestElasticJobs(t *testing.T) {
	started := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		annotations map[string]string
		change      func(*batchv1.Job)
		want        string // part of the finding; empty if the Job is elastic
		worked      time.Duration
	}{
		"elastic": {},
		"after a pause": {
			annotations: map[string]string{v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationPauses: "1"},
			worked:      4 * time.Hour,
		},
		"scaled": {
			annotations: map[string]string{
				v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationScaledAt: "2026-01-01T01:00:00Z",
			},
			worked: 4 * time.Hour,
		},
		"copy of a scaled Job": {
			annotations: map[string]string{
				v1alpha1.AnnotationWorked: "4h", v1alpha1.AnnotationScaledAt: "2026-01-01T01:00:00Z",
				v1alpha1.AnnotationPaused: "another",
			},
		},
		"indexed": {
			annotations: map[string]string{v1alpha1.AnnotationElasticIndexes: "true"},
			change: func(j *batchv1.Job) {
				j.Spec.Completions, j.Spec.CompletionMode = new(int32(3)), new(batchv1.IndexedCompletion)
			},
		},
		"all indexes": {
			annotations: map[string]string{v1alpha1.AnnotationElasticIndexes: "false"},
			change: func(j *batchv1.Job) {
				j.Spec.Completions, j.Spec.CompletionMode = new(int32(3)), new(batchv1.IndexedCompletion)
			},
			want: "completions is 3, below the maximum of the range",
		},
		"elastic, but not indexed": {
			annotations: map[string]string{v1alpha1.AnnotationElasticIndexes: "true"},
			want:        "requires an indexed Job",
		},
		"failed indexes": {
			annotations: map[string]string{v1alpha1.AnnotationElasticIndexes: "true"},
			change: func(j *batchv1.Job) {
				j.Spec.Completions, j.Spec.CompletionMode = new(int32(3)), new(batchv1.IndexedCompletion)
				j.Spec.MaxFailedIndexes = new(int32(1))
			},
			want: "maxFailedIndexes and successPolicy",
		},
		"completions": {
			change: func(j *batchv1.Job) { j.Spec.Completions = new(int32(3)) },
			want:   "completions is 3, below the maximum of the range",
		},
		"parallelism": {
			change: func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(9)) },
			want:   "parallelism is 9, outside of the range",
		},
		"not interruptible": {
			change: func(j *batchv1.Job) { j.Labels = nil }, want: "set the label kubenergy.io/interruptible",
		},
		"another rule": {
			annotations: map[string]string{v1alpha1.AnnotationStrategy: "carbon+residual"},
			want:        "has no effect with the strategy carbon+residual",
		},
	} {
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "j", UID: "its-own", CreationTimestamp: metav1.NewTime(started),
				Labels: map[string]string{v1alpha1.LabelInterruptible: "true"},
				Annotations: map[string]string{
					v1alpha1.AnnotationStrategy: "carbon+carbon-scaler", v1alpha1.AnnotationAllowedDelay: "6h",
					v1alpha1.AnnotationExpectedDuration: "8h", v1alpha1.AnnotationPaused: "its-own",
					v1alpha1.AnnotationReplicas: "2-4", v1alpha1.AnnotationSpeedup: "1,1.5,1.5",
				},
			},
			Spec: batchv1.JobSpec{Parallelism: new(int32(3))},
		}
		for key, value := range tc.annotations {
			job.Annotations[key] = value
		}
		if tc.change != nil {
			tc.change(job)
		}
		w, err := ReadJob(job)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var rules Rules
		settled, s := rules.Settle(&w)
		if (settled.Scaling != nil) != (tc.want == "") || settled.Done != tc.worked {
			t.Errorf("%s: scaling %v, work %v", name, settled.Scaling, settled.Done)
		}
		rule := sched.StartRules[s.When]
		if all := findScaling(&w, &s, &rule); len(all) != min(1, len(tc.want)) ||
			len(all) > 0 && !strings.Contains(all[0].Said+"; "+all[0].Mend, tc.want) {
			t.Errorf("%s: findings %v, want %q", name, all, tc.want)
		}
	}
}

// TestWorkOfScaledJobs verifies the booked work of a Job that is scaled, paused and resumed.
func TestWorkOfScaledJobs(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := Marks{RestartCost: 10 * time.Minute, Checkpoints: 10 * time.Minute}
	m.Scale(90*time.Minute, now)
	m.Pause(2*time.Hour+15*time.Minute, 1.5) // the last checkpoint may have been ten minutes before
	if m.Worked != 3*time.Hour+30*time.Minute || m.Lost != 25*time.Minute || !m.ScaledAt.IsZero() || m.Pauses != 1 {
		t.Errorf("after a pause: %+v", m)
	}
	m.Scale(8*time.Minute, now) // it still repeats work
	if m.Worked != 3*time.Hour+30*time.Minute || !m.ScaledAt.IsZero() || m.Repeats() != 10*time.Minute {
		t.Errorf("after an early change: %+v", m)
	}
	m.Scale(30*time.Minute, now)
	if m.Worked != 3*time.Hour+50*time.Minute || !m.ScaledAt.Equal(now) || m.Repeats() != 0 {
		t.Errorf("after a late change: %+v", m)
	}
}
