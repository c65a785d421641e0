package zone

import (
	"cmp"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/signal"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Rates computes the emissions and the cost of a joule on a node from the recorded signals of its zone. It is safe
// for concurrent use.
type Rates struct {
	View    func() *kube.View
	History *History
	Node    func(name string) *v1.Node // returns nil if the cluster has no node of that name
	Hosts   *access.HostTokens         // machines outside the cluster; nil if there are none
	Members access.Members             // clusters that forward their bookings
}

// Of returns the mean rates of a node over [from, to). Unknown rates are NaN.
func (r *Rates) Of(node string, from, to time.Time) ledger.Rates {
	v := r.View()
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

// site returns the site of a node and the PUE of its facility. A machine outside the cluster belongs to the site in
// the entry of its token, and otherwise to the default site.
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

// mean returns the mean of a signal over [from, to), or NaN unless the signal is known for the whole interval.
// Outside its range, a series would return its nearest value, which is only a guess.
func mean(s grid.Signal, from, to time.Time) float64 {
	if s.Series == nil {
		return math.NaN()
	}
	if !to.After(from) {
		to = from.Add(1) // the shortest interval
	}
	old := !s.AsOf.IsZero() && s.MaxAge > 0 && to.Sub(s.AsOf) > s.MaxAge
	if old || !s.Series.Covers(from, to) {
		return math.NaN()
	}
	return s.Series.Mean(from, to)
}
