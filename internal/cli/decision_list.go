package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// decisionList is the output of the command decisions.
type decisionList struct {
	api.Decisions

	namespaces bool  // whether to print the column NAMESPACE
	more       bool  // whether the header was printed
	widths     []int // current widths of the columns
}

// Text returns one line per decision.
func (l *decisionList) Text(wide, _ bool) string {
	heads := []string{"TIME", "ACTION", "NAMESPACE", "OWNER", "NODE", "WINDOW", "STRATEGY", "SAVES", "REASON"}
	if wide {
		heads = append(heads[:8:8], "gCO2e", "ID", "REASON")
	}
	rows := [][]string{heads}
	for _, r := range l.Decisions.Decisions {
		cells := []string{
			r.At.UTC().Format(time.RFC3339), r.Action, r.Namespace, r.OwnerName(), cmp.Or(r.Node, "–"),
			windowOf(&r, wide), r.Strategy, quantityOr(r.Saving, "%.0f %%", 100),
		}
		if wide {
			cells = append(cells, quantityOr(float64(r.Saved), "%.3g", 1), r.ID)
		}
		rows = append(rows, append(cells, reasonOf(&r, wide)))
	}
	return l.aligned(rows)
}

// aligned formats rows in columns like kubectl. Column widths are remembered, so that rows printed later are
// aligned with the same header.
func (l *decisionList) aligned(rows [][]string) string {
	if l.widths == nil {
		l.widths = make([]int, len(rows[0]))
	}
	for _, row := range rows {
		for i, cell := range row {
			row[i] = cmdutil.Printable(cell)
			l.widths[i] = max(l.widths[i], len([]rune(row[i])))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			switch {
			case i == 2 && !l.namespaces:
			case i == len(row)-1:
				fmt.Fprintln(&b, cell)
			default:
				fmt.Fprintf(&b, "%-*s  ", l.widths[i], cell)
			}
		}
	}
	return b.String()
}

func quantityOr(v float64, format string, times float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf(format, times*v)
}

// windowOf returns the planned time window. Unless wide is set, dates are omitted if they equal the previous date.
func windowOf(r *ledger.Record, wide bool) string {
	before, text := r.At.UTC(), "–"
	for i, at := range []time.Time{r.Start.UTC(), r.End.UTC()} {
		layout := "01-02 15:04"
		switch {
		case at.IsZero():
			return text
		case wide:
			layout = time.RFC3339
		case at.Truncate(24 * time.Hour).Equal(before.Truncate(24 * time.Hour)):
			layout = "15:04"
		}
		if before = at; i == 0 {
			text = at.Format(layout)
		} else {
			text += "–" + at.Format(layout)
		}
	}
	return text
}

// reasonOf returns the reason of a decision as text, including the message if wide is set.
func reasonOf(r *ledger.Record, wide bool) string {
	words := sched.InWords(r.Reason)
	switch {
	case r.Action == "hold", r.Action == "pause", r.Action == "scale":
		words = cmp.Or(r.Message, words)
	case r.Reason == "DeadlineForced":
		words = "the allowed delay is exhausted"
	case r.Reason == "Released":
		if words = "its window opens"; !strings.HasPrefix(r.Message, "held") { // released without a plan
			words = cmp.Or(r.Message, words)
		}
	}
	switch {
	case !wide:
		return dashboard.Briefly(words)
	case r.Message == "" || r.Message == words:
		return words
	}
	return words + "; " + r.Message
}

// Sheet returns the table for the CSV format. It contains all fields except snapshots under their JSON names, as
// expected by replay.
func (l *decisionList) Sheet() *report.Table {
	t := report.Sheet("id", "at", "action", "namespace", "ownerKind", "owner", "uid", "strategy", "node", "start",
		"end", "energyJoules", "carbonGrams", "cost", "carbonIntensity", "saving", "savedGrams", "reason", "message",
		"digest", "quality")
	for _, r := range l.Decisions.Decisions {
		t.Add(r.ID, r.At, r.Action, r.Namespace, r.OwnerKind, r.Owner, r.UID, r.Strategy, r.Node, r.Start, r.End,
			float64(r.Energy), float64(r.Carbon), r.Cost, r.Intensity, r.Saving, float64(r.Saved), r.Reason, r.Message,
			r.Digest, r.Quality)
	}
	return t
}
