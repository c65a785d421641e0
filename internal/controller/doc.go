// Package controller keeps the status of GridZones, PowerProfiles and EnergyPolicies, counts
// what would have been held where nothing is touched yet, releases held Jobs that no scheduler released, takes the
// batches of agents, estimates what other nodes have used, and answers over HTTP.
//
// This package builds the parts and runs them; each part is a package below, and knows no more than it is given.
//
// # What it does where
//
// Every replica releases overdue Jobs and records the present carbon intensities and prices. Everything else is done by
// the holder of the Lease kubenergy-controller: it alone asks providers, writes statuses and counts.
//
// # What it refuses
//
// It never holds anything and never decides where work runs. It writes the status of our own objects, Events, one
// ConfigMap with the calls made to providers and the pauses that these asked for, and the patch that resumes a held
// Job. It has no finalizer, so that our objects can be deleted while it is away.
//
// # What becomes of others when it fails
//
// The scheduler keeps the last status that it has read until that is too old, and then decides without it. Holds end at
// their deadline without us.
package controller
