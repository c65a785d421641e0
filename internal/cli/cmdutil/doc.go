// Package cmdutil provides helpers shared by commands for arguments, terminal, cluster, controller, and progress.
package cmdutil
