package ledger

import (
	"fmt"
	"iter"
	"slices"
)

// A Kind says what an account is for. Over all accounts of a node the energy is what its meter counted.
type Kind uint8

// The kinds of accounts.
const (
	Workload Kind = iota // pods, by their owner
	System               // the kernel, daemons, the kubelet; consumers that had to be folded into one
	Idle                 // drawn anyway, and not shared
	Platform             // of the root domain outside of its parts
	Unknown              // measured, and of no consumer
	VM                   // a virtual machine, as its host sees it
	Cgroup               // another control group, as a Slurm step
	Foreign              // what a node reported for pods that do not run there: it is booked as the node's own
	// Transfer takes from a host what its guest tells in more detail: it is negative, and counts if the host's energy
	// of that hour is booked. If it is not, the guest counts by itself.
	Transfer
	// Late is of pods, as Workload, but was booked more than an hour after it was used. Reports count both. A budget
	// does not act on it: what comes so late cannot be checked against anything live.
	Late
	Asleep  // as Idle, of a machine that slept
	Booting // as Idle, of a machine that woke

	lastKind = Booting
)

// Workloads are the kinds of what pods used.
func Workloads() []Kind { return []Kind{Workload, Late} }

// Kinds yields all kinds of accounts.
func Kinds() iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for k := Workload; k <= lastKind && yield(k); k++ {
		}
	}
}

var kindNames = [...]string{
	"workload", "system", "idle", "platform", "unknown", "vm", "cgroup", "foreign", "transfer", "late",
	"asleep", "booting",
}

// String returns the name used in JSON and tables.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText lets a Kind appear by name in JSON.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name of a Kind.
func (k *Kind) UnmarshalText(text []byte) error {
	if i := slices.Index(kindNames[:], string(text)); i >= 0 {
		*k = Kind(i)
		return nil
	}
	return fmt.Errorf("unknown kind of account %q: have %v", text, kindNames)
}

// An Account is what energy is charged to. It is a value: accounts that are equal are the same.
type Account struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// of Workload: Job, Deployment, StatefulSet, DaemonSet, Pod, …; the controller nearest to people
	OwnerKind string `json:"ownerKind,omitempty"`
	Owner     string `json:"owner,omitempty"`  // its name; of VM and Cgroup: the name or path
	Parent    string `json:"parent,omitempty"` // what made the owner, as the CronJob of a Job
	Team      string `json:"team,omitempty"`
	Strategy  string `json:"strategy,omitempty"` // that placed it; "": kube-scheduler alone
	// of accounts of a virtual machine that is a node: the node that it runs on; of another cluster's: CLUSTER/ before
	// that, so that every sum knows its cluster
	Host     string `json:"host,omitempty"`
	Site     string `json:"site,omitempty"`
	Signal   string `json:"signal,omitempty"`   // kind of the carbon intensity: average or marginal
	Currency string `json:"currency,omitempty"` // of costs
}
