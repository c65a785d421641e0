// Package release implements the commands release and run-now, which release held Jobs and pods.
package release
