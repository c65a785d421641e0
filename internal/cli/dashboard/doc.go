// Package dashboard implements the dashboard command for a live cluster or a results directory.
package dashboard
