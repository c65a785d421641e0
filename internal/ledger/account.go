package ledger

import (
	"fmt"
	"iter"
	"slices"
	"strings"
)

// A Kind is the type of an account. The energy of all accounts of a node adds up to the energy counted by its
// meter.
type Kind uint8

// The kinds of accounts.
const (
	Workload Kind = iota // pods, by owner
	System               // the kernel, daemons, the kubelet, and consumers that were merged into one
	Idle                 // idle energy that is not shared among consumers
	Platform             // energy of the root domain outside of its subdomains
	Unknown              // measured energy that belongs to no consumer
	VM                   // a virtual machine as seen by its host
	Cgroup               // another control group, e.g. a Slurm step
	Foreign              // energy reported for pods that do not run on the node, charged to the node
	// Transfer deducts from a host the energy that its guest reports in more detail. Its amounts are negative and
	// only count if energy of the host is recorded for the same hour. Otherwise the guest counts separately.
	Transfer
	// Late is like Workload for usage that was recorded more than an hour after it occurred. Reports include both
	// kinds. Budgets do not act on late usage, because it cannot be checked against live data.
	Late
	Asleep  // like Idle, while the machine was asleep
	Booting // like Idle, while the machine was waking up

	lastKind = Booting
)

// Workloads returns the kinds of accounts that contain the usage of pods.
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

// MarshalText implements encoding.TextMarshaler and returns the name of k.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler and parses the name of a Kind.
func (k *Kind) UnmarshalText(text []byte) error {
	if i := slices.Index(kindNames[:], string(text)); i >= 0 {
		*k = Kind(i)
		return nil
	}
	return fmt.Errorf("unknown account kind %q: want one of %s", text, strings.Join(kindNames[:], ", "))
}

// An Account identifies the party that energy is charged to. Accounts are comparable, and equal values denote the
// same account.
type Account struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// kind of the top-level controller of a Workload, such as Job, Deployment, StatefulSet, DaemonSet or Pod
	OwnerKind string `json:"ownerKind,omitempty"`
	Owner     string `json:"owner,omitempty"`  // name of the owner; name or path of a VM or Cgroup
	Parent    string `json:"parent,omitempty"` // creator of the owner, such as the CronJob of a Job
	Team      string `json:"team,omitempty"`
	Strategy  string `json:"strategy,omitempty"` // placement strategy; empty if kube-scheduler placed it
	// For a node that is a virtual machine, the node that it runs on. For accounts of another cluster, the value is
	// prefixed with CLUSTER/, so that every sum contains its cluster.
	Host     string `json:"host,omitempty"`
	Site     string `json:"site,omitempty"`
	Signal   string `json:"signal,omitempty"`   // kind of carbon intensity: average or marginal
	Currency string `json:"currency,omitempty"` // currency of costs
}
