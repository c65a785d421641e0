// Package forecast expects the future of a signal of the grid: from its own recent past where there is one, else from the
// typical day of its zone.
//
// The models are the plain ones that any better one must beat. [Best] picks among them by how they would have done on the
// history at hand, and gives percentiles from the errors that it found there. It knows nothing of weather. The package
// fetches nothing and knows no clock.
package forecast
