package slurm

// Grace is for tests.
const Grace = grace
