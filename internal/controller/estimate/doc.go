// Package estimate accounts for the energy of nodes without an agent and for finished pods.
//
// [Estimator] estimates the energy of the pods on nodes without an agent. Every minute it reads the node's power
// meter at the wall. Without a meter, it uses a power model with the CPU usage from metrics-server or, if that is
// unavailable, the CPU requests of the pods. The energy is attributed to the pods with the same functions that the
// agents use, exactly to the microjoule. The resulting batches have the same format as those of agents, with the
// boot ID "central". The ledger ignores them for times that are covered by an agent's batch. The energy of a node
// without a meter and without a power profile is unknown and not estimated.
//
// [Workloads] adds up the recorded energy of each pod, from agents and from the estimator, and adds it to the
// metrics of the namespace when the pod has finished. Times without records are estimated with [PodPower] and
// marked as estimated.
//
// Invariants and the tests that verify them:
//
//   - Batches conserve energy to the microjoule when the root or the agent changes: TestConservation, TestWallAndModel,
//     TestAgentsTakeOver.
//   - The pods of a node are never charged for more than the energy of the node: TestPodsNeverPayMoreThanTheNodeDraws.
//   - Every pod and every point in time of a node are counted once: TestShortPodsCountOnce,
//     TestBookingsOfTheSameTimeCountOnce.
//   - The power of GPUs depends on their class of work everywhere: TestClassOfGPUWork.
//   - Unknown energy is counted as unaccounted: TestWhatIsNotAccounted, TestPodsThatEndWhileNoReplicaLeads.
//
// Only the leader runs an Estimator, and scheduling does not depend on it. If the ledger is unavailable, batches
// are merged and retried (TestBacklog). If metrics-server is unavailable, CPU requests are used.
package estimate
