package zone

import (
	"cmp"
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Rates say what a joule of a node emitted and cost, by what was recorded of its grid.
type Rates struct {
	View    func() *kube.View
	History *History
	Node    func(name string) *v1.Node // of the cluster; nil: there is none of that name
	Hosts   *access.HostTokens         // nil: there is no machine outside the cluster
	Members access.Members             // clusters that forward what they book
	Now     func() time.Time

	mu      sync.Mutex
	sampled time.Time // when the history was last brought up to date
}

// Of returns the means over [from, to).
func (r *Rates) Of(node string, from, to time.Time) ledger.Rates {
	v := r.View()
	r.sample(v)
	site, pue := r.site(v, node)
	if site == nil {
		return ledger.Rates{PUE: max(1, pue), Carbon: math.NaN(), Price: math.NaN()}
	}
	current := v.Units(site.Name)
	carbon, price := r.History.during(site.Name, current, from, to)
	if carbon.Series == nil && !current.Behind {
		carbon = site.Carbon
	}
	if price.Series == nil && !current.Behind {
		price = site.Price
	}
	return ledger.Rates{
		Site: site.Name, PUE: max(1, pue), Carbon: mean(carbon, from, to),
		Signal: signal.Kind(current.Marginal), Price: mean(price, from, to), Currency: cmp.Or(current.Currency,
			"unknown"),
	}
}

// sample has the history know the last minutes.
func (r *Rates) sample(v *kube.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.Now(); now.Sub(r.sampled).Abs() >= time.Second {
		r.History.Sample(v, now)
		r.sampled = now
	}
}

// site returns where a node stands, and the PUE of what feeds it. A machine that is no node of the cluster stands
// where its token's entry says, else at the default site.
func (r *Rates) site(v *kube.View, node string) (*sched.Site, float64) {
	if n := r.Node(node); n != nil {
		capacity := kube.Allocatable(n)
		current, _ := v.Node(n, capacity, capacity, 0)
		if current.Site.Name == "" {
			return nil, current.Facility()
		}
		return current.Site, current.Facility()
	}
	m := r.Members[ledger.ClusterOf(node)]
	zone, site := m.Zone, v.DefaultSite()
	if h, ok := r.Hosts.Host(node); ok {
		zone = h.Site
	}
	if zone != "" {
		site = v.Site(zone)
	}
	if site == nil {
		return nil, cmp.Or(m.PUE, 1)
	}
	return site, cmp.Or(m.PUE, site.PUE, 1)
}

// mean returns the mean of a signal over [from, to), NaN where not all of it is known. A series that is asked for time
// outside of it answers with its nearest value, which is a guess.
func mean(s grid.Signal, from, to time.Time) float64 {
	if s.Series == nil {
		return math.NaN()
	}
	if !to.After(from) {
		to = from.Add(1) // an instant
	}
	old := !s.AsOf.IsZero() && s.MaxAge > 0 && to.Sub(s.AsOf) > s.MaxAge
	if old || !s.Series.Covers(from, to) {
		return math.NaN()
	}
	return s.Series.Mean(from, to)
}
