// Package study runs comparison files. It reads the inputs, lists the trials, runs the trials missing from the
// results directory, and stores each one as soon as it is done. Package report aggregates them.
//
// The key of a trial is a hash of everything that it depends on: the content of the inputs, the settings, and the
// program itself. Results therefore do not depend on the number of workers, the order of the trials or their
// division into shards, and an edited input never matches an old result. The tests are those of the command
// "kubenergy compare".
package study
