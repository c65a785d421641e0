package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Marks contains the values of an object's annotations, including those of other systems. In addition to Terms, it
// contains values that no other level can set.
type Marks struct {
	Terms

	FinishBy       time.Time // zero if not set
	RunNow         bool
	Skip           bool
	ReleasedBefore bool
	PUE            float64 // 0 if not set
	Performance    float64
	HasPerformance bool

	RestartCost time.Duration // repeated after each pause
	Checkpoints time.Duration // interval of checkpoints if none is written on SIGTERM; 0 if not set
	MaxPauses   int           // 0 if not set
	Replicas    Replicas
	// State of a Job that was paused or scaled. It is 0 for other objects, so that annotations cannot extend their
	// holds. Work is the run time on the minimum number of replicas.
	Worked, Lost time.Duration
	Pauses       int
	ScaledAt     time.Time // last change of the number of replicas in the current run

	BudgetKWh  float64             // the workload's own budget; 0 if not set
	BudgetDeed v1alpha1.BudgetDeed // action when it is used up; empty if not set

	Gardener bool // an annotation of Compute Gardener requests a hold, so its default behavior applies
}

// Repeats returns the work that the current run of a Job repeats, because it was paused before.
func (m *Marks) Repeats() time.Duration {
	if m.Pauses > 0 && m.ScaledAt.IsZero() { // otherwise it was subtracted when the Job was scaled
		return m.RestartCost
	}
	return 0
}

// forgetPauses removes the state that annotations of another Job, or of an object that cannot be paused, contain.
func (m *Marks) forgetPauses() {
	m.Worked, m.Lost, m.Pauses, m.ScaledAt = 0, 0, 0, time.Time{}
}

// Pause records a pause after a run with the given work, including repeated work. rate is the work per time of an
// elastic Job and 0 for others. The repeated work of the next run is counted as lost in advance, so that the cost of
// the last pause is counted too.
func (m *Marks) Pause(ran time.Duration, rate float64) {
	useful, lost := max(0, ran-m.Repeats()), time.Duration(0)
	switch {
	case m.Checkpoints == 0:
	case rate > 0: // the time of the last checkpoint is unknown
		lost = min(useful, time.Duration(rate*float64(m.Checkpoints)))
	default:
		lost = useful % m.Checkpoints
	}
	m.Worked += useful - lost
	m.Lost += lost - m.Repeats() + min(ran, m.Repeats()) + m.RestartCost
	m.Pauses, m.ScaledAt = m.Pauses+1, time.Time{}
}

// Scale records a change of the number of replicas after a run with the given work. While a Job repeats work, Scale
// does not record a change, because pods are only added and the start of all pods is known.
func (m *Marks) Scale(ran time.Duration, now time.Time) {
	if ran >= m.Repeats() {
		m.Worked += ran - m.Repeats()
		m.ScaledAt = now
	}
}

// annotation describes an annotation on a pod, a Job or its pod template.
type annotation struct {
	key       string
	alias     string                             // equivalent annotation of another system; empty if there is none
	translate func(value string) (string, error) // converts a value of the alias; nil if no conversion is required
	holds     bool                               // the alias requests a hold
	marks     bool                               // the annotation and its alias mark a pod
	sets      term                               // term that the annotation sets, if any
	read      func(m *Marks, value string) error
}

