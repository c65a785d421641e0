// Package sqlstore is what the stores of the ledger have in common: their tables, and everything they do in SQL that
// SQLite and PostgreSQL both understand. Packages sqlite and postgres open a database and hand over its [Dialect].
//
// # What is written
//
// A booking is a row of the journal (entry.go). It is written in one transaction with the number that it brings its
// stream to and with the time of the boot that it is about (book.go). A fold (fold.go) moves entries, in one
// transaction that also deletes them, into windows (pack.go: what each consumer of a node used in five minutes, one
// packed row for a node and window) and into sums (sums.go: by account and by node, for each hour and each day). The
// same code writes and reads what is packed (codec.go). One word is kept from the journal to the windows: a posting is
// what a consumer used and the account that it is charged to, its amount is the numbers, a sum adds up amounts, and a
// row of an answer shows sums.
//
// What is to be forwarded to a federation is a row of the outbox too, in the same transaction (outbox.go).
//
// Names of nodes, accounts and consumers are rows of dictionaries (intern.go), and numbers everywhere else. A query
// reads sums, or windows where sums know too little (query.go, scan.go), and adds them up in a table of groups
// (table.go). Sums of a day stay in memory until the day changes (source.go).
//
// # Invariants, and the tests that hold them
//
//   - What Book returned is on disk, once, whatever is killed: ledgertest.Kill in TestKill of sqlite and postgres,
//     TestServerKilled, TestFailingSyncs.
//   - A number of a stream, and a moment of a boot, are booked once, also by several processes: Conformance ("numbers",
//     "two at once"), TestTwoProcesses.
//   - Answers are those of a store that keeps everything and adds it up when it is asked:
//     TestAnswersAreThoseOfTheOracle.
//   - Sums of hours are those of their windows, sums of days those of their hours, and accounts hold what nodes hold:
//     Audit, which every test of content runs; TestAuditFinds shows that it finds each kind of damage.
//   - No estimate stands in a window that an agent told of, in whatever order they come: Conformance ("agentless",
//     "long and agentless"), TestReachesOfVersion1.
//   - A transfer takes from a host what its guests tell in more detail, and counts only in hours in which the host is
//     booked: Conformance ("guests"), TestTransfersAreBounded.
//   - Each changed byte of a file is found, or changes nothing that is told: TestChangedBytes, TestTruncated. For that,
//     rows that are not packed carry a sum of their bytes (crc.go), and it stays wrong when more is added to the row:
//     TestAuditFindsChangedRows.
//   - A pod's window takes 28 bytes, 30 with all that is around it, so 5,000 nodes of 100 containers write less than 6
//     GB a day: TestWindowsAreSmall, TestRowsAreSmall.
//   - Stores of each released version are read and brought to the current one: TestReleasedVersions, TestMigrations.
//   - Rows of another server, as after a failover, are not taken for those that are remembered:
//     TestRowsOfAnotherServer.
//
// # What fails how
//
//   - The disk is full or the database does not answer: Book fails with [ledger.ErrReadOnly], nothing is acknowledged,
//     queries go on. The connection is closed after any such error, so that the next transaction begins from what is on
//     disk: TestFullDisk, TestFailingWrites, TestReadOnly.
//   - A row is damaged: what depends on it fails with [ledger.ErrDamaged], and the rest goes on. An entry of the
//     journal stays where it is, and so does what belongs to a damaged window: TestWhatIsDamagedIsFoldedOnce. A damaged
//     sum is added to and stays damaged.
//   - A fold fails or takes long: nothing is lost, answers tell by AsOf how far they reach.
//   - A query is too large: [ledger.ErrTooLarge] says what to narrow: TestTooLarge, TestSumsTooLarge.
package sqlstore
