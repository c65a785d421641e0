// Package release lets held work start: all of it before an uninstallation, or one Job now.
package release
