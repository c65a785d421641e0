// Package explain implements the command explain, which shows why a pod or Job waits or where it was placed, and
// the command held, which lists held Jobs and pods.
package explain
