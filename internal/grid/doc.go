// Package grid describes the electricity that a site draws: zones, their signals over time, and exact integrals of a
// signal over any window.
//
// A [Series] is piecewise constant and immutable; the package fetches nothing and knows no clock.
package grid
