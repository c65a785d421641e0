// Package study carries out comparison files: it reads what a file names, lists the trials that it asks for, runs those
// that a folder of results does not hold yet, and keeps each one as soon as it is done. Package report sums them up.
//
// A trial is named by a hash of all that it depends on: the inputs by their content, the settings and the program
// itself. Results therefore do not depend on the number of workers, on the order of the trials or on how they are
// divided into shards, and an edited input never finds the result of the old one. The tests are those of the command
// "kubenergy compare".
package study
