// Package oracle computes the minimum emissions of a trace under perfect knowledge of all intensities and run
// times. The savings of a policy are measured relative to this minimum.
//
// If capacity is never exhausted and power is proportional to requests, jobs do not affect each other, and the
// exact minimum is found job by job: [NonPreemptive] and [Interruptible]. [Least] sums over the jobs of a scenario,
// and rejects scenarios if the sum would not be the optimum.
//
// If capacity is limited, [Fluid] is a lower bound for jobs that may be suspended. For jobs that must not be
// suspended, the problem is NP-hard: [Bound] is a lower bound, and [Best] searches for a schedule close to it.
//
// Costs are integrals of the intensity over the run time of a job, in value·seconds. Multiplied by power in watts
// and divided by the joules of a kilowatt-hour, they are grams.
package oracle
