package batch

import (
	"encoding/json"
	"fmt"
)

// FindingsHeader is the header of a batch request that contains the problems that the agent has found on its node, in
// English. A request without the header means that there are none.
const FindingsHeader = "Kubenergy-Findings"

const maxFindings = 4 << 10 // bytes of the header

// EncodeFindings returns the value of the header, or "" if there are none. It omits the last findings if the value
// would be too long.
func EncodeFindings(all []string) string {
	for ; len(all) > 0; all = all[:len(all)-1] {
		if text, err := json.Marshal(all); err == nil && len(text) <= maxFindings {
			return string(text)
		}
	}
	return ""
}

// DecodeFindings parses the header, which may be missing. The value is untrusted and may contain any text.
func DecodeFindings(value string) (all []string, err error) {
	switch {
	case value == "":
		return nil, nil
	case len(value) > maxFindings:
		return nil, fmt.Errorf("decoding findings: header has %d bytes, want at most %d", len(value), maxFindings)
	}
	if err = json.Unmarshal([]byte(value), &all); err != nil {
		return nil, fmt.Errorf("decoding findings: %w", err)
	}
	return all, nil
}
