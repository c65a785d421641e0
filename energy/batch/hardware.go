package batch

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// HardwareHeader is the header of a batch's request in which an agent tells, now and then, what its node is made of.
const HardwareHeader = "Kubenergy-Hardware"

// Hardware is what the kernel of a node says that the node is made of. What is not known is left out.
type Hardware struct {
	CPU     string `json:"cpu,omitempty"` // model, as the CPU calls itself
	Sockets int    `json:"sockets,omitempty"`
	Cores   int    `json:"cores,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// Virtual says that it is a virtual machine, whose sockets and cores are made up.
	Virtual bool           `json:"virtual,omitempty"`
	Memory  int64          `json:"memory,omitempty"`  // bytes
	Vendor  string         `json:"vendor,omitempty"`  // of the machine
	Product string         `json:"product,omitempty"` // its model
	GPUs    map[string]int `json:"gpus,omitempty"`    // by model
	// Cloud is aws, azure or gcp, and Instance the type of the machine there, where the firmware names it.
	Cloud    string `json:"cloud,omitempty"`
	Instance string `json:"instance,omitempty"`
}

// What is believed of a node's hardware at most.
const (
	maxHardware = 4 << 10 // bytes of the header
	maxModel    = 128     // bytes of a name
	maxModels   = 16      // of GPUs
	maxUnits    = 1 << 16 // threads, cores, sockets, GPUs of a model
	maxRAM      = 1 << 50
)

// EncodeHardware returns the value of the header; "" if h is not valid.
func EncodeHardware(h *Hardware) string {
	text, err := json.Marshal(h)
	if err != nil || h.validate() != nil || len(text) > maxHardware {
		return ""
	}
	return string(text)
}

// DecodeHardware reads the header, which anyone may have written. It may have fields of later versions.
func DecodeHardware(value string) (*Hardware, error) {
	if len(value) > maxHardware {
		return nil, fmt.Errorf("reading hardware: it has %d bytes: want at most %d", len(value), maxHardware)
	}
	h := new(Hardware)
	if err := json.Unmarshal([]byte(value), h); err != nil {
		return nil, fmt.Errorf("reading hardware: %w", err)
	}
	if err := h.validate(); err != nil {
		return nil, fmt.Errorf("reading hardware: %w", err)
	}
	return h, nil
}

func (h *Hardware) validate() error {
	names := append(slices.Collect(maps.Keys(h.GPUs)), h.CPU, h.Vendor, h.Product, h.Cloud, h.Instance)
	for _, name := range names {
		if len(name) > maxModel || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c > '~' }) {
			return fmt.Errorf("the name %.64q: want at most %d characters of ASCII", name, maxModel)
		}
	}
	for _, n := range append(slices.Collect(maps.Values(h.GPUs)), h.Sockets, h.Cores, h.Threads) {
		if n < 0 || n > maxUnits {
			return fmt.Errorf("a number is %d: want 0 to %d", n, maxUnits)
		}
	}
	if len(h.GPUs) > maxModels || h.Memory < 0 || h.Memory > maxRAM {
		return errors.New("it has more models of GPUs, or more memory, than a machine can have")
	}
	return nil
}
