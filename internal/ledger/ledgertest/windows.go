package ledgertest

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Window contains the postings of a booking for five minutes of its node.
type Window struct {
	ledger.Window
	Unmeasured time.Duration
	Postings   []ledger.Posting
}

// Windows returns the postings of b by window, including prices and the transfer from a host. The sums over all
// windows equal those of b exactly. In each window the transfer is the negated sum of the other postings.
func Windows(b *ledger.Booking) []Window {
	var all []ledger.Posting
	for p := range b.Postings() {
		b.Rates.Charge(&p.Amount, b.Estimated())
		all = append(all, *p)
	}
	transfer, guest := b.Transfer()
	whole := ledger.Amount{Unmeasured: b.Batch.Unmeasured}
	var windows []Window
	for cut := range (ledger.Window{First: b.Batch.Start, Last: b.Batch.End}).Cut(len(all)) {
		w := Window{Window: cut, Unmeasured: cut.Part(&whole).Unmeasured}
		var sum ledger.Amount
		for i := range all {
			part := w.Part(&all[i].Amount)
			sum.Add(&part)
			if part != (ledger.Amount{}) {
				w.Postings = append(w.Postings, ledger.Posting{Consumer: all[i].Consumer, Amount: part})
			}
		}
		if guest && sum != (ledger.Amount{}) {
			w.Postings = append(w.Postings, ledger.Posting{Consumer: transfer, Amount: sum.Negative()})
		}
		windows = append(windows, w)
	}
	return windows
}