// annotations contains all supported annotations.
var annotations = slices.Concat(budgetAnnotations, []annotation{
	{
		key: v1alpha1.AnnotationAllowedDelay, alias: gardener + "max-scheduling-delay", holds: true, marks: true,
		sets: termDelay, // also for 0, which disables holding
		read: keep(readDuration, func(m *Marks) *time.Duration { return &m.AllowedDelay }),
	},
	{key: v1alpha1.AnnotationFinishBy, read: keep(readTime, func(m *Marks) *time.Time { return &m.FinishBy })},
	{
		key: v1alpha1.AnnotationExpectedDuration, alias: gardener + "estimated-runtime-hours", translate: hours,
		sets: termDuration,
		read: keep(positive(readDuration), func(m *Marks) *time.Duration { return &m.ExpectedDuration }),
	},
	{key: v1alpha1.AnnotationRunNow, read: keep(readBool, func(m *Marks) *bool { return &m.RunNow })},
	{
		key: v1alpha1.AnnotationSkip, alias: gardener + "skip",
		read: keep(readBool, func(m *Marks) *bool { return &m.Skip }),
	},
	// The value is not parsed, because only the presence matters. A forged annotation has less effect than run-now.
	{key: v1alpha1.AnnotationReleasedAt, read: func(m *Marks, _ string) error {
		m.ReleasedBefore = true
		return nil
	}},
	{
		key: v1alpha1.AnnotationCarbonThreshold, alias: gardener + "carbon-intensity-threshold", holds: true,
		marks: true, sets: termCarbon,
		read: keep(positive(between[grid.Intensity](0, maxIntensity)),
			func(m *Marks) *grid.Intensity { return &m.Limits.Carbon }),
	},
	{
		key: v1alpha1.AnnotationCarbonPercentile, marks: true, sets: termPercentile,
		read: func(m *Marks, value string) error {
			v, err := readNumber(value, 1, 99)
			m.Limits.Percentile = v / 100
			return err
		},
	},
	{
		key: v1alpha1.AnnotationPriceThreshold, alias: gardener + "price-threshold", holds: true, marks: true,
		sets: termPrice,
		read: func(m *Marks, value string) error {
			v, err := readNumber(value, -maxPrice, maxPrice)
			m.Limits.Price, m.Limits.HasPrice = grid.Price(v), true
			return err
		},
	},
	{
		key: v1alpha1.AnnotationCarbonCounts, alias: gardener + "carbon-enabled", holds: true, marks: true,
		sets: termCarbonCounts, read: keep(readNot, func(m *Marks) *bool { return &m.Limits.NoCarbon }),
	},
	{key: v1alpha1.AnnotationStrategy, marks: true, sets: termStrategy, read: func(m *Marks, value string) error {
		if len(value) > maxValue {
			return errors.New("the name is too long for a strategy")
		}
		var both bool
		if m.Where, _, both = strings.Cut(value, "+"); both {
			m.When, m.said = strategy.When(value), m.said|termRule
		}
		var ordered bool
		if _, m.Order, ordered = strings.Cut(value, "/"); ordered {
			m.said |= termOrder
		}
		_, err := strategy.New(value)
		return err
	}},
	{
		key: v1alpha1.AnnotationMaxPower, alias: gardener + "max-power-watts", marks: true, sets: termMaxPower,
		read: keep(between[energy.Watts](1, 1e6), func(m *Marks) *energy.Watts { return &m.MaxPower }),
	},
	{
		key: v1alpha1.AnnotationMinEfficiency, alias: gardener + "min-efficiency", marks: true,
		read: func(m *Marks, value string) (err error) {
			if m.MinEfficiency, err = readNumber(value, 0, 1e6); m.MinEfficiency > 0 {
				m.said |= termMinEfficiency
			}
			return err
		},
	},
	{
		key: v1alpha1.AnnotationGPUWorkloadType, alias: gardener + "gpu-workload-type", sets: termGPUClass,
		read: keep(readGPUClass, func(m *Marks) *string { return &m.GPUClass }),
	},
	{
		key: v1alpha1.AnnotationPUE, alias: gardener + "pue",
		read: keep(between[float64](1, maxPUE), func(m *Marks) *float64 { return &m.PUE }),
	},
	{
		key:  v1alpha1.AnnotationRestartCost,
		read: keep(readDuration, func(m *Marks) *time.Duration { return &m.RestartCost }),
	},
	{
		key:  v1alpha1.AnnotationCheckpointInterval,
		read: keep(positive(readDuration), func(m *Marks) *time.Duration { return &m.Checkpoints }),
	},
	{
		key:  v1alpha1.AnnotationMaxPauses,
		read: keep(positive(readCount), func(m *Marks) *int { return &m.MaxPauses }),
	},
	{key: v1alpha1.AnnotationWorked, read: keep(readDuration, func(m *Marks) *time.Duration { return &m.Worked })},
	{key: v1alpha1.AnnotationLostWork, read: keep(readDuration, func(m *Marks) *time.Duration { return &m.Lost })},
	{key: v1alpha1.AnnotationPauses, read: keep(readCount, func(m *Marks) *int { return &m.Pauses })},
	{key: v1alpha1.AnnotationScaledAt, read: keep(readTime, func(m *Marks) *time.Time { return &m.ScaledAt })},
	{key: v1alpha1.AnnotationReplicas, read: readReplicas},
	{key: v1alpha1.AnnotationElasticIndexes, read: func(_ *Marks, value string) error {
		if value != "true" && value != "false" { // see ElasticIndexed
			return errors.New(`want "true" or "false"`)
		}
		return nil
	}},
	{
		key: v1alpha1.AnnotationSpeedup,
		read: keep(func(value string) (string, error) {
			return parse(value, func(s string) (string, error) { return s, nil })
		}, func(m *Marks) *string { return &m.Replicas.Speedup }),
	},
	{
		// of the hybrid scheduler
		key: v1alpha1.AnnotationPerformanceWeight, alias: "scheduler.policy/performance-weight",
		read: func(m *Marks, value string) (err error) {
			m.Performance, err = readNumber(value, 0, 1)
			m.HasPerformance = true
			return err
		},
	},
})

