// Package live tells the scheduler what nodes draw just now. A [Feed] asks the controller for it every 15 seconds
// and keeps the answer in memory; a scheduling cycle never waits for it. The feed also remembers the watts of pods
// that were bound and that no reading tells of yet.
//
// Answers are not believed blindly: values that make no sense or are older than 45 seconds count as unknown. Whatever
// goes wrong, be it the network, the credentials or the answer, ends in live watts being unknown. Strategies then
// decide by what is known of the hardware.
package live
