// Package budget keeps to EnergyBudgets and to the budgets that annotations give to single workloads: every few
// seconds it asks the ledger what was used and does what is to be done at that share, once.
//
// An action is written down in the budget's status, or on the workload, before it is done, with the version of the
// object that was seen. Of several controllers only one can write, so only one acts. What was begun and not done,
// because its controller died, is taken over after a while; therefore everything that is done can be done twice
// without another effect: events have names that follow from what they tell, webhooks carry a key, Jobs are suspended
// if they run.
//
// Suspending comes first, and waits for nothing else. Whatever else is to be done is an errand, beside the looking,
// so that no budget waits for an action of another one.
//
// What is not known is not done: while the ledger cannot be asked, nothing new is begun, and what was suspended stays
// so until its period ends, which is written on it. Emissions and costs that nobody knows are not taken for none: the
// status says of which share of the energy that is so.
package budget
