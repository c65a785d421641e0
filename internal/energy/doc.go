// Package energy holds the physical units of KubEnergy and the power models that turn utilisation into watts.
//
// The named types are the only carriers of units: no other package passes energy, power or mass as a bare number.
// The package reads no meters, knows no clock and refuses to guess: a number that was not measured says so through
// its [Quality].
package energy
