package ledger

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Places behind the point of what is counted.
const (
	microPlaces = 6
	nanoPlaces  = 9
)

// decimal writes v/10^places exactly, without zeros that say nothing.
func decimal(v int64, places int) string { return string(energy.AppendDecimal(nil, v, places)) }

// longestNumber bounds what is read as a number: an exponent makes a few bytes cost much.
const longestNumber = 40

// whole reads a decimal number as a multiple of 10^-places; what is behind that is refused.
func whole(text string, places int) (int64, error) {
	if text == "null" {
		return 0, nil
	}
	if len(text) > longestNumber || strings.ContainsAny(text, "eE/_xXpP") {
		return 0, fmt.Errorf("no plain decimal number: %.40q", text)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, fmt.Errorf("no decimal number: %q", text)
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))) // decimal
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, fmt.Errorf("%s is not a count of 10^-%d", text, places)
	}
	return r.Num().Int64(), nil
}

// kWh writes energy in kilowatt-hours.
func kWh(v energy.Microjoules) string { return short(float64(v) / microjoulesPerKWh) }

// short writes a float as briefly as its value allows, never with an exponent.
func short(v float64) string {
	return strconv.FormatFloat(v, 'f', -1, 64)
}
