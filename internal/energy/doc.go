// Package energy defines the physical units of KubEnergy, the power models that convert utilisation into watts, and
// the attribution of a node's energy to its consumers.
//
// Energy, power and mass are always passed between packages as these named types, never as bare numbers. The
// package does not read meters or clocks. Every number has a [Quality] that distinguishes measured values from
// estimates.
package energy
