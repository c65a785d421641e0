// Package standalone answers as much of Kubernetes' API as kubenergy-controller and the commands of kubenergy ask for,
// where there is no cluster: our kinds come from a folder of YAML files, what programs write is kept in one file beside
// them. So the controller is the same program with and without Kubernetes.
//
// A [Server] is no API server for others: it has one token, which may do everything; it knows the kinds of its table
// and no other; it validates nothing but that fields exist; it has no admission and no garbage collection.
//
// Invariants, and the tests that hold them:
//
//   - A watch tells of every change, in order, or says that it cannot: TestWatch.
//   - A change is written to disk before it is published; after an error it is neither here nor there. Statuses and
//     objects of [Server.Replace] are published first: TestFailedWritesChangeNothing, TestUncertainWritesAreUndone.
//   - State that cannot be read is not written over, and Jobs are refused: TestTornStateIsKept.
//   - What stands in a file wins over what was kept; statuses survive a restart: TestFilesAndStatuses.
//   - A file that makes no sense leaves what it said before, and is named in the log: TestBrokenFile.
//   - Without the token nothing is answered: TestToken.
package standalone