func readGPUClass(value string) (string, error) {
	classes := []string{"inference", "training", "rendering", "generic"}
	if !slices.Contains(classes, value) {
		return "", fmt.Errorf("want one of %s", strings.Join(classes, ", "))
	}
	return value, nil
}

// in looks up the annotation or its alias.
func (a *annotation) in(m map[string]string) (key, value string, ok bool) {
	if value, ok = m[a.key]; ok {
		return a.key, value, true
	}
	if a.alias != "" {
		value, ok = m[a.alias]
	}
	return a.alias, value, ok
}

// ReadMarks reads annotations. If several maps contain a key, the first one takes precedence, which is that of a
// Job before that of its pod template. Within a map, the keys of KubEnergy take precedence over those of other
// systems. If a value is invalid, ReadMarks returns empty Marks and an error that contains the annotation.
func ReadMarks(from ...map[string]string) (Marks, error) {
	if !slices.ContainsFunc(from, func(a map[string]string) bool { return len(a) > 0 }) {
		return Marks{}, nil // fast path for most pods
	}
	m := new(Marks)
	err := m.read(annotations, from)
	if err == nil {
		err = m.checkScaling()
	}
	if err != nil {
		return Marks{}, err
	}
	m.setRule()
	return *m, nil
}

func (m *Marks) read(all []annotation, from []map[string]string) error {
	var errs []error
	for i := range all {
		for _, a := range from {
			key, value, ok := all[i].in(a)
			if !ok {
				continue
			}
			if err := m.readOne(&all[i], key, value); err != nil {
				errs = append(errs, fmt.Errorf("annotation %s is %s: %w", key, excerpt(value), err))
			}
			break
		}
	}
	return errors.Join(errs...)
}

func (m *Marks) readOne(a *annotation, key, value string) (err error) {
	if key != a.key {
		m.Gardener = m.Gardener || a.holds
		if a.translate != nil {
			if value, err = a.translate(value); err != nil {
				return err
			}
		}
	}
	m.said |= a.sets
	return a.read(m, value)
}

// marked reports whether the pod has annotations that mark it, regardless of their values. It is called for every
// pod of the cluster, and most pods only have other annotations.
func marked(pod *v1.Pod) bool {
	for key := range pod.Annotations {
		if (strings.HasPrefix(key, v1alpha1.Prefix) || strings.HasPrefix(key, gardener)) && marking[key] {
			return true
		}
	}
	return false
}

// marking contains the keys that mark a pod. known contains all keys that users or KubEnergy itself may write, and
// the supported keys of other systems.
var marking, known = indexKeys()

func indexKeys() (marking, known map[string]bool) {
	marking, known = map[string]bool{}, map[string]bool{
		GardenerBudgetExceeded: true, GardenerBudgetExceededBy: true,
		v1alpha1.AnnotationBudgetExceeded: true, v1alpha1.AnnotationBudgetExceededBy: true,
		v1alpha1.AnnotationBudgetActions: true, v1alpha1.AnnotationBudgetSuspendedTill: true,
		v1alpha1.AnnotationBudgetReleased: true, v1alpha1.AnnotationHeldUntil: true,
		v1alpha1.AnnotationHeldReason: true, v1alpha1.AnnotationLatestStart: true,
		v1alpha1.AnnotationSubmittedBy: true, v1alpha1.AnnotationLabRunSeconds: true,
		v1alpha1.AnnotationLabPorts: true, v1alpha1.AnnotationBackend: true, v1alpha1.AnnotationRunsOn: true,
		v1alpha1.AnnotationNextStep: true, v1alpha1.AnnotationMoved: true, v1alpha1.AnnotationPaused: true,
	}
	for _, a := range annotations {
		known[a.key], known[a.alias] = true, true
		if a.marks {
			marking[a.key], marking[a.alias] = true, true
		}
	}
	return marking, known
}
