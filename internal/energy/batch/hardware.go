package batch

import (
	"encoding/json"
	"fmt"
)

// HardwareHeader is the header of a batch request in which an agent occasionally reports the hardware of its node.
const HardwareHeader = "Kubenergy-Hardware"

// Hardware is the hardware of a node as reported by its kernel. Unknown fields are omitted.
type Hardware struct {
	CPU     string `json:"cpu,omitempty"` // model, as reported by the CPU
	Sockets int    `json:"sockets,omitempty"`
	Cores   int    `json:"cores,omitempty"`
	Threads int    `json:"threads,omitempty"`
	// Virtual is set for virtual machines. Their numbers of sockets and cores are not physical.
	Virtual bool           `json:"virtual,omitempty"`
	Memory  int64          `json:"memory,omitempty"`  // bytes
	Vendor  string         `json:"vendor,omitempty"`  // of the machine
	Product string         `json:"product,omitempty"` // its model
	GPUs    map[string]int `json:"gpus,omitempty"`    // by model
	// Cloud is aws, azure or gcp, and Instance is the machine type there, if the firmware provides them.
	Cloud    string `json:"cloud,omitempty"`
	Instance string `json:"instance,omitempty"`
}

const maxHardware = 4 << 10 // bytes of the header

// EncodeHardware returns the value of the header, or "" if it would be too long.
func EncodeHardware(h *Hardware) string {
	text, err := json.Marshal(h)
	if err != nil || len(text) > maxHardware {
		return ""
	}
	return string(text)
}

// DecodeHardware parses the header. The value is untrusted and its names and numbers are not validated. Fields of
// later versions are ignored.
func DecodeHardware(value string) (*Hardware, error) {
	if len(value) > maxHardware {
		return nil, fmt.Errorf("decoding hardware: header has %d bytes, want at most %d", len(value), maxHardware)
	}
	h := new(Hardware)
	if err := json.Unmarshal([]byte(value), h); err != nil {
		return nil, fmt.Errorf("decoding hardware: %w", err)
	}
	return h, nil
}
