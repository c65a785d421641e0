package energy

import (
	"time"
)

// DomainKind says what part of a node a meter covers.
type DomainKind uint8

// The kinds of domains. RAPL's overlap: psys covers packages, a package covers its core and uncore domains.
const (
	Wall    DomainKind = iota // the whole machine, at its plug or in its power supply
	Psys                      // the whole board, as RAPL sees it
	Package                   // a CPU socket
	Core                      // the cores of a package
	Uncore                    // the rest of a package
	DRAM                      // the memory of a socket
	Guest                     // a virtual machine, as its host attributes it
	Model                     // the whole machine, as a power model estimates it
	GPU                       // a board with a GPU
)

var domainNames = []string{"wall", "psys", "package", "core", "uncore", "dram", "guest", "model", "gpu"}

// String returns the name used in labels and JSON.
func (k DomainKind) String() string { return nameOf("domain", domainNames, k) }

// MarshalText lets a DomainKind appear by name in JSON.
func (k DomainKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the name of a DomainKind.
func (k *DomainKind) UnmarshalText(text []byte) error { return named("domain", domainNames, text, k) }

// A Domain is the part of a node that one counter covers.
type Domain struct {
	Kind DomainKind `json:"kind"`
	Name string     `json:"name"` // unique on the node, as "package-0"
}

// A Reading is the state of a cumulative meter at one instant. What was used between two readings of one Run is the
// difference of their Totals; between readings of different runs nothing is known.
type Reading struct {
	Domain Domain        `json:"domain"`
	At     time.Duration `json:"at"`    // when the value was true, on the node's clock since boot
	Total  Microjoules   `json:"total"` // since an arbitrary origin; never falls within a run
	// another after each break: a reset, a gap that a wrap may hide in, a change of meter
	Run uint32 `json:"run"`
	// the counter's own value, from which a restarted agent goes on; 0 if it has none
	Raw uint64 `json:"raw"`
	// Rest is what Total leaves out, less than a microjoule, in fractions of the meter's own: a restarted agent goes on
	// from it too.
	Rest    uint64  `json:"rest,omitempty"`
	Quality Quality `json:"quality"`
}
