// Package predict predicts the run time and the power of a job from observations of previous jobs. No predictor has
// access to the run time or the power of an unfinished job, so predictions are as good as they would have been at
// that time.
//
// Each learner has a different purpose. [Survival] estimates, per wait class, the fraction of jobs that run longer
// than a given time, including the elapsed run times of unfinished jobs. It is used by strategies that shift jobs
// of unknown length. [Groups] estimates a distribution per owner and request class, and is the most accurate
// learner for single jobs if a trace contains owners. [Mean] estimates one number per shape of request, which is
// sufficient to serve short jobs first. [Siblings] refines it with jobs of the same shape that were submitted
// shortly before or after, because the tasks of a group are similar. [Power] predicts the power of jobs in
// simulations with learned power.
package predict
