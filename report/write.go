package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

var formats = []string{"table", "json", "csv"}

// CheckFormat reports whether [Write] knows a format.
func CheckFormat(format string) error {
	if slices.Contains(formats, format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: want one of %s", format, strings.Join(formats, ", "))
}

// Write writes the report as a table, as JSON or as CSV. colours are for tables on a terminal.
func Write(w io.Writer, r *Report, format string, colours bool) error {
	switch format {
	case "json":
		return writeJSON(w, r)
	case "csv":
		return writeCSV(w, r)
	case "table":
		return writeTable(w, r, colours)
	}
	return CheckFormat(format)
}

func writeJSON(w io.Writer, r *Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func writeCSV(w io.Writer, r *Report) error {
	out := csv.NewWriter(w)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	rows := [][]string{{
		"strategy", "jobs", "energyKWh", "emissionsKg", "cost", "priced", "meanWaitSeconds", "p95WaitSeconds",
		"meanCompletionSeconds",
		"makespanSeconds", "utilisation", "delayViolations", "lateStarts", "missedDeadlines", "heldJobs",
		"meanHoldSeconds", "unplacedJobs", "decisions", "decisionsPerSecond",
		"energySavings", "emissionsSavings", "costSavings", "baseline", "quality", "tolerated", "suspensions",
	}}
	for i := range r.Runs {
		run := &r.Runs[i]
		rows = append(rows, []string{
			run.Strategy, strconv.Itoa(run.Jobs), number(run.EnergyKWh), number(run.EmissionsKg), number(run.Cost),
			strconv.FormatBool(run.Priced),
			number(run.MeanWaitSeconds), number(run.P95WaitSeconds), number(run.MeanCompletionSeconds),
			number(run.MakespanSeconds),
			number(run.Utilisation), strconv.Itoa(run.DelayViolations), strconv.Itoa(run.LateStarts),
			strconv.Itoa(run.MissedDeadlines), strconv.Itoa(run.HeldJobs), number(run.MeanHoldSeconds),
			strconv.Itoa(run.UnplacedJobs), strconv.Itoa(run.Decisions), number(run.DecisionsPerSecond),
			number(run.Savings.Energy), number(run.Savings.Emissions), number(run.Savings.Cost), r.Baseline,
			run.Quality.String(),
			strconv.Itoa(run.Tolerated), strconv.Itoa(run.Suspensions),
		})
	}
	return out.WriteAll(rows)
}
