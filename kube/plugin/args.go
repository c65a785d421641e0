package plugin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/sched"
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
	All    Scope = "All"    // every pod of the profile
)

// EnergyArgs are the options of the plugin in KubeSchedulerConfiguration.
type EnergyArgs struct {
	metav1.TypeMeta `json:",inline"`

	Strategy         string          `json:"strategy,omitempty"` // for pods that name none; only its where counts here
	Scope            Scope           `json:"scope,omitempty"`
	Weights          sched.Weights   `json:"weights,omitzero"`
	MaxSignalAge     metav1.Duration `json:"maxSignalAge,omitzero"`     // an older signal is no signal
	ExpectedDuration metav1.Duration `json:"expectedDuration,omitzero"` // of pods that do not say theirs
	Seed             uint64          `json:"seed,omitempty"`            // see sched.Policy
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
	}
}

// Validate reports everything that is wrong with a.
func (a *EnergyArgs) Validate() error {
	var errs []error
	if a.APIVersion != ArgsAPIVersion || a.Kind != ArgsKind {
		errs = append(errs, fmt.Errorf("args are %q %q: want %q %q", a.APIVersion, a.Kind, ArgsAPIVersion, ArgsKind))
	}
	if _, err := sched.New(a.Strategy); err != nil {
		errs = append(errs, err)
	}
	if a.Scope != Marked && a.Scope != All {
		errs = append(errs, fmt.Errorf("scope is %q: want %s or %s", a.Scope, Marked, All))
	}
	if a.MaxSignalAge.Duration < 0 {
		errs = append(errs, fmt.Errorf("maxSignalAge is %v: want 0 (any age) or more", a.MaxSignalAge.Duration))
	}
	if a.ExpectedDuration.Duration <= 0 {
		errs = append(errs, fmt.Errorf("expectedDuration is %v: want more than 0", a.ExpectedDuration.Duration))
	}
	return errors.Join(errs...)
}

// decodeArgs reads the args of a plugin that kube-scheduler does not know, which it hands on as they were written.
// Unlike kube-scheduler's own helper it refuses unknown fields: a misspelt option must not become a default.
func decodeArgs(obj runtime.Object) (EnergyArgs, error) {
	args := DefaultArgs()
	switch given := obj.(type) {
	case nil:
	case *runtime.Unknown:
		if len(given.Raw) > 0 { // JSON, whatever the configuration was written in
			dec := json.NewDecoder(bytes.NewReader(given.Raw))
			dec.DisallowUnknownFields()
			if err := dec.Decode(&args); err != nil {
				return args, fmt.Errorf("reading args: %w", err)
			}
		}
	default:
		return args, fmt.Errorf("reading args: they are a %T", obj)
	}
	return args, args.Validate()
}
