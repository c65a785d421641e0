// Package ledger is the bookkeeping of energy, carbon and cost: what every consumer of every node used, booked once,
// priced when it was used, and never lost.
//
// An agent's batch becomes a [Booking]: the batch, who its consumers are ([Account]), and what a joule emitted and
// cost just then. [Ledger.Book] returns when the booking is safe on disk; only then is the batch acknowledged.
// Bookings are first written to a journal; [Ledger.Fold] moves them, in one transaction, into windows of five minutes
// for each node and into sums by account and node for each hour and day. Everything is a whole number and is booked
// twice, by consumer and by node, so that an audit finds what was lost or changed.
//
// Stores are in ledger/sqlite and ledger/postgres.
package ledger
