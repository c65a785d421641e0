// Package live provides the current power of nodes to the scheduler. A [Feed] requests it from the controller every
// 15 seconds and stores the response in memory, so that a scheduling cycle never waits for it. The feed also keeps
// track of the expected power of pods that have been bound but are not included in a measurement yet.
//
// Responses are validated. Invalid values and values older than 45 seconds are ignored. Any failure of the network,
// the credentials or the controller results in missing live power. Strategies then use the power profiles of the
// hardware.
package live
