// Package lifecycle tests the complete life cycle of KubEnergy from installation to removal from the perspective of
// a user. It uses the real binaries, Helm and kubectl on the lab's cluster and runs the commands in
// deploy/hold/README.md. It also follows the tutorials step by step.
package lifecycle
