package controller

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/controller/access"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
)

// rates say what a joule of a node emitted and cost, by what was recorded of its grid.
type rates struct {
	view    func() *kube.View
	history *history
	nodes   *nodeBook
	hosts   *access.HostTokens
	now     func() time.Time

	mu      sync.Mutex
	sampled time.Time // when the history was last brought up to date
}

// of returns the means over [from, to).
func (r *rates) of(node string, from, to time.Time) ledger.Rates {
	v := r.view()
	r.sample(v)
	site, pue := r.site(v, node)
	if site == nil {
		return ledger.Rates{PUE: max(1, pue), Carbon: math.NaN(), Price: math.NaN()}
	}
	is := r.history.units(site.Name)
	b := ledger.Rates{
		Site: site.Name, PUE: max(1, pue), Carbon: math.NaN(), Signal: is.signal, Price: math.NaN(),
		Currency: is.currency,
	}
	if s, ok := r.history.carbon(site.Name, from, to); ok {
		b.Carbon = mean(s, from, to)
	} else {
		b.Carbon = mean(site.Carbon, from, to)
	}
	if s, ok := r.history.price(site.Name, from, to); ok {
		b.Price = mean(s, from, to)
	} else {
		b.Price = mean(site.Price, from, to)
	}
	return b
}

// sample has the history know the last minutes.
func (r *rates) sample(v *kube.View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.now(); now.Sub(r.sampled).Abs() >= time.Second {
		r.history.sample(v, now)
		r.sampled = now
	}
}

// site returns where a node stands, and the PUE of what feeds it. A machine that is no node of the cluster stands
// where its token's entry says, else at the default site.
func (r *rates) site(v *kube.View, node string) (*sched.Site, float64) {
	if n := r.nodes.node(node); n != nil {
		capacity := kube.Allocatable(n)
		is, _ := v.Node(n, capacity, capacity, 0)
		if is.Site.Name == "" {
			return nil, is.Facility()
		}
		return is.Site, is.Facility()
	}
	site := v.DefaultSite()
	if h, ok := r.hosts.Host(node); ok && h.Site != "" {
		site = v.Site(h.Site)
	}
	if site == nil {
		return nil, 1
	}
	return site, cmp.Or(site.PUE, 1)
}

// mean returns the mean of a signal over [from, to), NaN where not all of it is known. A series that is asked for time
// outside of it answers with its nearest value, which is what somebody guesses, not what was.
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
