// Package meter asks the meters that stand in the network what nodes draw at the wall: Shelly plugs and clamps, Tasmota
// plugs, and the management controllers of servers by Redfish. A file says which meter is of which node.
//
// A meter gives readings of a counter, as agents' meters do, and the watts of now. Where an agent covers a node, the
// watts are shown and compared with what it says, and nothing is booked; where none does, package
// controller/estimate divides what the meter counted. docs/meters.md describes the file, docs/decisions/0014 what is
// booked.
//
// Each meter has a goroutine and one request at a time. A meter that does not answer is asked less and less, and
// holds up nobody: those that failed last time share a few places of their own.
package meter
