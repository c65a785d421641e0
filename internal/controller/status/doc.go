// Package status maintains the status of EnergyPolicies and PowerProfiles, and counts the work that would have been
// held in modes that do not hold work.
//
// An admission policy reads the namespaces in the status of the cluster's policy. Therefore, changes that affect it
// are written immediately (TestNamespacesOfTheClusterPolicy, TestPolicyWrites), and the number of namespaces is
// limited so that the object does not become too large (TestNamespacesAreBounded). Counts survive a change of the
// leader (TestShadowCountsSurviveTheLeader). Each new Job or bare pod is counted once (TestShadowCountsOnce), and
// work that could not be processed is counted as lost (TestShadowSaysWhatItLost).
//
// Only the leader writes. A conflict means that the cache is outdated, and the object is reconciled again
// (TestStatusWritesThatAreRefused).
package status
