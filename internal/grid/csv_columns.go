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

// columns determines the columns from the header.
func (r *csvReader) columns(header []string) error {
	called := func(names ...string) int {
		return slices.IndexFunc(header, func(column string) bool {
			return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, column) })
		})
	}
	r.zone, r.estimated = called("zone", "zone id"), called("estimated", "data estimated")
	r.sequence = called("sequence")
	if r.time = 0; header[0] == "" && len(header) > 2 {
		r.time = 1
	}
	if i := slices.IndexFunc(header, startName.MatchString); i >= 0 {
		r.time = i
	}
	r.ends = endName.MatchString(header[r.time])
	r.clock = newClock(header[r.time], &r.options)
	var values []string
	for i, name := range header {
		if i > r.time && i != r.zone && i != r.estimated && i != r.sequence && !endName.MatchString(name) &&
			!startName.MatchString(name) {
			values = append(values, name)
		}
	}
	if len(header) < 2 {
		return r.fail("", "the header has one column: want a time and at least one column of values, separated by "+
			"a comma, a semicolon or a tab")
	}
	if _, err := ParseTime(header[r.time]); err == nil {
		return r.fail("", "the first line is a row of values: want a header with the names of the columns")
	}
	var err error
	if r.name, err = r.choose(values); err != nil {
		return err
	}
	r.value = slices.Index(header, r.name)
	return nil
}

// unit sets the scale from the option Unit or, if it is empty, from the unit in text.
func (r *csvReader) unit(text string) error {
	u := unitOf(cmp.Or(r.options.Unit, text))
	r.scale = u.scale(r.options.Price)
	switch {
	case r.scale != 0:
		return nil
	case r.options.Price:
		return r.fail("", "column %q names no unit of energy: want %s in the name, or %s", r.name, unitWords(true),
			hint("unit", "per-MWh", "unit"))
	case r.name != string(r.options.Zone) && (u.percent || u.mass > 0 && u.mass != 1 || u.perEnergy == 1.0/1000):
		return r.fail("", "column %q does not look like gCO2e per kWh: want %s in the name, or %s", r.name,
			unitWords(false), hint("unit", "kg/MWh", "unit"))
	}
	r.scale = 1
	return nil
}

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
	withUnit := slices.DeleteFunc(slices.Clone(values), func(name string) bool {
		return unitOf(name).scale(r.options.Price) == 0
	})
	switch {
	case columnOfZone && slices.Contains(values, zone):
		return zone, nil
	case len(values) == 1:
		return values[0], nil
	case len(withUnit) == 1:
		return withUnit[0], nil
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
