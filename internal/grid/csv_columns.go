package grid

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// columns determines the columns from the header.
func (r *csvReader) columns(header []string) error {
	called := func(names ...string) int {
		return slices.IndexFunc(header, func(column string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, column) })
		})
	}
	r.zone, r.estimated = called("zone", "zone id"), called("estimated", "data estimated")
	if r.time = 0; header[0] == "" && len(header) > 2 {
		r.time = 1
	}
	var values []string
	for i, name := range header {
		if i > r.time && i != r.zone && i != r.estimated {
			values = append(values, name)
		}
	}
	if len(header) < 2 {
		return r.fail("", "the header has one column: want a time and at least one column of values")
	}
	if _, err := ParseTime(header[r.time]); err == nil {
		return r.fail("", "the first line is a row of values: want a header with the names of the columns")
	}
	var err error
	if r.name, err = r.choose(values); err != nil {
		return err
	}
	r.value = slices.Index(header, r.name)
	return r.unit()
}

// unit determines the unit of the values from the name of the column.
func (r *csvReader) unit() error {
	r.scale = 1
	unit := strings.ToLower(r.name)
	if r.options.Price {
		if strings.Contains(unit, "mwh") {
			r.scale = 1.0 / 1000
		}
		return nil
	}
	if r.name == string(r.options.Zone) {
		return nil
	}
	// Only the name of the column distinguishes grams from percentages or pounds.
	for _, foreign := range []string{"pct", "percent", "kg", "lb", "lbs", "mwh"} {
		if slices.Contains(strings.FieldsFunc(unit, notLetter), foreign) {
			return r.fail("", "column %q does not look like gCO2e per kWh", r.name)
		}
	}
	return nil
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

// zoneID matches the column names that are zones.
var zoneID = regexp.MustCompile(`^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$`)

// choose returns the name of the column of values to read.
func (r *csvReader) choose(values []string) (string, error) {
	zone, all := string(r.options.Zone), strings.Join(values, ", ")
	columnOfZone := r.zone < 0 && zone != "" // the file may have a column for each zone
	if want := r.options.Column; want != "" {
		if !slices.Contains(values, want) {
			return "", r.failOption(OptionColumn, "no column %q: the file has %s", want, all)
		}
		return want, nil
	}
	for _, name := range lifecycleColumns {
		if !r.options.Price && slices.Contains(values, name) {
			return name, nil
		}
	}
	zonesOnly := !slices.ContainsFunc(values, func(name string) bool { return !zoneID.MatchString(name) })
	switch {
	case columnOfZone && slices.Contains(values, zone):
		return zone, nil
	case len(values) == 1:
		return values[0], nil
	case columnOfZone && zonesOnly:
		return "", r.failOption(OptionZone, "no zone %q: the file has %s", zone, all)
	case columnOfZone:
		return "", r.failOption(OptionColumn,
			"select a column: the file has neither a column %q nor a column %s, but %s", "zone", zone, all)
	case zonesOnly:
		return "", r.failOption(OptionZone, "select a zone: the file has %s", all)
	}
	return "", r.failOption(OptionColumn, "select a column: the file has %s", all)
}
