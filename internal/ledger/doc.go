// Package ledger implements the accounting of energy, carbon emissions and cost. It records the usage of every
// consumer on every node exactly once and prices it with the rates at the time of use.
//
// A batch of an agent becomes a [Booking], which consists of the batch, the [Account] of each consumer, and the
// emissions and cost per joule at that time. [Ledger.Book] returns after the booking is durable, and only then is
// the batch acknowledged. Bookings are first written to a journal. [Ledger.Fold] moves them, in one transaction,
// into windows of five minutes per node and into sums by account and node for each hour and day. All amounts are
// integers. They are recorded both by consumer and by node, so that an audit detects missing or modified rows.
//
// The packages ledger/sqlite and ledger/postgres implement stores.
package ledger
