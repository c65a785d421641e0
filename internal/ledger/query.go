package ledger

import (
	"time"
)

// A Dimension is something to group by.
type Dimension string

// The dimensions.
const (
	ByKind      Dimension = "kind"
	ByNamespace Dimension = "namespace"
	ByOwner     Dimension = "owner"  // kind/name
	ByParent    Dimension = "parent" // what made the owner, else the owner
	ByTeam      Dimension = "team"
	ByStrategy  Dimension = "strategy"
	BySite      Dimension = "site"
	ByCluster   Dimension = "cluster" // that forwarded it
	ByNode      Dimension = "node"
	ByPod       Dimension = "pod"    // namespace/name; needs windows, which are kept for a shorter time
	ByUID       Dimension = "uid"    // of the pod; the same
	ByWindow    Dimension = "window" // five minutes; needs windows
	ByHour      Dimension = "hour"
	ByDay       Dimension = "day" // UTC
)

// A Query asks for sums over [From, To). What is kept is as fine as its age allows: From and To are moved outwards to
// whole windows, hours or days, and the answer says to what.
type Query struct {
	From, To time.Time
	GroupBy  []Dimension
	// Filters; empty: all. Within a list any of its values will do.
	Namespaces []string
	Kinds      []Kind
	Owners     []string // kind/name
	Pods       []string // names or UIDs
	Nodes      []string
	Teams      []string
	Strategies []string
	Sites      []string
	Clusters   []string
	// Own is what the rows of no other cluster have as their cluster.
	Own string
	// Limit is how many rows there may be; the rest is summed in one row whose Key is nil. 0: as many as there are.
	Limit int
}

// An Answer holds sums. Each joule counts once: where a guest tells of what its host has counted, the host's account
// of the virtual machine is less by that.
type Answer struct {
	From, To   time.Time
	AsOf       time.Time     // end of what was booked when it was asked
	Resolution time.Duration // of what was summed: 5 minutes, an hour or a day
	GroupBy    []Dimension
	Rows       []Row // sorted by key
	Total      Row
}

// A Row is a sum. Emissions by different signals, and costs in different currencies, are never added.
type Row struct {
	Key       []string // in the order of GroupBy; instants in RFC 3339
	Amount             // Carbon and Cost are those of the only signal and currency, else 0
	Emissions map[string]Micrograms
	Costs     map[string]Nanos
	First     time.Time // of what was booked
	Last      time.Time
}

// A Point is the mean power over some time.
type Point struct {
	At    time.Time `json:"at"`
	Watts float64   `json:"watts"`
}
