package gpu

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// counted is what a counter of the root showed last, and how much of it was taken out.
type counted struct {
	reading energy.Reading
	out     energy.Microjoules
}

const dueAtMost = 2 * time.Minute

// TakeOut takes out of the readings of a root that is the whole machine what its boards used, which is booked apart.
// Readings that are left never fall within a run, and with what was booked apart they add up to what the root counted.
// Where boards have used more than the root did in two minutes, it does not feed them, and nothing is taken out any
// more: outside is true once.
func (b *Attribution) TakeOut(root []energy.Reading) (outside bool) {
	for i := range root {
		r := &root[i]
		if b.outside || r.Domain.Kind != energy.Wall {
			b.Due = 0
		}
		previous, known := b.root[r.Domain]
		now := counted{reading: *r}
		switch {
		case known && (r.Run != previous.reading.Run || r.Total < previous.reading.Total):
			b.Due = 0 // the root did not count it
		case known:
			rise, passed := r.Total-previous.reading.Total, r.At-previous.reading.At
			out := min(b.Due, rise)
			now.out = previous.out + out
			b.Due -= out
			if most := float64(rise) * dueAtMost.Seconds() / passed.Seconds(); passed > 0 && float64(b.Due) > most {
				b.outside, b.Due, outside = true, 0, true
			}
		}
		b.root[r.Domain] = now
		r.Total -= now.out
	}
	return outside
}
