package energy

import (
	"time"
)

// DomainKind is the part of a node that a meter covers.
type DomainKind uint8

// The kinds of domains. RAPL domains overlap: psys includes the packages, and a package includes its core and
// uncore domains.
const (
	Wall    DomainKind = iota // the whole machine, at its plug or in its power supply
	Psys                      // the whole board, as reported by RAPL
	Package                   // a CPU socket
	Core                      // the cores of a package
	Uncore                    // the rest of a package
	DRAM                      // the memory of a socket
	Guest                     // a virtual machine, as attributed by its host
	Model                     // the whole machine, as estimated by a power model
	GPU                       // a board with a GPU
)

var domainNames = []string{"wall", "psys", "package", "core", "uncore", "dram", "guest", "model", "gpu"}

// String returns the name used in labels and JSON.
func (k DomainKind) String() string { return nameOf("domain", domainNames, k) }

// MarshalText encodes k as its name in JSON.
func (k DomainKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses the name of a DomainKind.
func (k *DomainKind) UnmarshalText(text []byte) error { return named("domain", domainNames, text, k) }

// A Domain is the part of a node that one counter covers.
type Domain struct {
	Kind DomainKind `json:"kind"`
	Name string     `json:"name"` // unique on the node, e.g. "package-0"
}

// A Reading is the state of a cumulative meter at a point in time. The energy used between two readings of the same
// Run is the difference of their Totals. Readings of different runs cannot be compared.
type Reading struct {
	Domain Domain        `json:"domain"`
	At     time.Duration `json:"at"`    // time of the value, on the node's clock since boot
	Total  Microjoules   `json:"total"` // since an arbitrary origin; monotonic within a run
	// Run changes after each discontinuity: a reset, a gap that may hide a wrap-around, or a change of meter.
	Run uint32 `json:"run"`
	// Raw is the raw counter value, used by a restarted agent to resume; 0 if there is none.
	Raw uint64 `json:"raw"`
	// Rest is the remainder of less than a microjoule that Total does not include, in the meter's own fractions. A
	// restarted agent resumes from it.
	Rest    uint64  `json:"rest,omitempty"`
	Quality Quality `json:"quality"`
}
