// Package estimate is the controller's accounting of energy that no agent tells of, and of finished pods.
//
// [Estimator] estimates what the pods of a node used where no agent runs. Every minute it takes what the node's meter
// at the wall counted or, without one, what a power model says at the CPU usage that metrics-server reports, else at
// what pods request; and divides it among the pods with the very functions that agents use, exactly to the microjoule.
// What it makes are batches like those of agents, of the boot "central". The ledger counts them only where no agent's
// batch tells of the same time. Of a node without a meter and without a power profile nothing is known, and nothing is
// invented.
//
// [Workloads] add up what was booked of each pod, by agents and by the estimator alike, and count it by namespace when
// the pod has ended. There is no second physics: what no booking covers is [PodPower], marked as estimated.
//
// Invariants, and the tests that hold them:
//
//   - Batches conserve energy to the microjoule, over changes of the root and of agents: TestConservation,
//     TestWallAndModel, TestAgentsTakeOver.
//   - Pods together never pay for more than their node drew: TestPodsNeverPayMoreThanTheNodeDraws.
//   - A pod counts once, and an instant of a node counts once: TestShortPodsCountOnce,
//     TestBookingsOfTheSameTimeCountOnce.
//   - GPUs draw what their class of work says, everywhere: TestClassOfGPUWork.
//   - What cannot be known is counted as such: TestWhatIsNotAccounted, TestPodsThatEndWhileNoReplicaLeads.
//
// The replica that leads runs one Estimator; nothing that schedules depends on it. When booking fails, batches are
// folded and tried again (TestBacklog). When metrics-server fails, requests count.
package estimate
