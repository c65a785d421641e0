package grid

import (
	"slices"
	"strings"
	"unicode"
)

// columns finds the columns in the header.
func (r *csvReader) columns(header []string) error {
	r.zone, r.estimated = slices.Index(header, "zone"), slices.Index(header, "estimated")
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

// unit finds out from a column's name what its values are.
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
	// The name is all there is to tell a percentage or pounds from grams.
	for _, foreign := range []string{"pct", "percent", "kg", "lb", "lbs", "mwh"} {
		if slices.Contains(strings.FieldsFunc(unit, notLetter), foreign) {
			return r.fail("", "column %q does not look like gCO2e per kWh", r.name)
		}
	}
	return nil
}

func notLetter(r rune) bool { return !unicode.IsLetter(r) }

// choose returns the column of values to read.
func (r *csvReader) choose(values []string) (string, error) {
	zone := string(r.options.Zone)
	columnOfZone := r.zone < 0 && zone != "" // perhaps a file with a column for each zone
	switch want := r.options.Column; {
	case want != "":
		if !slices.Contains(values, want) {
			return "", r.fail("", "no column %q: the file has %s", want, strings.Join(values, ", "))
		}
		return want, nil
	case !r.options.Price && slices.Contains(values, DefaultColumn):
		return DefaultColumn, nil
	case !r.options.Price && slices.Contains(values, mixColumn):
		return mixColumn, nil
	case columnOfZone && slices.Contains(values, zone):
		return zone, nil
	case len(values) == 1:
		return values[0], nil
	case columnOfZone:
		return "", r.fail("", "no zone %q: the file has %s", zone, strings.Join(values, ", "))
	}
	return "", r.fail("", "which column? The file has %s", strings.Join(values, ", "))
}
