// Package dashboard serves the page of a live cluster, or of a folder with results.
package dashboard
