// Package standalone implements the subset of the Kubernetes API that kubenergy-controller and the kubenergy
// commands use, for systems without a cluster. KubEnergy objects are read from a directory of YAML files, and
// objects written by programs are stored in a single file. Therefore the controller is the same program with and
// without Kubernetes.
//
// A [Server] is not a general-purpose API server. It has a single token with full access and a fixed table of
// kinds. It validates nothing but the existence of fields, and implements neither admission nor garbage collection.
//
// Invariants and their tests:
//
//   - A watch sends every change in order, or an error if it cannot: TestWatch.
//   - A change is written to disk before it is published. If the write fails, the change is neither stored nor
//     published. Statuses and objects of [Server.Replace] are published first: TestFailedWritesChangeNothing,
//     TestUncertainWritesAreUndone.
//   - An unreadable state file is not overwritten, and requests for Jobs are rejected: TestTornStateIsKept.
//   - Files take precedence over the stored state, and statuses survive a restart: TestFilesAndStatuses.
//   - If a file is invalid, its previous content remains in effect and the error is logged: TestBrokenFile.
//   - Requests without the token are rejected: TestToken.
package standalone
