package ledger

import "time"

// A Dimension is a property that sums can be grouped by.
type Dimension string

// The dimensions.
const (
	ByKind      Dimension = "kind"
	ByNamespace Dimension = "namespace"
	ByOwner     Dimension = "owner"  // kind/name
	ByParent    Dimension = "parent" // creator of the owner, or the owner itself
	ByTeam      Dimension = "team"
	ByStrategy  Dimension = "strategy"
	BySite      Dimension = "site"
	ByCluster   Dimension = "cluster" // cluster that forwarded the bookings
	ByNode      Dimension = "node"
	ByPod       Dimension = "pod"    // namespace/name; requires windows, which have a shorter retention
	ByUID       Dimension = "uid"    // UID of the pod; requires windows
	ByWindow    Dimension = "window" // five minutes; requires windows
	ByHour      Dimension = "hour"
	ByDay       Dimension = "day" // UTC
)

// A Query requests sums over [From, To). The resolution of stored data depends on its age. From and To are extended
// to whole windows, hours or days, and the answer contains the resulting interval.
type Query struct {
	From, To time.Time
	GroupBy  []Dimension
	// Filters. An empty list matches everything, otherwise any value of the list matches.
	Namespaces []string
	Kinds      []Kind
	Owners     []string // kind/name
	Pods       []string // names or UIDs
	Nodes      []string
	Teams      []string
	Strategies []string
	Sites      []string
	Clusters   []string
	// Own is the cluster name of rows that belong to the local cluster.
	Own string
	// Limit is the maximum number of rows. The remaining rows are summed in one row with a nil Key. 0 means no
	// limit.
	Limit int
}

// An Answer contains the sums of a query. Each joule counts once. The host's account of a virtual machine is
// reduced by the energy that the guest reports itself.
type Answer struct {
	From, To   time.Time
	AsOf       time.Time     // end of the newest booking at the time of the query
	Resolution time.Duration // resolution of the summed rows: 5 minutes, an hour or a day
	GroupBy    []Dimension
	Rows       []Row // sorted by key
	Total      Row
}

// A Row is a sum. Emissions of different signals and costs in different currencies are never added.
type Row struct {
	Key       []string // in the order of GroupBy; times in RFC 3339
	Amount             // Carbon and Cost are 0 if there is more than one signal or currency
	Emissions map[string]Micrograms
	Costs     map[string]Nanos
	First     time.Time // interval covered by the bookings
	Last      time.Time
}

// A Point is the mean power of an interval that starts at At.
type Point struct {
	At    time.Time `json:"at"`
	Watts float64   `json:"watts"`
}
