package grid

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Names of columns with the start and the end of an interval.
var (
	startName = regexp.MustCompile(`(?i)^` + intervalWords + `(start|starts|startzeit|begin|begins|beginning|von|` +
		`from|anfang|uhrzeit)` + intervalSuffix)
	endName = regexp.MustCompile(`(?i)^` + intervalWords + `(end|ends|ending|ende|endzeit|bis|to|he)` + intervalSuffix)
)

const (
	intervalWords  = `((interval|period|hour|delivery|valid|date|datetime|datum|time|timestamp|mtu|utc|trading)[ _-]?)*`
	intervalSuffix = `([ _-]?(time|date|datetime|utc|gmt|ept|local))*(\s*\(.*\))?$`
)

// columns contains the indexes of the columns, -1 if absent.
type columns struct {
	time                             int
	ends                             bool // the times are the ends of intervals
	value, zone, estimated, sequence int
	name                             string // of the values
}

// setColumns determines the columns from the header.
func (f *csvFile) setColumns(header []string) (err error) {
	called := func(names ...string) int {
		return slices.IndexFunc(header, func(column string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, column) })
		})
	}
	c := &f.column
	c.zone, c.estimated = called("zone", "zone id"), called("estimated", "data estimated")
	c.sequence = called("sequence")
	if header[0] == "" && len(header) > 2 {
		c.time = 1
	}
	if i := slices.IndexFunc(header, startName.MatchString); i >= 0 {
		c.time = i
	}
	c.ends = endName.MatchString(header[c.time])
	f.clock = newClock(header[c.time], f.options)
	var values []string
	for i, name := range header {
		if i > c.time && i != c.zone && i != c.estimated && i != c.sequence && !endName.MatchString(name) &&
			!startName.MatchString(name) {
			values = append(values, name)
		}
	}
	if len(header) < 2 {
		return f.fail("", "", "the header has one column: want a time and at least one column of values, separated by "+
			"a comma, a semicolon or a tab")
	}
	if _, err := ParseTime(header[c.time]); err == nil {
		return f.fail("", "", "the first line is a row of values: want a header with the names of the columns")
	}
	c.name, err = f.choose(values)
	c.value = slices.Index(header, c.name)
	return err
}

// setUnit sets the scale from the option Unit or, if it is empty, from the unit in text.
func (f *csvFile) setUnit(text string) error {
	text = cmp.Or(f.options.Unit, text)
	u := unitOf(text)
	f.scale = u.scale(f.options.Price)
	switch {
	case f.scale != 0:
		return nil
	case f.options.Price:
		return f.fail("", "", "column %q names no unit of energy: want %s in the name, or %s", f.column.name,
			unitWords(true), hint("unit", "per-MWh", "unit", convert))
	case u.scale(true) != 0 && u.part > 0, u.mass == 0 && priceName.MatchString(text):
		return f.fail("", "", "column %q contains prices: %s", f.column.name, priceHint)
	case f.column.name != string(f.options.Zone) && (u.percent || u.mass > 0 && u.mass != 1 || u.perEnergy == 1.0/1000):
		return f.fail("", "", "column %q does not look like gCO2e per kWh: want %s in the name, or %s", f.column.name,
			unitWords(false), hint("unit", "kg/MWh", "unit", convert))
	}
	f.scale = 1
	return nil
}

// zoneID matches the column names that are zones.
var zoneID = regexp.MustCompile(`^[A-Z][A-Z0-9]*(-[A-Z0-9]+)*$`)

// choose returns the name of the column of values to read.
func (f *csvFile) choose(values []string) (string, error) {
	o, all := f.options, strings.Join(values, ", ")
	zone := "" // the file may have a column for each zone
	if f.column.zone < 0 {
		zone = string(o.Zone)
	}
	has := func(name string) bool { return slices.Contains(values, name) }
	lifecycle := slices.IndexFunc(lifecycleColumns, has)
	zonesOnly := !slices.ContainsFunc(values, func(name string) bool { return !zoneID.MatchString(name) })
	withUnit := slices.DeleteFunc(slices.Clone(values), func(name string) bool {
		return unitOf(name).scale(o.Price) == 0
	})
	switch {
	case has(o.Column) && o.Column != "":
		return o.Column, nil
	case o.Column != "":
		return "", f.fail("", OptionColumn, "no column %q: the file has %s", o.Column, all)
	case lifecycle >= 0 && !o.Price:
		return lifecycleColumns[lifecycle], nil
	case has(zone) && zone != "":
		return zone, nil
	case len(values) == 1:
		return values[0], nil
	case len(withUnit) == 1:
		return withUnit[0], nil
	case zonesOnly && zone != "":
		return "", f.fail("", OptionZone, "no zone %q: the file has %s", zone, all)
	case zonesOnly:
		return "", f.fail("", OptionZone, "select a zone: the file has %s", all)
	case zone != "":
		return "", f.fail("", OptionColumn,
			"select a column: the file has neither a column %q nor a column %s, but %s", "zone", zone, all)
	}
	return "", f.fail("", OptionColumn, "select a column: the file has %s", all)
}
