package gpu

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// counted is the last reading of a root counter and the energy subtracted from it so far.
type counted struct {
	reading energy.Reading
	out     energy.Microjoules
}

const dueAtMost = 2 * time.Minute

// TakeOut subtracts the energy of GPUs, which is recorded separately, from the readings of a root that covers the
// whole machine. The resulting readings never decrease within a run, and together with the separately recorded
// energy they add up to the root's counter. If the GPUs have used more energy than the root counted in two minutes,
// the root does not include the GPUs, and no energy is subtracted from then on. TakeOut returns true once when it
// detects this.
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
			b.Due = 0 // not counted by the root
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
