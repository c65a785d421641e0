package hardware

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/energy"
)

// ParseNodePower reads the idle and full power of one node as Compute Gardener's environment NODE_POWER_CONFIG_<node>
// has it: "idle:50,max:300", in watts.
func ParseNodePower(text string) (idle, full energy.Watts, err error) {
	values := map[string]energy.Watts{}
	for part := range strings.SplitSeq(text, ",") {
		key, number, _ := strings.Cut(part, ":")
		key = strings.TrimSpace(key)
		if _, twice := values[key]; twice {
			return 0, 0, fmt.Errorf("node power %s: %s appears twice", quoted(text), key)
		}
		if key != "idle" && key != "max" {
			return 0, 0, fmt.Errorf("node power %s: want idle:watts,max:watts", quoted(text))
		}
		w, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return 0, 0, fmt.Errorf("node power %s: %s is not a number of watts", quoted(text), key)
		}
		values[key] = energy.Watts(w)
	}
	if len(values) != 2 {
		return 0, 0, fmt.Errorf("node power %s: want both idle and max", quoted(text))
	}
	idle, full = values["idle"], values["max"]
	if full <= 0 {
		return 0, 0, errors.New("node power: max is not above 0 W")
	}
	if err := checkPower(idle, full); err != nil {
		return 0, 0, fmt.Errorf("node power %s: %w", quoted(text), err)
	}
	return idle, full, nil
}
