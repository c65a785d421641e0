package ledger

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Decimal places of the recorded units.
const (
	microPlaces = 6
	nanoPlaces  = 9
)

// decimal formats v/10^places exactly, without trailing zeros.
func decimal(v int64, places int) string {
	digits, negative := strings.CutPrefix(strconv.FormatInt(v, 10), "-")
	digits = strings.Repeat("0", max(0, places+1-len(digits))) + digits
	point := len(digits) - places
	text := strings.TrimSuffix(digits[:point]+"."+strings.TrimRight(digits[point:], "0"), ".")
	if negative {
		return "-" + text
	}
	return text
}

// longestNumber limits the length of parsed numbers, because an exponent makes a short text expensive to parse.
const longestNumber = 40

// whole parses a decimal number as a multiple of 10^-places. It rejects numbers with more decimal places.
func whole(text string, places int) (int64, error) {
	if text == "null" {
		return 0, nil
	}
	if len(text) > longestNumber || strings.ContainsAny(text, "eE/_xXpP") {
		return 0, fmt.Errorf("%.40q is not a plain decimal number", text)
	}
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		return 0, fmt.Errorf("%q is not a decimal number", text)
	}
	r.Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))) // decimal
	if !r.IsInt() || !r.Num().IsInt64() {
		return 0, fmt.Errorf("%s is not a multiple of 10^-%d, or is out of range", text, places)
	}
	return r.Num().Int64(), nil
}

// kWh formats energy in kilowatt-hours.
func kWh(v energy.Microjoules) string { return short(float64(v) / microjoulesPerKWh) }

// short formats a float with the minimum number of digits and without an exponent.
func short(v float64) string {
	return strconv.FormatFloat(v, 'f', -1, 64)
}
