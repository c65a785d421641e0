package place

import (
	encoding "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/json"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
)

// What heads [EnergyArgs].
const (
	ArgsAPIVersion = "kubescheduler.config.kubenergy.io/v1alpha1"
	ArgsKind       = EnergyName + "Args"
)

// Scope says which pods of a profile are scored.
type Scope string

// The scopes.
const (
	Marked Scope = "Marked" // pods with an annotation of ours
	All    Scope = "All"    // every pod of the profile, whatever its namespace's mode
)

// EnergyArgs are the options of the plugin in KubeSchedulerConfiguration.
type EnergyArgs struct {
	metav1.TypeMeta `json:",inline"`

	// for pods that name none: a where alone, since holds are not of profiles
	Strategy         string          `json:"strategy,omitempty"`
	Scope            Scope           `json:"scope,omitempty"`
	Weights          sched.Weights   `json:"weights,omitzero"`
	MaxSignalAge     metav1.Duration `json:"maxSignalAge,omitzero"`     // an older signal is no signal
	ExpectedDuration metav1.Duration `json:"expectedDuration,omitzero"` // of pods that do not say theirs
	Seed             uint64          `json:"seed,omitempty"`            // see sched.Policy
	// score plugins of the profile that score only the pods that KubEnergy does not score: see package fallback
	Replaces []string `json:"replaces,omitempty"`
	// nodes of least cost that a cycle is narrowed to; 0: it is not
	Shortlist int `json:"shortlist"`
	// plans over the pods that wait, of strategies that look at all of them
	Batch batch.Limits `json:"batch,omitzero"`
}

// DefaultArgs returns what holds where the configuration says nothing.
func DefaultArgs() EnergyArgs {
	return EnergyArgs{
		TypeMeta: metav1.TypeMeta{APIVersion: ArgsAPIVersion, Kind: ArgsKind},
		Strategy: "carbon",
		Scope:    Marked,
		// Providers publish every 5 to 60 minutes; two updates may fail before their last answer counts as stale.
		MaxSignalAge:     metav1.Duration{Duration: 2 * time.Hour},
		ExpectedDuration: metav1.Duration{Duration: time.Hour},
		// Twice as many cost more than they spare: pods of which one fills a node take as many hints from one cycle.
		Shortlist: 32,
		Batch: batch.Limits{
			TimeLimit: metav1.Duration{Duration: 200 * time.Millisecond}, MinPods: 16, MaxPods: 5000,
			Believed: metav1.Duration{Duration: 30 * time.Second}, Options: 3,
		},
	}
}

// Validate reports everything that is wrong with a.
func (a *EnergyArgs) Validate() error {
	errs := []error{checkWhere(a.Strategy)}
	if a.APIVersion != ArgsAPIVersion || a.Kind != ArgsKind {
		errs = append(errs, fmt.Errorf("args are %q %q: want %q %q", a.APIVersion, a.Kind, ArgsAPIVersion, ArgsKind))
	}
	b := &a.Batch
	for _, option := range []struct {
		ok    bool
		name  string
		value any
		want  string
	}{
		{a.Scope == Marked || a.Scope == All, "scope", strconv.Quote(string(a.Scope)), "Marked or All"},
		{a.MaxSignalAge.Duration >= 0, "maxSignalAge", a.MaxSignalAge.Duration, "0 (any age) or more"},
		{a.ExpectedDuration.Duration > 0, "expectedDuration", a.ExpectedDuration.Duration, "more than 0"},
		{a.Shortlist >= 0 && a.Shortlist <= fewNodes, "shortlist", a.Shortlist, fmt.Sprint("0 (none) to ", fewNodes)},
		{b.TimeLimit.Duration > 0, "batch.timeLimit", b.TimeLimit.Duration, "more than 0"},
		{b.Believed.Duration > 0, "batch.believed", b.Believed.Duration, "more than 0"},
		{b.MinPods >= 1, "batch.leastPods", b.MinPods, "1 or more"},
		{b.MaxPods >= 0, "batch.mostPods", b.MaxPods, "0 (no plans) or more"},
		{b.Options >= 0 && b.Options <= maxOptions, "batch.options", b.Options, fmt.Sprint("0 to ", maxOptions)},
	} {
		if !option.ok {
			errs = append(errs, fmt.Errorf("%s is %v: want %s", option.name, option.value, option.want))
		}
	}
	return errors.Join(errs...)
}

// maxOptions keeps a cycle that a plan has narrowed much shorter than one over all nodes.
const maxOptions = 20

// checkWhere refuses what is not the name of a where, and nothing more.
func checkWhere(name string) error {
	where := name
	if end := strings.IndexAny(name, "+/"); end >= 0 {
		where = name[:end]
	}
	_, err := strategy.New(where)
	switch {
	case err != nil:
		return fmt.Errorf("strategy: %w", err)
	case where != name:
		return fmt.Errorf("strategy is %q: want %s alone; %q is for policies, annotations and --kubenergy-hold-rule",
			name, where, name[len(where)+1:])
	}
	return nil
}

// decodeArgs reads the args of a plugin that kube-scheduler does not know, which it hands on as they were written.
// Unlike kube-scheduler's own helper it refuses unknown fields, those of other case among them, and fields that stand
// twice: a misspelt option must not become a default.
func decodeArgs(obj runtime.Object) (EnergyArgs, error) {
	args := DefaultArgs()
	switch given := obj.(type) {
	case nil:
	case *runtime.Unknown:
		if len(given.Raw) > 0 { // JSON, whatever the configuration was written in
			strict, err := json.UnmarshalStrict(given.Raw, &args)
			if wrong, ok := errors.AsType[*encoding.UnmarshalTypeError](err); ok &&
				wrong.Type.Kind() == reflect.String {
				err = fmt.Errorf("%s is a %s: want text, of a duration as \"200ms\"", wrong.Field, wrong.Value)
			}
			if err := errors.Join(append(strict, err)...); err != nil {
				return args, fmt.Errorf("reading args: %w", err)
			}
		}
	default:
		return args, fmt.Errorf("reading args: they are a %T", obj)
	}
	return args, args.Validate()
}
