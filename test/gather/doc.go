// Package gather tests joint plans for pods of Jobs that arrive together, on a small cluster with a complete control
// plane.
package gather
