package grid

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// energyName matches a unit of energy in the name of a column, e.g. kWh, MWhe, MW-hr or megawatt hours.
var energyName = regexp.MustCompile(`(?i)(k|m|kilo[\s_-]?|mega[\s_-]?)w(?:atts?)?` +
	`(?:h|[\s_·*.-]{1,3}h(?:(?:ou)?rs?|e)?(?:[^a-z]|$))`)

// hundredthName matches a hundredth of a currency before a unit of energy, if it is written with one character.
var hundredthName = regexp.MustCompile(`(?i)¢|(?:^|[^\pL])[cp]\s*(?:/|_?per)`)

// priceName matches the name of a column of prices.
var priceName = regexp.MustCompile(`(?i)price|preis|[€$£¢]|(?:^|[^\pL])(?:eur|usd|gbp)(?:[^\pL]|$)`)

const priceHint = "use prices instead of grid in the scenario, or convert them with kubenergy grid convert --price"

// moneyParts contains parts of currencies, as fractions of the currency.
var moneyParts = map[string]float64{
	"ct": 0.01, "cts": 0.01, "cent": 0.01, "cents": 0.01, "eurocent": 0.01, "eurocents": 0.01, "penny": 0.01,
	"pence": 0.01, "øre": 0.01, "öre": 0.01, "oere": 0.01, "ore": 0.01, "rappen": 0.01, "groszy": 0.01,
	"paise": 0.01, "sen": 0.01, "centavos": 0.01, "mills": 0.001, "mill": 0.001,
}

// massWords contains units of mass in grams.
var massWords = map[string]float64{
	"g": 1, "gr": 1, "gram": 1, "grams": 1, "mg": 0.001, "kg": 1000, "kilogram": 1000, "kilograms": 1000, "t": 1e6,
	"ton": 1e6, "tons": 1e6, "tonne": 1e6, "tonnes": 1e6, "mt": 1e6, "lb": 453.59237, "lbs": 453.59237,
	"pound": 453.59237, "pounds": 453.59237,
}

// unit is the unit in the name of a column.
type unit struct {
	perEnergy  float64 // factor to convert a value per unit of energy to one per kWh; 0 if missing or contradictory
	mass, part float64 // unit of mass in grams and part of a currency; 0 if missing
	percent    bool
}

// unitOf returns the unit in a text.
func unitOf(text string) unit {
	u := unit{percent: strings.Contains(text, "%")}
	for i, found := range energyName.FindAllStringSubmatch(text, -1) {
		perEnergy := map[string]float64{"k": 1, "m": 1.0 / 1000}[strings.ToLower(found[1][:1])]
		if i > 0 && perEnergy != u.perEnergy {
			u.perEnergy = 0
			break
		}
		u.perEnergy = perEnergy
	}
	if hundredthName.MatchString(text) {
		u.part = 0.01
	}
	for _, word := range strings.FieldsFunc(strings.ToLower(text), notLetter) {
		if slices.Contains([]string{"pct", "percent", "percentage"}, word) {
			u.percent = true
		}
		if part := moneyParts[word]; part > 0 {
			u.part = part
		}
		if mass := massWords[strings.TrimSuffix(word, "co")]; mass > 0 { // the digit of CO2 is not a letter
			u.mass = mass
		}
	}
	return u
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

// scale returns the factor to convert to a price per kWh or to gCO2e/kWh, or 0 if the unit is not complete.
func (u unit) scale(price bool) float64 {
	switch {
	case price && u.mass == 0 && u.part > 0:
		return u.part * u.perEnergy
	case price && u.mass == 0:
		return u.perEnergy
	case !price && !u.percent:
		return u.mass * u.perEnergy
	}
	return 0
}

// unitWords returns examples of units.
func unitWords(price bool) string {
	if price {
		return "per-kWh, per-MWh, ct/kWh or pence/kWh"
	}
	return "g/kWh, kg/MWh, kg/kWh or lb/MWh"
}

// decimals determines the decimal separator of numbers.
type decimals struct {
	comma, point bool // the numbers show that it is one of them
}

var (
	groupedByComma = regexp.MustCompile(`^[+-]?[1-9]\d{0,2}(,\d{3})+$`)
	groupedByPoint = regexp.MustCompile(`^[+-]?\d{1,3}(\.\d{3})+(,\d+)?$`)
)

// note records evidence for the separator.
func (d *decimals) note(text string) {
	comma, point := strings.LastIndexByte(text, ','), strings.LastIndexByte(text, '.')
	switch {
	case comma > point && (point >= 0 || !groupedByComma.MatchString(text)):
		d.comma = true
	case point > comma:
		d.point = true
	}
}

// open reports whether a comma in text may separate decimals or thousands.
func (d *decimals) open(text string) bool {
	return !d.comma && !d.point && groupedByComma.MatchString(text)
}

// parse parses a number.
func (d *decimals) parse(text string) (float64, error) {
	switch {
	case d.comma && (!strings.Contains(text, ".") || groupedByPoint.MatchString(text)):
		text = strings.ReplaceAll(strings.ReplaceAll(text, ".", ""), ",", ".")
	case !d.comma && groupedByComma.MatchString(strings.SplitN(text, ".", 2)[0]):
		text = strings.ReplaceAll(text, ",", "")
	case d.comma:
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(text, 64)
}
