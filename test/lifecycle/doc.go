// Package lifecycle tests KubEnergy from its installation to its removal, as a user goes about it: with the real
// binaries, Helm and kubectl, on the lab's cluster, and with the commands of deploy/hold/README.md as they stand there.
// And it follows the tutorials word by word.
package lifecycle
