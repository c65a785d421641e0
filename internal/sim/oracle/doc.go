// Package oracle computes how little carbon a trace could have caused under perfect knowledge: of the whole series of
// intensities, and how long each job runs. What a policy saves is measured against that.
//
// Where capacity never binds and power is proportional to what jobs ask for, jobs do not touch each other, and the
// least is found exactly, job by job: [NonPreemptive] and [Interruptible]. [Least] adds the jobs of a scenario up, and
// refuses scenarios for which the sum would be no optimum.
//
// Where capacity binds, [Fluid] is never above what jobs that are suspended emit. What jobs emit that are not
// is NP-hard: [Bound] is never above the least of it, and [Best] looks for a schedule that is near.
//
// Costs are integrals of the intensity over the time that a job runs, in value·seconds; times a power in watts, and
// divided by the joules of a kilowatt-hour, they are grams.
package oracle
