package grid

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Values of [CSVOptions.Dates].
const (
	DayFirst   = "day-first"
	MonthFirst = "month-first"
)

// clock parses the times of a file.
type clock struct {
	zone     *time.Location // of times without an offset; nil if unknown
	local    string         // header that denotes local time in an unknown zone, or empty
	dates    string         // DayFirst, MonthFirst, or empty if unknown
	floating bool           // a time had neither an offset nor a known zone, and UTC was assumed
}

var (
	utcName    = regexp.MustCompile(`(?i)utc|(^|[^a-z])(gmt|zulu)([^a-z]|$)`)
	offsetName = regexp.MustCompile(`(?i)(?:utc|gmt)\s*([+-])\s*(\d{1,2})(?::?(\d\d))?`)
	cetName    = regexp.MustCompile(`(?i)\b(cet|mez)\b.*\b(cest|mesz)\b`)
	localName  = regexp.MustCompile(`(?i)local|lokal|ortszeit|datum|^start[ _]date|(^|[^a-z])` +
		`(cet|cest|mez|mesz|bst|ist|e[psd]?t|c[psd]t|m[psd]t|p[psd]?t|eastern|central|mountain|pacific)([^a-z]|$)`)
)

// newClock returns a clock for a column of times. The zone of the options takes precedence over the header.
func newClock(header string, o *CSVOptions) clock {
	c := clock{zone: o.TimeZone, dates: o.Dates}
	if cetName.MatchString(header) && c.dates == "" {
		c.dates = DayFirst // ENTSO-E
	}
	switch offset := offsetName.FindStringSubmatch(header); {
	case c.zone != nil:
	case cetName.MatchString(header):
		c.zone, _ = time.LoadLocation("Europe/Brussels")
	case offset != nil:
		c.zone = fixedZone(offset[1], offset[2], offset[3])
	case utcName.MatchString(header):
		c.zone = time.UTC
	case localName.MatchString(header):
		c.local = header
	}
	return c
}

// fixedZone returns a zone with an offset. The minutes may be empty.
func fixedZone(sign, hours, minutes string) *time.Location {
	h, _ := strconv.Atoi(sign + hours)
	m, _ := strconv.Atoi(sign + "0" + minutes)
	return time.FixedZone("", h*3600+m*60)
}

// Layouts of unambiguous and of local times, without a zone. In dates with slashes, the day is first.
var (
	isoLayouts = []string{
		"2006-1-2T15:04", "2006-1-2 15:04:05", "2006-1-2T15:04:05", "2006-1-2 15:04", "2006/1/2 15:04",
		"2006/1/2 15:04:05", "20060102 15:04", "20060102T1504", "200601021504", "2006010215",
	}
	localLayouts = []string{
		"2.1.2006 15:04", "2.1.2006 15:04:05", "2.1.06 15:04", "Jan 2, 2006 3:04 PM", "2 Jan 2006 15:04",
		"2-Jan-2006 15:04", "2/1/2006 15:04", "2/1/2006 15:04:05", "2/1/2006 3:04 PM", "2/1/2006 3:04:05 PM",
		"2/1/06 15:04",
	}
	zoneSuffix = regexp.MustCompile(`^(.{9,}?[\dM])\s*(?:([+-])([01]\d):?([0-5]\d)?|\(?(Z|[A-Z]{3,5})\)?)$`)
	slashes    = regexp.MustCompile(`^(\d{1,2})[/-](\d{1,2})[/-](\d{2}|\d{4})\b`)
	timeOfDay  = regexp.MustCompile(`^\d{1,2}:\d\d`)
)

// note records evidence for the order of day and month.
func (c *clock) note(text string) {
	if d := slashes.FindStringSubmatch(strings.TrimSpace(text)); d != nil && c.dates == "" {
		first, _ := strconv.Atoi(d[1])
		second, _ := strconv.Atoi(d[2])
		switch {
		case first > 12:
			c.dates = DayFirst
		case second > 12:
			c.dates = MonthFirst
		}
	}
}

// parse parses the time of a row, which may be the start and end of an interval separated by " - ". A local time that
// exists twice is the first one after the time of the previous row.
func (c *clock) parse(text string, last time.Time) (time.Time, error) {
	text, _, _ = strings.Cut(strings.TrimSpace(text), " - ")
	const end = 1_900_000_000 // numbers such as 2024123123 are dates
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case err == nil && n >= 1e8 && n < end:
		return time.Unix(n, 0).UTC(), nil
	case err == nil && n >= 1e11 && n < end*1000 && len(text) == 13:
		return time.UnixMilli(n).UTC(), nil
	}
	local, zone, abbr := text, c.zone, ""
	if m := zoneSuffix.FindStringSubmatch(text); m != nil {
		local, abbr = m[1], strings.NewReplacer("MESZ", "CEST", "MEZ", "CET").Replace(m[5])
		switch abbr {
		case "":
			zone = fixedZone(m[2], m[3], m[4])
		case "Z", "UTC", "GMT":
			zone = time.UTC
		case "CET", "CEST":
			zone, _ = time.LoadLocation("Europe/Brussels")
		}
	}
	wall, iso := parseAny(local, isoLayouts)
	if !iso {
		var err error
		if wall, err = c.parseLocal(local); err != nil {
			return time.Time{}, fmt.Errorf("%q %w", text, err)
		}
	}
	switch {
	case zone != nil:
		return inZone(wall, zone, abbr, last)
	case abbr != "":
		return time.Time{}, fmt.Errorf("the zone of %q is ambiguous: %s", abbr, timeZoneHint)
	case c.local != "":
		return time.Time{}, fmt.Errorf("%q has no time zone, and the header %q denotes local time: %s", text, c.local,
			timeZoneHint)
	case !iso:
		return time.Time{}, fmt.Errorf("%q has no time zone, and its layout is of local times: %s", text, timeZoneHint)
	}
	c.floating = true
	return wall, nil
}

