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

// API version and kind of [EnergyArgs].
const (
	ArgsAPIVersion = "kubescheduler.config.kubenergy.io/v1alpha1"
	ArgsKind       = EnergyName + "Args"
)

// Scope determines which pods of a profile are scored.
type Scope string

// Valid values of [Scope].
const (
	Marked Scope = "Marked" // pods with KubEnergy annotations
	All    Scope = "All"    // all pods of the profile, regardless of the mode of their namespaces
)

// EnergyArgs contains the arguments of the plugin in a KubeSchedulerConfiguration.
type EnergyArgs struct {
	metav1.TypeMeta `json:",inline"`

	// Strategy is the default placement strategy. It must not contain a hold rule, because holds do not depend on
	// profiles.
	Strategy         string          `json:"strategy,omitempty"`
	Scope            Scope           `json:"scope,omitempty"`
	Weights          sched.Weights   `json:"weights,omitzero"`
	MaxSignalAge     metav1.Duration `json:"maxSignalAge,omitzero"`     // signals that are older are ignored
	ExpectedDuration metav1.Duration `json:"expectedDuration,omitzero"` // of pods without an expected duration
	Seed             uint64          `json:"seed,omitempty"`            // see sched.Policy
	// Replaces lists score plugins of the profile that are skipped for pods that KubEnergy scores, see package
	// fallback.
	Replaces []string `json:"replaces,omitempty"`
	// Shortlist is the number of cheapest nodes to which a cycle is narrowed. Zero disables narrowing.
	Shortlist int `json:"shortlist"`
	// Batch configures joint plans for waiting pods, for strategies that plan the whole queue.
	Batch batch.Limits `json:"batch,omitzero"`
}

// DefaultArgs returns the default arguments.
func DefaultArgs() EnergyArgs {
	return EnergyArgs{
		TypeMeta: metav1.TypeMeta{APIVersion: ArgsAPIVersion, Kind: ArgsKind},
		Strategy: "carbon",
		Scope:    Marked,
		// Providers publish signals every 5 to 60 minutes, so two updates may fail before a signal becomes stale.
		MaxSignalAge:     metav1.Duration{Duration: 2 * time.Hour},
		ExpectedDuration: metav1.Duration{Duration: time.Hour},
		// Longer lists cost more than they save if each pod fills a node, because a cycle yields one scheduling
		// hint per listed node.
		Shortlist: 32,
		Batch: batch.Limits{
			TimeLimit: metav1.Duration{Duration: 200 * time.Millisecond}, MinPods: 16, MaxPods: 5000,
			// The rest of batch.MaxKept suffices to plan the pods within the time limit.
			Gather:   metav1.Duration{Duration: 800 * time.Millisecond},
			Believed: metav1.Duration{Duration: 30 * time.Second}, Options: 3,
		},
	}
}

// Validate returns an error that lists all invalid arguments.
func (a *EnergyArgs) Validate() error {
	errs := []error{checkWhere(a.Strategy)}
	if a.APIVersion != ArgsAPIVersion || a.Kind != ArgsKind {
		errs = append(errs, fmt.Errorf("args are %q %q: want %q %q", a.APIVersion, a.Kind, ArgsAPIVersion, ArgsKind))
	}
	check := func(ok bool, name string, value any, want string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is %v: want %s", name, value, want))
		}
	}
	b := &a.Batch
	check(a.Scope == Marked || a.Scope == All, "scope", strconv.Quote(string(a.Scope)), "Marked or All")
	check(a.MaxSignalAge.Duration >= 0, "maxSignalAge", a.MaxSignalAge.Duration, "0 (any age) or more")
	check(a.ExpectedDuration.Duration > 0, "expectedDuration", a.ExpectedDuration.Duration, "more than 0")
	check(a.Shortlist >= 0 && a.Shortlist <= fewNodes, "shortlist", a.Shortlist, fmt.Sprint("0 (none) to ", fewNodes))
	check(b.TimeLimit.Duration > 0, "batch.timeLimit", b.TimeLimit.Duration, "more than 0")
	check(b.Believed.Duration > 0, "batch.believed", b.Believed.Duration, "more than 0")
	check(b.Gather.Duration >= 0 && b.Gather.Duration < batch.MaxKept, "batch.gather", b.Gather.Duration,
		fmt.Sprint("0 (disabled) or more, and less than ", batch.MaxKept))
	check(b.MinPods >= 1, "batch.leastPods", b.MinPods, "1 or more")
	check(b.MaxPods >= 0, "batch.mostPods", b.MaxPods, "0 (no plans) or more")
	check(b.Options >= 0 && b.Options <= maxOptions, "batch.options", b.Options, fmt.Sprint("0 to ", maxOptions))
	return errors.Join(errs...)
}

// maxOptions ensures that a cycle that is narrowed by a plan is much cheaper than a cycle over all nodes.
const maxOptions = 20

// checkWhere returns an error unless name is the name of a placement strategy without a hold rule.
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
		return fmt.Errorf("strategy is %q: want only %s; use %q in policies, annotations and --kubenergy-hold-rule",
			name, where, name[len(where)+1:])
	}
	return nil
}

// decodeArgs decodes the arguments of the plugin. kube-scheduler does not know their type and passes them as raw
// bytes. Unlike the decoder of kube-scheduler, decodeArgs rejects duplicate fields and unknown fields, including
// fields with different case, so that a misspelled option is not replaced by its default.
func decodeArgs(obj runtime.Object) (EnergyArgs, error) {
	args := DefaultArgs()
	switch given := obj.(type) {
	case nil:
	case *runtime.Unknown:
		if len(given.Raw) > 0 { // always JSON, regardless of the format of the configuration file
			strict, err := json.UnmarshalStrict(given.Raw, &args)
			if wrong, ok := errors.AsType[*encoding.UnmarshalTypeError](err); ok &&
				wrong.Type.Kind() == reflect.String {
				err = fmt.Errorf("%s is a %s: want a string, e.g. \"200ms\" for a duration", wrong.Field, wrong.Value)
			}
			if err := errors.Join(append(strict, err)...); err != nil {
				return args, fmt.Errorf("reading args: %w", err)
			}
		}
	default:
		return args, fmt.Errorf("reading args: unexpected type %T", obj)
	}
	return args, args.Validate()
}
