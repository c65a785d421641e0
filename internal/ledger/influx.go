package ledger

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// measurement is the name of the InfluxDB measurement.
const measurement = "kubenergy_energy"

// WriteInflux writes an answer in InfluxDB's line protocol. Each row is one point with the timestamp of the start
// of its window, hour or day, or of the answer if it is not grouped by time. Other dimensions are tags, and sums
// are integer fields in the smallest units.
func (a *Answer) WriteInflux(w io.Writer) error {
	out := bufio.NewWriter(w)
	for i := range a.Rows {
		r := &a.Rows[i]
		at, tags, err := a.tags(r)
		if err != nil {
			return fmt.Errorf("writing line protocol: %w", err)
		}
		series := strings.Join(append([]string{measurement}, tags...), ",")
		fmt.Fprintf(out, "%s %s %d\n", series, strings.Join(r.influxFields(), ","), at.UnixNano())
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("writing line protocol: %w", err)
	}
	return nil
}

func (r *Row) influxFields() (all []string) {
	add := func(name string, v int64) { all = append(all, escaped(name)+"="+strconv.FormatInt(v, 10)+"i") }
	add("energy_microjoules", int64(r.Energy()))
	add("dynamic_microjoules", int64(r.Dynamic))
	add("idle_microjoules", int64(r.Idle))
	add("gpu_microjoules", int64(r.GPU))
	add("cpu_nanoseconds", int64(r.CPU))
	add("facility_microjoules", int64(r.Facility))
	add("estimated_microjoules", int64(r.Estimated))
	add("uncharted_microjoules", int64(r.Uncharted))
	add("unpriced_microjoules", int64(r.Unpriced))
	add("unmeasured_nanoseconds", int64(r.Unmeasured))
	for _, signal := range r.Signals() {
		add("carbon_micrograms_"+orUnknown(signal), int64(r.Emissions[signal]))
	}
	for _, currency := range r.Currencies() {
		add("cost_nanos_"+orUnknown(currency), int64(r.Costs[currency]))
	}
	return all
}

// tags returns the timestamp of a row and its other dimensions as tags, sorted by name as recommended by the
// protocol.
func (a *Answer) tags(r *Row) (at time.Time, tags []string, err error) {
	at = a.From
	if r.Key == nil && len(a.GroupBy) > 0 {
		return at, []string{"rest=true"}, nil
	}
	for i, d := range a.GroupBy {
		switch d {
		case ByWindow, ByHour, ByDay:
			t, err := time.Parse(time.RFC3339, r.Key[i])
			if err != nil {
				return at, nil, fmt.Errorf("parsing the time of a row: %w", err)
			}
			if t.After(at) {
				at = t // the finest dimension wins
			}
		default:
			if value := escaped(r.Key[i]); value != "" { // the protocol does not allow empty tags
				tags = append(tags, string(d)+"="+value)
			}
		}
	}
	slices.Sort(tags)
	return at, tags, nil
}

var escapes = strings.NewReplacer(",", `\,`, "=", `\=`, " ", `\ `)

// escaped returns text as the key or value of a tag or the key of a field. Commas, equals signs and spaces are
// escaped. A trailing backslash would escape the following character and cannot be represented, so it is replaced.
// Control characters such as line breaks are replaced by spaces.
func escaped(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if trimmed := strings.TrimRight(text, `\`); trimmed != text {
		text = trimmed + strings.Repeat("_", len(text)-len(trimmed))
	}
	return escapes.Replace(text)
}
