package policy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Replicas is the range in which the number of pods of an elastic Job may change while it runs. It is zero if the
// number is fixed.
type Replicas struct {
	Least, Most int
	Speedup     string // as in the annotation
}

// readReplicas parses a range such as 1-8.
func readReplicas(m *Marks, value string) error {
	from, to, _ := strings.Cut(value, "-")
	least, err := readCount(from)
	most, err2 := readCount(to)
	if err != nil || err2 != nil || least < 1 || most <= least || value != fmt.Sprintf("%d-%d", least, most) {
		return fmt.Errorf("want a range such as 1-8, up to %d", maxCount)
	}
	m.Replicas.Least, m.Replicas.Most = least, most
	return nil
}

// Scaling returns the throughput for each number of replicas, or nil if the number is fixed. It is proportional to the
// replicas by default. A single number is the fraction of the work that is parallel, see [sched.Amdahl], and several
// numbers are the throughputs. It returns an error if they are invalid.
func (r *Replicas) Scaling() (*sched.Scaling, error) {
	var numbers []float64
	for value := range strings.SplitSeq(r.Speedup, ",") {
		v, err := readNumber(value, 0, 1e9)
		if err != nil && r.Speedup != "" {
			return nil, err
		}
		numbers = append(numbers, v)
	}
	switch {
	case r.Most == 0:
		return nil, nil
	case r.Speedup == "":
		return sched.Amdahl(r.Least, r.Most, 1), nil
	case len(numbers) == 1 && numbers[0] <= 1:
		return sched.Amdahl(r.Least, r.Most, numbers[0]), nil
	case len(numbers) != r.Most-r.Least+1:
		return nil, fmt.Errorf("want a fraction from 0 to 1, or the throughputs of %d to %d replicas", r.Least, r.Most)
	}
	s := &sched.Scaling{Least: r.Least, Throughput: sliceutil.Map(numbers, func(v float64) float64 {
		return v / numbers[0]
	})}
	return s, s.Validate()
}

// checkScaling returns an error if the annotations for scaling contradict each other.
func (m *Marks) checkScaling() error {
	if _, err := m.Replicas.Scaling(); err != nil {
		return fmt.Errorf("annotation %s is %s: %w", v1alpha1.AnnotationSpeedup, excerpt(m.Replicas.Speedup), err)
	}
	return nil
}

// Parallelism returns the number of pods that a Job runs at the same time.
func Parallelism(j *batchv1.Job) int { return int(*cmp.Or(j.Spec.Parallelism, new(int32(1)))) }

// ElasticIndexed reports whether the indexes of a Job are interchangeable workers, so that its completions change
// together with its parallelism. Fewer completions would skip other indexes.
func ElasticIndexed(j *batchv1.Job) bool {
	return declaredElastic(j) && j.Spec.CompletionMode != nil &&
		*j.Spec.CompletionMode == batchv1.IndexedCompletion && j.Spec.Completions != nil &&
		int(*j.Spec.Completions) == Parallelism(j)
}

func declaredElastic(j *batchv1.Job) bool {
	key := v1alpha1.AnnotationElasticIndexes
	return cmp.Or(j.Annotations[key], j.Spec.Template.Annotations[key]) == "true"
}

// unscalable returns the reason why the number of pods of a Job cannot change within the range, or "" if it can.
func (r *Replicas) unscalable(j *batchv1.Job) string {
	switch now := Parallelism(j); {
	case r.Most == 0:
		return ""
	case now < r.Least || now > r.Most:
		return fmt.Sprintf("parallelism is %d, outside of the range", now)
	case declaredElastic(j) && !ElasticIndexed(j):
		return v1alpha1.AnnotationElasticIndexes + " requires an indexed Job with as many completions as pods"
	case !ElasticIndexed(j) && j.Spec.Completions != nil && int(*j.Spec.Completions) < r.Most:
		return fmt.Sprintf("completions is %d, below the maximum of the range", *j.Spec.Completions)
	case ElasticIndexed(j) && (j.Spec.MaxFailedIndexes != nil || j.Spec.SuccessPolicy != nil):
		return "maxFailedIndexes and successPolicy depend on the number of completions"
	}
	return ""
}

// Elastic reports whether the number of pods of a Job may change, given a start rule that does so.
func (w *Work) Elastic() bool {
	return w.Interruptible && !w.pod && w.Marks.Replicas.Most > 0 && w.unscalable == ""
}

// State returns the annotations that store the work that a Job has done so far.
func (m *Marks) State(uid types.UID) map[string]string {
	state := map[string]string{
		v1alpha1.AnnotationPaused: string(uid), v1alpha1.AnnotationWorked: m.Worked.String(),
		v1alpha1.AnnotationPauses: strconv.Itoa(m.Pauses), v1alpha1.AnnotationLostWork: m.Lost.String(),
	}
	if !m.ScaledAt.IsZero() {
		state[v1alpha1.AnnotationScaledAt] = m.ScaledAt.UTC().Format(time.RFC3339)
	}
	return state
}
