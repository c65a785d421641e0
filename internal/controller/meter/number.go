package meter

import (
	"encoding/json"
	"math"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
)

// The most that a number of a device may be, and be counted exactly.
const maxCount = 1 << 53

// watts reads a power. A little less than nothing is what meters show of nothing.
func watts(n *json.Number) (float64, error) {
	if n == nil || *n == "" {
		return 0, dial.Refuse(dial.ReasonMissing, "it does not say the power")
	}
	w, err := n.Float64()
	if err != nil || math.Abs(w) > maxWatts {
		return 0, dial.Refuse(dial.ReasonRange, "a power of %.20q W", string(*n))
	}
	return max(w, 0), nil
}

// count reads a counter as a number of its units, of which there are perOne in what the number is in.
func count(n *json.Number, perOne float64) (uint64, error) {
	if n == nil || *n == "" {
		return 0, dial.Refuse(dial.ReasonMissing, "it does not say the energy")
	}
	v, err := n.Float64()
	if v *= perOne; err != nil || !(v >= 0 && v <= maxCount) {
		return 0, dial.Refuse(dial.ReasonRange, "a counter of %.30q", string(*n))
	}
	return uint64(math.Round(v)), nil
}

// metered is the sample of a power, and of a counter of such units, of which there are perOne in what it counts in.
func metered(power, total *json.Number, perOne float64, unit uint64) (s sample, err error) {
	s = sample{powered: true, counted: true, unit: unit}
	if s.watts, err = watts(power); err == nil {
		s.counts, err = count(total, perOne)
	}
	return s, err
}

// decode reads JSON.
func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		// its own text quotes what others wrote
		return dial.Refuse(dial.ReasonShape, "the answer is not the JSON that such a device gives")
	}
	return nil
}
