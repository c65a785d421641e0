package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// day is a day in UTC.
const day = 24 * time.Hour

// OwnerName returns the owner as kind/name, as used in keys and filters. If the account has no kind of owner, its
// own kind is used, e.g. vm/worker1. It returns "" if the account has no owner.
func (a *Account) OwnerName() string {
	switch {
	case a.Owner == "":
		return ""
	case a.OwnerKind == "":
		return a.shown().String() + "/" + a.Owner
	}
	return a.OwnerKind + "/" + a.Owner
}

// ParentName returns the creator of the owner, or the owner if it has no creator.
func (a *Account) ParentName() string {
	return cmp.Or(a.Parent, a.OwnerName())
}

// OwnCluster selects the accounts of the local cluster, regardless of its name.
const OwnCluster = "."

// ClusterOf returns the cluster of a node name of the form CLUSTER/NODE, or "" for nodes of the local cluster.
func ClusterOf(node string) string {
	if cluster, _, found := strings.Cut(node, "/"); found {
		return cluster
	}
	return ""
}

// shown returns the kind that an account is reported under. Transfers reduce the energy of virtual machines.
func (a *Account) shown() Kind {
	if a.Kind == Transfer {
		return VM
	}
	return a.Kind
}

// keys maps the dimensions of accounts to their values. Node, pod and time are not dimensions of accounts.
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

// Key returns the account's value of dimension d, or "" if accounts do not have that dimension. For the local
// cluster it returns q.Own.
func (q *Query) Key(a *Account, d Dimension) (value string) {
	if fn := keys[d]; fn != nil {
		value = fn(a)
	}
	if d == ByCluster {
		value = cmp.Or(value, q.Own)
	}
	return value
}

// Selects reports whether the account matches the query's filters on accounts. A filter for virtual machines
// includes transfers.
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

// SelectsPod reports whether the consumer matches the query's filter on pods. A pod is identified by name,
// namespace/name or UID.
func (q *Query) SelectsPod(c *Consumer) bool {
	if len(q.Pods) == 0 {
		return true
	}
	uid := c.UID()
	return slices.Contains(q.Pods, c.PodName()) || c.Pod != "" && slices.Contains(q.Pods, c.Pod) ||
		uid != "" && slices.Contains(q.Pods, uid)
}

// A Plan describes the rows that a query is computed from.
type Plan struct {
	From, To   time.Time // extended to whole steps
	Resolution time.Duration
	Windows    bool // only windows contain the requested data
	Nodes      bool // the query is about whole nodes, so sums by node suffice and unmeasured time is reported
	// dimensions and filters of the query; ByPod includes UIDs
	ByHour, ByNode, ByPod bool
}

var dimensions = []Dimension{
	ByKind, ByNamespace, ByOwner, ByParent, ByTeam, ByStrategy, BySite, ByCluster, ByNode, ByPod, ByUID, ByWindow,
	ByHour, ByDay,
}

// Dimensions returns the dimensions that queries can group by.
func Dimensions() []Dimension { return slices.Clone(dimensions) }

// Plan returns the plan of the query, or an error if the query is invalid.
func (q *Query) Plan() (Plan, error) {
	if err := q.validate(); err != nil {
		return Plan{}, err
	}
	p := Plan{
		ByHour: slices.Contains(q.GroupBy, ByHour), ByNode: slices.Contains(q.GroupBy, ByNode) || len(q.Nodes) > 0,
		ByPod: slices.Contains(q.GroupBy, ByPod) || slices.Contains(q.GroupBy, ByUID) || len(q.Pods) > 0,
	}
	p.Windows = slices.Contains(q.GroupBy, ByWindow) || p.ByPod || p.ByNode && q.ofAccounts()
	p.Nodes = !q.ofAccounts() && !p.ByPod
	switch {
	case p.Windows:
		p.Resolution = WindowLength
	case p.ByHour, !wholeDays(q.From, q.To):
		p.Resolution = time.Hour
	default:
		p.Resolution = day
	}
	p.From, p.To = q.From.UTC().Truncate(p.Resolution), q.To.UTC().Add(p.Resolution-1).Truncate(p.Resolution)
	if p.Resolution == time.Hour && !p.ByHour && wholeDays(p.From, p.To) {
		p.Resolution = day
	}
	return p, nil
}

func wholeDays(from, to time.Time) bool {
	return from.Truncate(day).Equal(from) && to.Truncate(day).Equal(to)
}

// validate returns an error if the query is invalid.
func (q *Query) validate() error {
	if !q.From.Before(q.To) {
		return fmt.Errorf("%w: the start %v must be before the end %v", ErrQuery, q.From.Format(time.RFC3339),
			q.To.Format(time.RFC3339))
	}
	if q.From.Year() < firstYear || q.To.Year() > lastYear {
		return fmt.Errorf("%w: the interval must be within the years %d to %d", ErrQuery, firstYear, lastYear)
	}
	if q.Limit < 0 {
		return fmt.Errorf("%w: the row limit %d is negative", ErrQuery, q.Limit)
	}
	for i, d := range q.GroupBy {
		if !slices.Contains(dimensions, d) {
			return fmt.Errorf("%w: unknown dimension %q: want one of %s", ErrQuery, d, strings.Join(
				sliceutil.Map(dimensions, func(d Dimension) string { return string(d) }), ", "))
		}
		if slices.Contains(q.GroupBy[:i], d) {
			return fmt.Errorf("%w: duplicate dimension %s", ErrQuery, d)
		}
	}
	return nil
}

// Range of years that queries accept, which is the range that batches can have.
const (
	firstYear = 1900
	lastYear  = 2200
)

// ofAccounts reports whether the query requires dimensions that only accounts have.
func (q *Query) ofAccounts() bool {
	detailed := func(d Dimension) bool { return keys[d] != nil && d != BySite && d != ByCluster }
	return len(q.Namespaces)+len(q.Kinds)+len(q.Owners)+len(q.Teams)+len(q.Strategies) > 0 ||
		slices.ContainsFunc(q.GroupBy, detailed)
}

// Maximum lengths of series in windows and in hours.
const (
	seriesOfWindows = 2 * day
	hourlyUpTo      = 90 * day
)

// SeriesStep returns the step between points of the query's series. It grows with the length of the interval to
// limit the number of points.
func (q *Query) SeriesStep() time.Duration {
	switch length := q.To.Sub(q.From); {
	case length <= seriesOfWindows:
		return WindowLength
	case length <= hourlyUpTo:
		return time.Hour
	}
	return day
}
