// Package cmdutil has what commands share: arguments, the terminal, the cluster, the controller, and progress.
package cmdutil
