package hardware

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// ParseNodePower parses the idle and full-load power of a node in the format of Compute Gardener's environment
// variable NODE_POWER_CONFIG_<node>: "idle:50,max:300", in watts.
func ParseNodePower(text string) (idle, full energy.Watts, err error) {
	var p struct{ Idle, Max *energy.Watts }
	err = yaml.UnmarshalStrict([]byte("{"+strings.ReplaceAll(text, ":", ": ")+"}"), &p)
	if err != nil || p.Idle == nil || p.Max == nil || *p.Max <= 0 {
		return 0, 0, fmt.Errorf("node power %s: want idle:watts,max:watts with a max above 0", quoted(text))
	}
	if err := checkPower(*p.Idle, *p.Max); err != nil {
		return 0, 0, fmt.Errorf("node power %s: %w", quoted(text), err)
	}
	return *p.Idle, *p.Max, nil
}
