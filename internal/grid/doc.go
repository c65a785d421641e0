// Package grid describes the electricity supply of a site: zones, their signals over time, and exact integrals of a
// signal over a time window.
//
// A [Series] is piecewise constant and immutable. The package does not fetch data and does not use a clock.
package grid