// parseLocal parses a time in a layout that is common in local times.
func (c *clock) parseLocal(text string) (time.Time, error) {
	if d := slashes.FindStringSubmatch(text); d != nil && d[1] != d[2] && c.dates == "" {
		return time.Time{}, fmt.Errorf("may start with the day or the month, and no other row shows which: %s",
			hint("dates", DayFirst+" or "+MonthFirst, "dates", convert))
	}
	dayFirst := "$1/$2/$3"
	if c.dates == MonthFirst {
		dayFirst = "$2/$1/$3"
	}
	text = slashes.ReplaceAllString(text, dayFirst)
	if t, ok := parseAny(text, localLayouts); ok {
		return t, nil
	}
	if _, ok := parseAny(text+" 00:00", slices.Concat(isoLayouts, localLayouts)); ok {
		return time.Time{}, errors.New("is a date without a time: want e.g. 2022-06-01T13:00Z")
	}
	return time.Time{}, errors.New("is not a time: want e.g. 2022-06-01T13:00Z")
}

func parseAny(text string, layouts []string) (time.Time, bool) {
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// instants returns the times at which clocks in the zone show the time wall, in order: one, or none or two when clocks
// change.
func instants(wall time.Time, zone *time.Location) (found []time.Time) {
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		_, offset := wall.Add(near).In(zone).Zone()
		t := wall.Add(-time.Duration(offset) * time.Second)
		if _, actual := t.In(zone).Zone(); actual == offset && !slices.ContainsFunc(found, t.Equal) {
			found = append(found, t)
		}
	}
	return found
}

// inZone returns the time at which clocks in the zone show wall. If there are two, it returns the one with the
// abbreviation, otherwise the first one after last.
func inZone(wall time.Time, zone *time.Location, abbr string, last time.Time) (time.Time, error) {
	found := instants(wall, zone)
	for _, t := range found {
		name, _ := t.In(zone).Zone()
		if abbr == name || abbr == "" && t.After(last) {
			return t, nil
		}
	}
	if len(found) == 0 {
		return time.Time{}, fmt.Errorf("%s does not exist in %s, because clocks were put forward: is it another zone?",
			wall.Format("2006-01-02 15:04"), zone)
	}
	return found[len(found)-1], nil
}

// changing contains zones with different changes of clocks, to recognize local times.
var changing = []string{
	"Europe/Berlin", "Europe/London", "Europe/Athens", "America/New_York", "Australia/Sydney", "Pacific/Auckland",
	"America/Santiago",
}

// changedIn returns a zone in which clocks do not show the time wall once, or an empty string.
func changedIn(wall time.Time) string {
	for _, name := range changing {
		if zone, err := time.LoadLocation(name); err == nil && len(instants(wall, zone)) != 1 {
			return name
		}
	}
	return ""
}

const convert = "grid convert"

// hint returns the ways to set an option of a file.
func hint(field, value, flag, command string) string {
	return fmt.Sprintf("set %s, e.g. %s, for the file in the scenario, or --%s of kubenergy %s", field, value, flag,
		command)
}

var timeZoneHint = hint("timeZone", "Europe/Berlin or UTC", "time-zone", "simulate or grid convert")

// SetFormat sets the format of a file from the fields or flags timeZone, unit, decimal and dates. Empty texts have no
// effect. It returns an error for an unknown value.
func (o *CSVOptions) SetFormat(timeZone, unit, decimal, dates string) (err error) {
	o.Unit, o.Decimal, o.Dates = unit, decimal, dates
	if timeZone != "" {
		if o.TimeZone, err = time.LoadLocation(timeZone); err != nil || timeZone == "Local" {
			return fmt.Errorf("timeZone: %q is not an IANA time zone: want a name such as Europe/Berlin", timeZone)
		}
	}
	switch {
	case !o.Price && unitOf(unit).scale(true) != 0:
		return fmt.Errorf("unit: %q is a unit of prices: %s", unit, priceHint)
	case unit != "" && unitOf(unit).scale(o.Price) == 0:
		return fmt.Errorf("unit: %q is not a unit: want %s", unit, unitWords(o.Price))
	case !slices.Contains([]string{"", ".", ","}, decimal):
		return fmt.Errorf("decimal: %q is not a decimal separator: want . or a comma", decimal)
	case !slices.Contains([]string{"", DayFirst, MonthFirst}, dates):
		return fmt.Errorf("dates: %q is not an order: want %s or %s", dates, DayFirst, MonthFirst)
	}
	return nil
}

// ParseTime parses the start of an interval in the formats common in public data, in UTC if there is no offset.
func ParseTime(text string) (time.Time, error) {
	return (&clock{zone: time.UTC}).parse(text, time.Time{})
}
