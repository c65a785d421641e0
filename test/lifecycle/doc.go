// Package lifecycle tests KubEnergy from its installation to its removal, as a user goes about it: with the real
// binaries, Helm and kubectl, and with the commands of the README and of deploy/hold/README.md as they stand there,
// on the lab's cluster.
package lifecycle
