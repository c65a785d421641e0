package predict

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Quantile returns the time within which j finishes with probability p.
func (g *Groups) Quantile(j *sched.Job, p float64) time.Duration {
	below := &g.expect(j).adjusted
	p = min(1, max(0, p))
	for i := range binCount {
		if a, b := below[i], below[i+1]; b > a && b >= p {
			return fromSeconds(g.edges[i] + (g.edges[i+1]-g.edges[i])*max(0, p-a)/(b-a))
		}
	}
	return fromSeconds(g.edges[binCount])
}
