// Package predict says what to expect of a job, from what was seen of others that came before: how long it runs, and
// what it draws. Nothing in it ever sees the length or the power of a job that has not ended: predictions are as good
// as they would have been at the time.
//
// Each learner has one use. [Survival] estimates, for every wait class, the share of jobs that runs for longer than a
// time, with those that still run counted for what they have run: the strategies that shift jobs of unknown length go
// by it. [Groups] has a distribution for each owner and request class, and is the most accurate for single jobs where
// a trace names owners. [Mean] estimates one number for every shape of request, which is enough to serve short jobs
// first; [Siblings] refines that by jobs of the same shape that were submitted shortly before or after, since the
// tasks of a group are alike. [Power] is what the simulator tells strategies of the power of jobs, where a scenario
// wants it learnt.
package predict
