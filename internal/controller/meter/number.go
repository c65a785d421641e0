package meter

import (
	"encoding/json"
	"math"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// maxCount is the maximum value of a counter that can be represented exactly.
const maxCount = 1 << 53

// watts parses a power in watts. Small negative values are rounded up to 0, because meters without load report
// them.
func watts(n *json.Number) (float64, error) {
	if n == nil || *n == "" {
		return 0, dial.Refuse(dial.ReasonMissing, "missing power")
	}
	w, err := n.Float64()
	if err != nil || math.Abs(w) > maxWatts {
		return 0, dial.Refuse(dial.ReasonRange, "invalid power of %.20q W", string(*n))
	}
	return max(w, 0), nil
}

// count parses a counter and multiplies it by perOne, the number of the returned units per unit of the counter.
func count(n *json.Number, perOne float64) (uint64, error) {
	if n == nil || *n == "" {
		return 0, dial.Refuse(dial.ReasonMissing, "missing energy")
	}
	v, err := n.Float64()
	if v *= perOne; err != nil || !(v >= 0 && v <= maxCount) {
		return 0, dial.Refuse(dial.ReasonRange, "invalid counter value %.30q", string(*n))
	}
	return uint64(math.Round(v)), nil
}

// metered returns a sample with a power and a counter. The parameter unit is the unit of the counts in microjoules,
// and perOne is the number of counts per unit of the counter.
func metered(power, total *json.Number, perOne float64, unit uint64) (s sample, err error) {
	s = sample{powered: true, counted: true, unit: unit}
	if s.watts, err = watts(power); err == nil {
		s.counts, err = count(total, perOne)
	}
	return s, err
}

// decode unmarshals JSON.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		// The error message would contain text from the device.
		return dial.Refuse(dial.ReasonShape, "the response is not the JSON expected from this kind of device")
	}
	return nil
}
