package batch

import (
	"encoding/json"
	"fmt"
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

const maxHardware = 4 << 10 // bytes of the header

// EncodeHardware returns the value of the header; "" if that is too long.
func EncodeHardware(h *Hardware) string {
	text, err := json.Marshal(h)
	if err != nil || len(text) > maxHardware {
		return ""
	}
	return string(text)
}

// DecodeHardware reads the header, which anyone may have written: names and numbers may be any. It may have fields of
// later versions.
func DecodeHardware(value string) (*Hardware, error) {
	if len(value) > maxHardware {
		return nil, fmt.Errorf("reading hardware: it has %d bytes: want at most %d", len(value), maxHardware)
	}
	h := new(Hardware)
	if err := json.Unmarshal([]byte(value), h); err != nil {
		return nil, fmt.Errorf("reading hardware: %w", err)
	}
	return h, nil
}
