// Package controller tests the controller as it is installed. The released controller and scheduler run with their
// own service accounts on a real control plane, and agents meter the simulated nodes.
package controller
