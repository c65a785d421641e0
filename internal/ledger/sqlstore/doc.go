// Package sqlstore implements the common part of the SQL stores of the ledger. It contains the tables and all SQL
// that both SQLite and PostgreSQL understand. Packages sqlite and postgres open a database and provide its
// [Dialect].
//
// # Data model
//
// A booking is a row of the journal (entry.go). It is written in one transaction with the sequence number of its
// stream and with its interval of the boot (book.go). A fold (fold.go) moves entries into windows and sums, and
// deletes them in the same transaction. Windows (pack.go) contain the usage of each consumer of a node in five
// minutes, as one packed row per node and window. Sums (sums.go) are stored by account and by node for each hour
// and day. Packed data is encoded and decoded by the same code (codec.go). The terms are the same from the journal
// to the windows. A posting is the usage of a consumer with the account that it is charged to, an amount contains
// its numbers, a sum adds up amounts, and a row of an answer shows sums.
//
// Bookings to be forwarded to a federation are added to the outbox in the same transaction (outbox.go).
//
// Names of nodes, accounts and consumers are stored in dictionaries (intern.go) and referenced by row ID. A query
// reads sums, or windows if sums lack the required detail (query.go, scan.go), and aggregates them in a table of
// groups (table.go). The sums of a day are cached in memory until the day changes (source.go).
//
// # Invariants and their tests
//
//   - After Book returned, a booking is durable and recorded exactly once, even after a crash: ledgertest.Kill in
//     TestKill of sqlite and postgres, TestServerKilled, TestFailingSyncs.
//   - A sequence number of a stream and an interval of a boot are recorded once, even with several processes:
//     Conformance ("numbers", "two at once"), TestTwoProcesses.
//   - Query results equal those of a store that retains all bookings and sums them up for each query:
//     TestAnswersAreThoseOfTheOracle.
//   - Hours equal the sum of their windows, days equal the sum of their hours, and accounts balance with nodes. Audit
//     verifies this and runs in every test of content. TestAuditFinds shows that it detects each kind of damage.
//   - Estimates do not count in a window with data of an agent, regardless of the order of arrival: Conformance
//     ("agentless", "long and agentless").
//   - A transfer deducts from a host the energy that its guests report in more detail. It only counts in hours with
//     bookings of the host: Conformance ("guests"), TestTransfersAreBounded.
//   - Each changed byte of a file is detected or does not affect any result: TestChangedBytes, TestTruncated. For this
//     purpose, rows that are not packed carry a checksum (crc.go). It remains invalid when more is added to the row:
//     TestAuditFindsChangedRows.
//   - A pod's window requires 28 bytes, 30 including overhead, so that 5,000 nodes of 100 containers write less than
//     6 GB per day: TestWindowsAreSmall, TestRowsAreSmall.
//   - Stores of each released version can be opened and are migrated: TestReleasedVersions, TestMigrations.
//   - Row IDs cached from another server, e.g. before a failover, are not used: TestRowsOfAnotherServer.
//
// # Failure modes
//
//   - If the disk is full or the database does not respond, Book returns [ledger.ErrReadOnly], no booking is
//     acknowledged, and queries still work. The connection is closed after any such error, so that the next transaction
//     starts from the state on disk: TestFullDisk, TestFailingWrites, TestReadOnly.
//   - The first error of a transaction is stored (operation in db.go). Further statements of the transaction are
//     no-ops, and it is rolled back: TestFailingWrites, TestFullDisk.
//   - If a row is damaged, operations that depend on it return [ledger.ErrDamaged], and others still work. A damaged
//     entry remains in the journal, and so do entries for a damaged window: TestWhatIsDamagedIsFoldedOnce. A damaged
//     sum is updated and remains marked as damaged.
//   - If a fold fails or takes long, no data is lost. AsOf of an answer contains the time up to which data is included.
//   - If a query is too large, it returns [ledger.ErrTooLarge] with a hint: TestTooLarge, TestSumsTooLarge.
package sqlstore
