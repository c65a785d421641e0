package batch

import (
	"fmt"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TemperatureHeader is the header of a batch request that contains the temperature of the node.
const TemperatureHeader = "Kubenergy-Temperature"

// EncodeTemperature returns the value of the header, or "" for nil.
func EncodeTemperature(t *energy.Celsius) string {
	if t == nil {
		return ""
	}
	return strconv.FormatFloat(float64(*t), 'f', 1, 64)
}

// DecodeTemperature parses the header. The value is untrusted.
func DecodeTemperature(value string) (*energy.Celsius, error) {
	const least, most = -60, 200 // plausible for a running machine
	t, err := strconv.ParseFloat(value, 64)
	if err != nil || !(t >= least && t <= most) {
		return nil, fmt.Errorf("temperature is %.20q: want %d to %d degrees Celsius", value, least, most)
	}
	return new(energy.Celsius(t)), nil
}
