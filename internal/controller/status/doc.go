// Package status fills the status of EnergyPolicies and PowerProfiles, and counts what would have been held in modes
// that hold nothing.
//
// Admission reads the namespaces in the status of the cluster's policy: what concerns them is written at once
// (TestNamespacesOfTheClusterPolicy, TestPolicyWrites), and no more of them than an object can hold
// (TestNamespacesAreBounded). Counts of a leader that is gone go on with the next one
// (TestShadowCountsSurviveTheLeader). A new Job or bare pod is decided on once (TestShadowCountsOnce); what cannot be
// is counted as lost (TestShadowSaysWhatItLost).
//
// Only the replica that leads writes. When a write conflicts, the cache is behind, and the object is looked at again
// (TestStatusWritesThatAreRefused).
package status
