package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// day is a day of UTC.
const day = 24 * time.Hour

// OwnerName is how owners are called in keys and filters: kind/name. Accounts without a kind of owner take their own,
// as vm/worker1; those without an owner have no name.
func (a *Account) OwnerName() string {
	switch {
	case a.Owner == "":
		return ""
	case a.OwnerKind == "":
		return a.shown().String() + "/" + a.Owner
	}
	return a.OwnerKind + "/" + a.Owner
}

// ParentName is what made the owner, or the owner where nothing did.
func (a *Account) ParentName() string {
	return cmp.Or(a.Parent, a.OwnerName())
}

// OwnCluster selects what was booked of the cluster that keeps the ledger, whatever its name is.
const OwnCluster = "."

// ClusterOf returns the cluster that the name of a node begins with: CLUSTER/NODE. "": it is of the own.
func ClusterOf(node string) string {
	if cluster, _, found := strings.Cut(node, "/"); found {
		return cluster
	}
	return ""
}

// shown is the kind that an account appears under: what is transferred is less energy of a virtual machine.
func (a *Account) shown() Kind {
	if a.Kind == Transfer {
		return VM
	}
	return a.Kind
}

// keys are the values of the dimensions that accounts have: not node, pod and those of time.
var keys = map[Dimension]func(*Account) string{
	ByKind:      func(a *Account) string { return a.shown().String() },
	ByNamespace: func(a *Account) string { return a.Namespace },
	ByOwner:     (*Account).OwnerName,
	ByParent:    (*Account).ParentName,
	ByTeam:      func(a *Account) string { return a.Team },
	ByStrategy:  func(a *Account) string { return a.Strategy },
	BySite:      func(a *Account) string { return a.Site },
	ByCluster:   func(a *Account) string { return ClusterOf(a.Host) },
}

// Key returns an account's value of a dimension, "" of one that accounts do not have; the own cluster has the query's
// name for it.
func (q *Query) Key(a *Account, d Dimension) (value string) {
	if fn := keys[d]; fn != nil {
		value = fn(a)
	}
	if d == ByCluster {
		value = cmp.Or(value, q.Own)
	}
	return value
}

// Selects reports whether a query's filters on accounts let an account pass. A query for virtual machines means what is
// transferred from them, too.
func (q *Query) Selects(a *Account) bool {
	kind := slices.Contains(q.Kinds, a.Kind) || slices.Contains(q.Kinds, a.shown())
	return (len(q.Kinds) == 0 || kind) &&
		passes(q.Namespaces, a.Namespace) && passes(q.Owners, a.OwnerName()) && passes(q.Teams, a.Team) &&
		passes(q.Strategies, a.Strategy) && passes(q.Sites, a.Site) &&
		(passes(q.Clusters, q.Key(a, ByCluster)) || passes(q.Clusters, cmp.Or(ClusterOf(a.Host), OwnCluster)))
}

func passes(filter []string, value string) bool {
	return len(filter) == 0 || slices.Contains(filter, value)
}

// SelectsPod reports whether a query's filter on pods lets a consumer pass: a name, namespace/name or UID.
func (q *Query) SelectsPod(c *Consumer) bool {
	if len(q.Pods) == 0 {
		return true
	}
	uid := c.UID()
	return slices.Contains(q.Pods, c.PodName()) || c.Pod != "" && slices.Contains(q.Pods, c.Pod) ||
		uid != "" && slices.Contains(q.Pods, uid)
}

// A Plan says what a query is answered from.
type Plan struct {
	From, To   time.Time // moved outwards
	Resolution time.Duration
	Windows    bool // nothing but windows will do
	Nodes      bool // it is about nodes as a whole: sums by node will do, and unmeasured time is told
}

var dimensions = []Dimension{
	ByKind, ByNamespace, ByOwner, ByParent, ByTeam, ByStrategy, BySite, ByCluster, ByNode, ByPod, ByUID, ByWindow,
	ByHour, ByDay,
}

// Dimensions are what can be grouped by.
func Dimensions() []Dimension { return slices.Clone(dimensions) }

// Plan says what a query can be answered from, or what is wrong with it.
func (q *Query) Plan() (Plan, error) {
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	var p Plan
	byNode := slices.Contains(q.GroupBy, ByNode) || len(q.Nodes) > 0
	p.Windows = slices.Contains(q.GroupBy, ByWindow) || q.ofPods() || byNode && q.ofAccounts()
	p.Nodes = !q.ofAccounts() && !q.ofPods()
	switch {
	case p.Windows:
		p.Resolution = WindowLength
	case slices.Contains(q.GroupBy, ByHour), !wholeDays(q.From, q.To):
		p.Resolution = time.Hour
	default:
		p.Resolution = day
	}
	p.From, p.To = outwards(q.From, q.To, p.Resolution)
	if p.Resolution == time.Hour && !slices.Contains(q.GroupBy, ByHour) && wholeDays(p.From, p.To) {
		p.Resolution = day
	}
	return p, nil
}

func wholeDays(from, to time.Time) bool {
	return from.Truncate(day).Equal(from) && to.Truncate(day).Equal(to)
}

// validate finds what makes no sense.
func (q *Query) validate() error {
	if !q.From.Before(q.To) {
		return fmt.Errorf("%w: from %v to %v is no time", ErrQuery, q.From.Format(time.RFC3339),
			q.To.Format(time.RFC3339))
	}
	if q.From.Year() < firstYear || q.To.Year() > lastYear {
		return fmt.Errorf("%w: only the years %d to %d are kept", ErrQuery, firstYear, lastYear)
	}
	if q.Limit < 0 {
		return fmt.Errorf("%w: a limit of %d rows", ErrQuery, q.Limit)
	}
	for i, d := range q.GroupBy {
		if !slices.Contains(dimensions, d) {
			return fmt.Errorf("%w: cannot group by %q: have %v", ErrQuery, d, dimensions)
		}
		if slices.Contains(q.GroupBy[:i], d) {
			return fmt.Errorf("%w: grouped by %s twice", ErrQuery, d)
		}
	}
	return nil
}

// The years that can be asked for: those that batches can be of.
const (
	firstYear = 1900
	lastYear  = 2200
)

// ofAccounts reports whether a query asks for what only accounts know.
func (q *Query) ofAccounts() bool {
	for _, d := range q.GroupBy {
		if keys[d] != nil && d != BySite && d != ByCluster {
			return true
		}
	}
	return len(q.Namespaces)+len(q.Kinds)+len(q.Owners)+len(q.Teams)+len(q.Strategies) > 0
}

// ofPods reports whether a query asks for what only windows know of consumers.
func (q *Query) ofPods() bool {
	return slices.Contains(q.GroupBy, ByPod) || slices.Contains(q.GroupBy, ByUID) || len(q.Pods) > 0
}

// outwards moves an interval outwards to whole steps of UTC.
func outwards(from, to time.Time, step time.Duration) (wholeFrom, wholeTo time.Time) {
	wholeFrom, wholeTo = from.UTC().Truncate(step), to.UTC().Truncate(step)
	if wholeTo.Before(to) {
		wholeTo = wholeTo.Add(step)
	}
	return wholeFrom, wholeTo
}

// The longest times that series are told of in windows and in hours.
const (
	seriesOfWindows = 2 * day
	hourlyUpTo      = 90 * day
)

// SeriesStep is the distance of the points of a query's series: finer ones would be too many.
func (q *Query) SeriesStep() time.Duration {
	switch length := q.To.Sub(q.From); {
	case length <= seriesOfWindows:
		return WindowLength
	case length <= hourlyUpTo:
		return time.Hour
	}
	return day
}
