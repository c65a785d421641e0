package intake

import (
	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// idleKinds are the kinds that energy without a consumer is charged to, by the state of a machine that does no work.
var idleKinds = map[string]ledger.Kind{
	v1alpha1.PowerAsleep: ledger.Asleep, v1alpha1.PowerBooting: ledger.Booting,
}

// price returns a booking with its rates, and with the kind that energy without a consumer is charged to. Members
// report this kind themselves.
func (h *Handler) price(b ledger.Booking) ledger.Booking {
	b.Rates = h.c.Rates(b.Batch.Stream.Node, b.Batch.Start, b.Batch.End)
	if h.c.Power != nil && b.Power == 0 {
		b.Power = idleKinds[h.c.Power(b.Batch.Stream.Node)]
	}
	return b
}
