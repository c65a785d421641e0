// Package controller runs the controller as it is installed: the released controller and scheduler, each with its own
// service account, on a real control plane whose simulated nodes are metered by agents.
package controller
